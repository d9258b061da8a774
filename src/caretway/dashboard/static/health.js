// Health: findings of doctor, MCP servers and their tools, refused requests, recoveries, and the last live answer.

import { change } from "./api.js";
import { announce, badge, button, code, col, empty, h, num, panel, path, prose, small, table } from "./dom.js";
import { fetched, trouble, when } from "./view.js";
import { count, plain, plural, UNKNOWN } from "./words.js";

const STATES = { ready: "good", connected: "good", running: "good", failed: "bad", down: "bad" };

export const health = {
  open(root) {
    let failure = null;
    const view = fetched(root, { paths: ["/health"], on: ["health"], draw: (told) => [failure && trouble(failure), draw(told, restart)] });
    async function restart(name) {
      try {
        failure = null;
        await change("POST", `/mcp/${encodeURIComponent(name)}/restart`, {});
        announce(`${name} is restarting.`);
      } catch (caught) {
        failure = caught;
      }
      view.load();
    }
    return view;
  },
};

function draw(told, restart) {
  const bad = told.findings.filter((one) => !one.ok);
  return [
    panel(
      null,
      h("p", { class: "lead" }, badge(bad.length ? plural(bad.length, "problem") : "all well", bad.length ? "bad" : "good")),
      h("ul", { class: "findings" }, [...bad, ...told.findings.filter((one) => one.ok)].map(finding)),
    ),
    panel("A live account", h("p", null, badge(told.live.answered ? "has answered" : "never seen", told.live.answered ? "good" : "warn"), " ", prose(told.live.says)), told.live.receipt && small("Last receipt: ", when(told.live.receipt.at), `, backend ${plain(told.live.receipt.backend)}, ${plain(told.live.receipt.service)}, Caretway ${plain(told.live.receipt.caretway)}`)),
    panel(
      "MCP servers",
      told.mcp.servers.length === 0
        ? empty(told.mcp.enabled ? "No server is configured." : "MCP servers are off.", "Name a file with ", code("--mcp-config FILE"), "; see docs/tools.md.")
        : told.mcp.servers.map((server) =>
            h(
              "details",
              { class: "entry", "data-key": server.name },
              h("summary", null, h("strong", null, plain(server.name)), " ", badge(plain(server.state), STATES[server.state]), h("span", { class: "muted small" }, ` ${plural(server.tools.length, "tool")}`)),
              server.detail && h("p", { class: "small" }, prose(server.detail)),
              server.note && small(prose(server.note)),
              h("ul", { class: "plainlist" }, server.tools.map((tool) => h("li", null, code(tool.name), h("span", { class: "muted small" }, ` ${plain(tool.description)}`)))),
              button("Restart", () => restart(server.name), { "aria-label": `Restart ${plain(server.name)}` }),
            ),
          ),
    ),
    panel(
      "Refused requests",
      told.refused.length === 0
        ? empty("None since the start.")
        : table(
            "Requests that were refused",
            [
              path("Request", (row) => code(`${plain(row.method)} ${plain(row.path)}`)),
              col("Answer", (row) => badge(`${row.status} ${plain(row.code)}`, "bad")),
              col("Why, and what to do", (row) => [prose(row.message), row.hint && h("div", { class: "muted small" }, prose(row.hint))]),
              col("Client", (row) => plain(row.client) || UNKNOWN),
              num("Times", (row) => count(row.count)),
              num("Last", (row) => when(row.at)),
            ],
            told.refused,
          ),
    ),
    panel(
      "Recoveries",
      told.recoveries.length === 0
        ? empty("None since the start.")
        : table(
            "Runs that were lost and recovered",
            [
              col("When", (row) => when(row.at)),
              col("Cause", (row) => plain(row.cause)),
              col("What was done", (row) => plain(row.rung)),
              col("Cost", (row) => plain(row.price)),
              col("Model", (row) => plain(row.model) || UNKNOWN),
              col("Client", (row) => plain(row.client) || UNKNOWN),
              col("Conversation", (row) => (row.conversation ? h("a", { href: `#/conversations/${encodeURIComponent(row.conversation)}` }, "its steps") : UNKNOWN)),
            ],
            told.recoveries,
          ),
    ),
  ];
}

function finding(one) {
  return h("li", { class: one.ok ? "ok" : "not" }, h("span", { class: "mark", "aria-hidden": "true" }, one.ok ? "✓" : "✗"), h("div", null, h("span", { class: "unseen" }, one.ok ? "Well: " : "Problem: "), h("strong", null, plain(one.name)), one.detail && [" ", prose(one.detail)], one.hint && h("div", { class: "muted" }, prose(one.hint))));
}
