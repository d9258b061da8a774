// Usage: tokens and money by hour or day, by model, key, client and tool; savings by sessions; budgets; export.

import { columns, parts, usageLegend } from "./chart.js";
import { code, col, empty, figure, figures, h, num, panel, small, table } from "./dom.js";
import { bar, fetched } from "./view.js";
import { compact, count, date, lasted, minute, moment, money, plain, plural, UNKNOWN } from "./words.js";

const PERIODS = { today: "Today", week: "Week", month: "Month", all: "All" };
const GROUPS = { model: "By model", key: "By key", client: "By client", kind: "By kind of request" };
const BASE = "/caretway/v1/usage/export";

export const usage = {
  name: "usage",
  title: "Usage",
  open(root, route) {
    const period = PERIODS[route.query.get("period")] ? route.query.get("period") : "today";
    const slot = period === "today" ? "hour" : "day";
    return fetched(root, {
      paths: [slot, ...Object.keys(GROUPS), "tool"].map((by) => `/usage?period=${period}&by=${by}`),
      on: ["usage"],
      draw: (timed, ...told) => draw(period, timed, told.slice(0, -1), told.at(-1)),
    });
  },
};

function draw(period, timed, groups, tools) {
  const { total, by } = timed;
  const choice = h(
    "div",
    { class: "row spread" },
    h("div", { class: "choice", role: "group", "aria-label": "Period" }, Object.entries(PERIODS).map(([name, title]) => h("a", { class: "button", href: `#/usage?period=${name}`, "aria-current": name === period ? "true" : null }, title))),
    h("p", { class: "small" }, "Export as CSV: ", [by, ...Object.keys(GROUPS), "conversation"].map((one) => [h("a", { href: `${BASE}?period=${period}&by=${one}`, download: "" }, `by ${one}`), " "])),
  );
  if (!timed.ledger) return [choice, panel(null, empty("The ledger is switched off.", "Switch it on with ", code("ledger_max_age"), " in the settings file."))];
  if (total.responses === 0 && total.refused === 0) return [choice, panel(null, empty("Nothing was used in this time.", "Every answer counts from now on.")), budgetPanel(timed.budgets)];
  return [
    choice,
    panel(
      null,
      figures(
        figure("Cost", money(total.cents), total.unpriced > 0 ? `${plural(total.unpriced, "run")} without a price` : "at list price"),
        figure("Tokens", compact(total.tokens), `${compact(total.output)} output`),
        figure("Input", compact(total.read), percent(total.cached_share, "cached")),
        figure("Saved by sessions", compact(total.saved), percent(total.saved_share, "less input")),
        figure("Answers", count(total.responses), total.failed + total.refused > 0 ? `${count(total.failed)} failed, ${count(total.refused)} refused` : "none failed"),
      ),
    ),
    panel(by === "hour" ? "By hour" : "By day", usageLegend(), columns(timed.slots.length ? timed.slots : timed.rows.map((row) => row.group), timed.rows), asTable(by, timed.rows, by === "hour" ? "Hour" : "Day")),
    h(
      "div",
      { class: "columns" },
      groups.filter((told) => told.by !== "kind" || told.rows.length > 1).map((told) => panel(GROUPS[told.by], told.rows.length ? [parts(told.rows.filter((row) => row.tokens > 0)), asTable(told.by, told.rows, GROUPS[told.by].slice(3))] : empty("Nothing."))),
    ),
    h("div", { class: "columns" }, toolPanel(tools.rows), savedPanel(total, timed.replays), budgetPanel(timed.budgets)),
    timed.unpriced.length > 0 && small("Without a price (dollars for a million tokens, in the settings file): ", timed.unpriced.map((one) => [code(plain(one)), " "])),
    timed.prices?.source && small(`Prices: ${plain(timed.prices.source)}${timed.prices.as_of ? `, as of ${plain(timed.prices.as_of)}` : ""}.`),
  ];
}

const TOOLS = [
  col("Tool", (row) => code(row.group)),
  num("Calls", (row) => count(row.calls)),
  num("Waited", (row) => lasted(row.waited * 1000)),
  num("Each", (row) => (row.waits ? lasted((row.waited / row.waits) * 1000) : UNKNOWN)),
  num("Longest", (row) => lasted(row.longest * 1000)),
];

function toolPanel(rows) {
  return panel("By tool", rows.length ? [table("Tools that models called, and how long they took", TOOLS, rows, (row) => row.group), small("The time from an answer with calls to the request with their results.")] : empty("No tool was called."));
}

function savedPanel(total, replays) {
  return panel(
    "Saved by sessions",
    h("p", null, `${count(total.saved)} tokens were not sent again, because the conversation was still known. `, replayed(replays)),
    replays.length > 0 &&
      table(
        "Why the history was sent again",
        [
          col("Why the history was sent again", (row) => plain(row.reason)),
          num("Answers", (row) => count(row.responses)),
          num("Tokens", (row) => compact(row.input)),
        ],
        replays,
        (row) => row.reason,
      ),
  );
}

function replayed(rows) {
  const responses = rows.reduce((sum, row) => sum + row.responses, 0);
  return responses ? `${plural(responses, "answer")} began with the whole history instead.` : "No history had to be sent again.";
}

const percent = (share, of) => (share == null ? "" : `${Math.round(100 * share)} % ${of}`);

function asTable(by, rows, title) {
  return h(
    "details",
    { "data-key": `table-${by}` },
    h("summary", { class: "muted small" }, "As a table"),
    table(
      `Usage by ${by}`,
      [
        { title, cell: (row) => plain(row.group) || UNKNOWN },
        num("Fresh", (row) => compact(row.input)),
        num("Written", (row) => compact(row.cache_write)),
        num("Cached", (row) => compact(row.cache_read)),
        num("Output", (row) => compact(row.output)),
        num("Saved", (row) => compact(row.saved)),
        num("Cost", (row) => money(row.cents)),
      ],
      rows,
      (row) => row.group,
    ),
  );
}

function budgetPanel(budgets) {
  return panel(
    "Budgets",
    budgets.length === 0
      ? empty("No budget is set.", "A budget stops runs before they cost too much. Set one in the ", h("a", { href: "#/settings?q=budgets" }, "settings"), ".")
      : budgets.map((budget) =>
          h(
            "div",
            { class: "quota" },
            h("p", null, code(budget.text), h("span", { class: "number" }, plain(budget.says))),
            budget.share != null && bar(budget.share, `${plain(budget.text)}: ${Math.round(budget.share * 100)} % used`),
            small(
              budget.runs_out_at ? h("strong", { title: moment(budget.runs_out_at) }, `Runs out on ${date(budget.runs_out_at)}, ${minute(budget.runs_out_at)} at today's pace. `) : budget.share != null && budget.share < 1 && "Lasts at today's pace. ",
              budget.resets_at && h("span", { title: moment(budget.resets_at) }, `Starts again on ${date(budget.resets_at)}.`),
            ),
          ),
        ),
  );
}
