// Conversations: the list with a search, and one of them as a timeline of its steps.

import { change, get } from "./api.js";
import { announce, badge, button, code, col, empty, figure, figures, h, num, panel, prose, renew, small, sure, table, who } from "./dom.js";
import { bar, fetched, since, trouble, when } from "./view.js";
import { compact, count, DIALECTS, lasted, moment, money, plain, plural, time, TONES, UNKNOWN } from "./words.js";

const SEARCH_AFTER_MS = 250;
const LIVE = { running: "good", parked: "warn" };

export const conversations = {
  name: "conversations",
  title: "Conversations",
  one: "Conversation",
  open: (root, route) => (route.rest ? one(root, route.rest) : list(root, route.query)),
};

// ---- the list

function list(root, query) {
  let timer = 0;
  let older = [];
  const field = h("input", { type: "search", id: "search", value: query.get("q") ?? "", placeholder: "Model, client, key, reason, error", on: { input: typed } });
  const found = h("div");
  renew(root, h("div", { class: "search" }, h("label", { for: "search" }, "Search"), field), found);
  const path = (before) => {
    const asked = new URLSearchParams({ limit: 50 });
    if (field.value.trim()) asked.set("q", field.value.trim());
    if (before) asked.set("before", before);
    return `/conversations?${asked}`;
  };
  const view = fetched(found, { paths: () => [path()], on: ["conversations"], draw });
  function typed() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      older = [];
      const q = field.value.trim();
      history.replaceState(null, "", q ? `#/conversations?${new URLSearchParams({ q })}` : "#/conversations");
      view.load();
    }, SEARCH_AFTER_MS);
  }
  async function more(rows) {
    try {
      older = [...older, await get(path(rows.at(-1).last_at))];
      view.redraw();
    } catch (failure) {
      found.append(trouble(failure));
    }
  }
  function draw(told) {
    const rows = [...new Map([told, ...older].flatMap((page) => page.data).map((row) => [row.id, row])).values()];
    if (!told.ledger && rows.length === 0) return panel(null, empty("The ledger is switched off.", "Without it nothing of past conversations is known. Switch it on with ", code("ledger"), " in the ", h("a", { href: "#/settings" }, "settings"), "."));
    if (rows.length === 0) {
      return panel(null, field.value.trim() ? empty("Nothing fits this search.", "It looks at ids, models, clients, keys, reasons and errors. What was said is not kept.") : empty("No conversation yet.", h("a", { href: "#/try" }, "Try it"), " or ", h("a", { href: "#/clients" }, "set up a client"), "."));
    }
    const last = older.at(-1) ?? told;
    return [
      panel(null, table("Conversations, the newest first", COLUMNS, rows, (row) => row.id)),
      last.more && h("p", null, button("Show older ones", () => more(rows))),
    ];
  }
  return { ...view, close: () => (clearTimeout(timer), view.close()) };
}

const COLUMNS = [
  col("Last step", (row) => [h("a", { href: `#/conversations/${encodeURIComponent(row.id)}` }, when(row.last_at)), row.live && [" ", badge(row.live, LIVE[row.live])]]),
  who("Client", (row) => [plain(row.client) || UNKNOWN, row.key && h("div", { class: "muted small" }, plain(row.key))]),
  col("Model", (row) => plain(row.model) || UNKNOWN),
  col("Sessions", (row) => h("div", { class: "row tight" }, Object.entries(row.sessions).map(([name, n]) => badge(`${n} ${name}`, TONES[name])))),
  num("Failed", (row) => (row.failed ? badge(count(row.failed), "bad") : UNKNOWN)),
  num("Fresh", (row) => compact(row.input)),
  num("Written", (row) => compact(row.cache_write)),
  num("Cached", (row) => compact(row.cache_read)),
  num("Output", (row) => compact(row.output)),
  num("Saved", (row) => compact(row.saved)),
  num("Cost", (row) => money(row.cents)),
];

// ---- one of them

function one(root, id) {
  let failure = null;
  const view = fetched(root, { paths: [`/conversations/${encodeURIComponent(id)}`], on: ["conversations"], draw });
  async function forget() {
    if (!(await sure("Forget this conversation? Its rows in the ledger, its kept content and its session are deleted. A client that goes on with it is answered from its whole history.", "Forget it"))) return;
    try {
      await change("DELETE", `/conversations/${encodeURIComponent(id)}`);
      announce("The conversation is forgotten.");
      location.hash = "#/conversations";
    } catch (caught) {
      failure = caught;
      view.redraw();
    }
  }
  function draw(told) {
    const { steps, runs, total } = told;
    const input = (total.input ?? 0) + (total.cache_read ?? 0) + (total.cache_write ?? 0);
    return [
      h("p", null, h("a", { href: "#/conversations" }, "← All conversations")),
      failure && trouble(failure),
      panel(
        null,
        h(
          "div",
          { class: "row spread" },
          h("p", null, h("strong", null, plain(told.client) || "Unknown client"), told.key && ` · ${plain(told.key)}`, " ", told.live && badge(told.live, LIVE[told.live]), h("br"), code(told.id)),
          button("Forget", forget, "danger"),
        ),
        figures(
          figure("Steps", count(steps.length), plural(runs.length, "run")),
          figure("Fresh input", compact(total.input), "tokens"),
          figure("Written", compact(total.cache_write), "to the cache"),
          figure("Cached", compact(total.cache_read), input ? `${Math.round((100 * (total.cache_read ?? 0)) / input)} % of the input` : ""),
          figure("Output", compact(total.output), "tokens"),
          figure("Cost", money(total.cents)),
        ),
      ),
      panel("Steps", steps.length ? h("ol", { class: "timeline" }, steps.map(step)) : empty("No step was finished yet."), told.more && h("p", { class: "muted" }, "Older steps are left out.")),
      runs.length > 0 && panel("Runs", table("Runs of Cursor's agent", RUNS, runs, (run) => run.run)),
      panel("Content", content(told.content)),
    ];
  }
  return view;
}

function step(row) {
  const input = (row.input ?? 0) + (row.cache_read ?? 0) + (row.cache_write ?? 0);
  const fact = (title, value) => value !== UNKNOWN && h("div", null, h("dt", null, title), h("dd", null, value));
  const tone = row.error ? "bad" : TONES[row.session];
  return h(
    "li",
    { class: tone || null, "data-key": row.request_id },
    h("p", { class: "row tight" }, h("time", { datetime: new Date(row.at * 1000).toISOString(), title: moment(row.at) }, time(row.at)), badge(row.session, TONES[row.session]), row.error && badge(plain(row.error), "bad"), row.outcome && !row.error && h("span", { class: "muted" }, plain(row.outcome))),
    h("p", null, prose(row.says || row.reason)),
    small(DIALECTS[row.dialect] ?? plain(row.dialect), row.stream === false && ", whole", " · ", plain(row.asked), (row.variant || row.model) !== row.asked && ` → ${plain(row.variant || row.model)}`),
    row.tools?.length > 0 && h("p", { class: "row tight" }, h("span", { class: "muted small" }, "called"), row.tools.map((tool) => code(tool))),
    row.cache_read > 0 && bar((row.cache_read ?? 0) / input, `${Math.round((100 * (row.cache_read ?? 0)) / input)} % of the input came from the cache`, "good"),
    h(
      "dl",
      { class: "facts" },
      fact(row.cache_read == null ? "input" : "fresh", count(row.input)),
      fact("cached", count(row.cache_read)),
      row.cache_write > 0 && fact("written", count(row.cache_write)),
      fact("output", count(row.output)),
      row.reasoning > 0 && fact("thinking", count(row.reasoning)),
      row.held > 0 && fact("saved", count(row.held)),
      fact("first token", lasted(row.first_ms)),
      fact("in all", lasted(row.total_ms)),
      row.estimated && h("div", null, h("dt", null, "estimated")),
    ),
    row.recoveries?.length > 0 && small("Recovered: ", row.recoveries.map((one) => plain(typeof one === "string" ? one : (one.cause ?? one.rung))).join(", ")),
  );
}

const RUNS = [
  col("Started", (run) => h("span", { title: moment(run.started_at) }, time(run.started_at))),
  col("Session", (run) => badge(run.session, TONES[run.session])),
  col("Ended", (run) => (run.error ? badge(plain(run.error), "bad") : plain(run.outcome) || since(run.started_at))),
  num("Responses", (run) => count(run.responses)),
  num("Fresh", (run) => compact(run.input)),
  num("Written", (run) => compact(run.cache_write)),
  num("Cached", (run) => compact(run.cache_read)),
  num("Output", (run) => compact(run.output)),
  num("Cost", (run) => money(run.cents)),
];

function content(kept) {
  if (!kept?.length) return empty("What was said is not kept.", "Keeping it can be switched on, in memory only, under ", h("a", { href: "#/record" }, "Record"), ".");
  return h(
    "div",
    null,
    kept.map((one) => h("div", { class: "said" }, h("h3", null, moment(one.at)), h("div", { class: "words", dir: "auto" }, one.said), h("div", { class: "words answered", dir: "auto" }, one.answered))),
  );
}
