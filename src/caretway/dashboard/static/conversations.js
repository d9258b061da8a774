// Conversations: the list with its filters, and one conversation as a waterfall of its steps.

import { axis, lane } from "./chart.js";
import { change, get } from "./api.js";
import { announce, badge, button, code, col, empty, figure, figures, h, num, panel, path, prose, renew, small, sure, table, who } from "./dom.js";
import { ended } from "./overview.js";
import { conversationLink, fetched, since, trouble, when } from "./view.js";
import { compact, count, DIALECTS, lasted, moment, money, outcome, plain, plural, STATES, STATE_TONES, time, TONES, UNKNOWN } from "./words.js";

const SEARCH_AFTER_MS = 250;
const TIMES = { "": "any time", hour: "last hour", today: "today", week: "7 days", month: "this month" };
const CHOSEN = ["client", "model", "key"];
const ID = /^[\w-]+$/;

/** The target of "All conversations": the list with its last filters. */
let back = "#/conversations";

export const conversations = {
  name: "conversations",
  title: "Conversations",
  names: (rest) => rest && "Conversation",
  open: (root, route) => (route.rest ? one(root, route.rest) : list(root, route.query)),
};

// ---- the list

function list(root, query) {
  let timer = 0;
  let older = [];
  const field = h("input", { type: "search", id: "search", value: query.get("q") ?? "", placeholder: "Id, model, reason, error", on: { input: () => (clearTimeout(timer), (timer = setTimeout(filtered, SEARCH_AFTER_MS))) } });
  const failed = h("input", { type: "checkbox", id: "failed", checked: query.get("failed") === "1", on: { change: filtered } });
  const select = (name, values) => {
    const one = h("select", { id: name, on: { change: filtered } });
    offer(one, values, query.get(name) ?? "");
    return one;
  };
  const selects = { period: select("period", Object.entries(TIMES)) };
  for (const name of CHOSEN) selects[name] = select(name, [["", `any ${name}`]]);
  const found = h("div", { class: "stack" });
  renew(
    root,
    h(
      "div",
      { class: "row filters" },
      h("div", { class: "search" }, h("label", { for: "search", class: "unseen" }, "Search"), field),
      Object.entries(selects).map(([name, one]) => h("span", { class: "choose" }, h("label", { for: name, class: "unseen" }, name === "period" ? "Time" : name), one)),
      h("span", null, failed, " ", h("label", { for: "failed" }, "Failed only")),
    ),
    found,
  );
  const asked = () => {
    const given = { q: field.value.trim(), failed: failed.checked ? "1" : "", ...Object.fromEntries(Object.entries(selects).map(([name, one]) => [name, one.value])) };
    return new URLSearchParams(Object.entries(given).filter(([, value]) => value));
  };
  const path_ = (before) => {
    const words = asked();
    words.set("limit", 50);
    if (before) words.set("before", before);
    return `/conversations?${words}`;
  };
  const note = () => (back = asked().size ? `#/conversations?${asked()}` : "#/conversations");
  note();
  const view = fetched(found, { paths: () => [path_()], on: ["conversations"], draw });
  function filtered() {
    older = [];
    history.replaceState(null, "", note());
    view.load();
  }
  async function more(rows) {
    try {
      older = [...older, await get(path_(rows.at(-1).last_at))];
      view.redraw();
    } catch (failure) {
      found.append(trouble(failure));
    }
  }
  function draw(told) {
    for (const name of CHOSEN) offer(selects[name], [["", `any ${name}`], ...(told.choices[`${name}`] ?? []).map((one) => [one, plain(one)])], selects[name].value);
    const rows = [...new Map([told, ...older].flatMap((page) => page.data).map((row) => [row.id, row])).values()];
    if (!told.ledger) return panel(null, empty("The ledger is switched off.", "Past conversations are read from it. Switch it on with ", code("ledger_max_age"), " in the ", h("a", { href: "#/settings?q=ledger" }, "settings"), "."));
    if (rows.length === 0) {
      return panel(null, asked().size ? empty("Nothing fits these filters.", "The search looks at ids, models, clients, keys, reasons and errors, not at what was said.") : empty("No conversation yet.", h("a", { href: "#/playground" }, "Try the playground"), " or ", h("a", { href: "#/clients" }, "set up a client"), "."));
    }
    const last = older.at(-1) ?? told;
    return [panel(null, table("Conversations, the newest first", columns(rows), rows, (row) => row.id, (row) => conversationLink(row.id))), last.more && h("p", null, button("Show older ones", () => more(rows)))];
  }
  return { ...view, close: () => (clearTimeout(timer), view.close()) };
}

/** Sets the options of a select. The chosen value is kept even if it is no longer among them. */
function offer(select, values, chosen) {
  const known = values.some(([value]) => value === chosen) ? values : [...values, [chosen, plain(chosen)]];
  renew(select, known.map(([value, title]) => h("option", { value }, title)));
  select.value = chosen;
}

function columns(rows) {
  const any = (name) => rows.some((row) => row[name]);
  return [
    col("Last step", (row) => [when(row.last_at), row.live && h("div", null, badge(STATES[row.live], STATE_TONES[row.live]))]),
    who("Client", (row) => [plain(row.client) || UNKNOWN, row.key && h("div", { class: "muted small" }, plain(row.key))]),
    who("Model", (row) => plain(row.model) || UNKNOWN),
    any("opening") && path("First words", (row) => h("span", { class: "small", dir: "auto" }, row.opening ? plain(row.opening) : UNKNOWN)),
    num("Steps", (row) => count(row.responses)),
    col("Outcome", (row) => [ended(row), Object.entries(row.errors).map(([name, times]) => name !== row.error && h("div", null, badge(`${count(times)} ${plain(name)}`, "bad"))), row.sessions.replayed && h("div", null, badge(`sent again ${count(row.sessions.replayed)}×`, "warn"))]),
    num("Fresh", (row) => compact(row.input)),
    any("cache_write") && num("Written", (row) => compact(row.cache_write)),
    num("Cached", (row) => compact(row.cache_read)),
    num("Output", (row) => compact(row.output)),
    num("Saved", (row) => compact(row.saved)),
    num("Cost", (row) => money(row.cents)),
  ].filter(Boolean);
}

// ---- one conversation

function one(root, id) {
  if (!ID.test(id)) {
    renew(root, panel(null, empty("No such conversation.", h("a", { href: back }, "All conversations"))));
    return {};
  }
  let failure = null;
  const view = fetched(root, { paths: [`/conversations/${encodeURIComponent(id)}`], on: ["conversations"], draw });
  async function forget() {
    if (!(await sure("Forget this conversation? Its rows in the ledger, its kept content and its session are deleted. A client that goes on with it is answered from its whole history.", "Forget it"))) return;
    try {
      await change("DELETE", `/conversations/${encodeURIComponent(id)}`);
      announce("The conversation is forgotten.");
      location.hash = back;
    } catch (caught) {
      failure = caught;
      view.redraw();
    }
  }
  function draw(told) {
    const { steps, runs, total, turn } = told;
    const input = (total.input ?? 0) + (total.cache_read ?? 0) + (total.cache_write ?? 0);
    const saved = steps.reduce((all, step) => all + (step.held ?? 0), 0);
    const failures = steps.filter((step) => step.error).length;
    return [
      h("p", null, h("a", { href: back }, "← All conversations")),
      failure && trouble(failure),
      panel(
        null,
        h(
          "div",
          { class: "row spread" },
          h("p", null, h("strong", null, plain(told.client) || "Unknown client"), told.key && ` · ${plain(told.key)}`, " ", steps.length > 0 && ended(steps.at(-1)), " ", turn && badge(STATES[turn.state], STATE_TONES[turn.state]), h("br"), code(told.id)),
          button("Forget", forget, "danger"),
        ),
        figures(
          figure("Steps", count(steps.length), `${plural(runs.length, "run")}${failures ? `, ${count(failures)} failed` : ""}`),
          figure("Fresh input", compact(total.input), total.cache_write ? `${compact(total.cache_write)} written to the cache` : "tokens"),
          figure("Cached", compact(total.cache_read), input ? `${Math.round((100 * (total.cache_read ?? 0)) / input)} % of the input` : ""),
          figure("Output", compact(total.output), "tokens"),
          figure("Saved by the session", compact(saved), "tokens not sent again"),
          figure("Cost", money(total.cents)),
        ),
      ),
      panel("Steps", steps.length ? waterfall(steps, turn) : empty("No step was finished yet."), told.more && h("p", { class: "muted" }, "Older steps are left out.")),
      runs.length > 0 && panel("Runs", table("Runs of Cursor's agent", RUNS, runs, (run) => run.run)),
      panel("Content", content(told.content)),
    ];
  }
  return view;
}

const COLOURS = [
  ["thinks", "until the first token"],
  ["speaks", "answering"],
  ["awaits", "waiting for a tool"],
  ["gap", "waiting for the client"],
  ["failed", "failed"],
];

function waterfall(steps, turn) {
  const until = turn?.state === "parked" ? Date.now() / 1000 : 0;
  const on = axis(steps, until);
  const shortened = steps.some((step) => on.cut(step));
  return [
    h("ul", { class: "legend", "aria-label": "Colours" }, COLOURS.map(([name, title]) => h("li", null, h("span", { class: name }), title))),
    small(`The axis is ${lasted(on.whole * 1000)} long.`, shortened && " Long times in which the client did not ask are cut short."),
    h(
      "ol",
      { class: "timeline" },
      steps.map((row) => step(row, on)),
      turn?.state === "parked" && h("li", { class: "warn", "data-key": "turn" }, h("p", { class: "row tight" }, badge(STATES.parked, "warn"), turn.waiting_for.map((tool) => code(tool)), " for ", since(turn.since))),
    ),
  ];
}

function step(row, on) {
  const fact = (title, value) => value !== UNKNOWN && h("div", null, h("dt", null, title), h("dd", null, value));
  const waited = row.waited_s > 0 && `${row.waited_for.length ? `waited ${lasted(row.waited_s * 1000)} for ${row.waited_for.map(plain).join(", ")}` : `the client asked after ${lasted(row.waited_s * 1000)}`}`;
  const words = [waited, `first token ${lasted(row.first_ms)}`, `took ${lasted(row.total_ms)}`].filter(Boolean).join("; ");
  return h(
    "li",
    { class: (row.error ? "bad" : TONES[row.session]) || null, "data-key": row.request_id },
    h(
      "div",
      { class: "row spread" },
      h(
        "p",
        { class: "row tight" },
        h("time", { datetime: new Date(row.at * 1000).toISOString(), title: moment(row.started_at) }, time(row.started_at)),
        badge(row.session, TONES[row.session]),
        row.kind && row.kind !== "turn" && badge(plain(row.kind)),
        row.error ? badge(plain(row.error), "bad") : h("span", { class: "muted" }, outcome(row)),
        row.tools.map((tool) => code(tool)),
      ),
      h("p", { class: "number", title: row.shared ? "Its share of the run's cost, by tokens" : null }, lasted(row.total_ms), row.cents != null && ` · ${row.shared && row.cents >= 0.5 ? "≈ " : ""}${money(row.cents)}`),
    ),
    lane(row, on, words),
    h("p", null, row.session === "replayed" && h("strong", null, "History sent again. "), prose(row.says || row.reason)),
    row.message && h("p", { class: "error" }, prose(row.message), " ", row.hint && prose(row.hint)),
    small([waited, DIALECTS[row.dialect] ?? plain(row.dialect), `${plain(row.asked)}${(row.variant || row.model) !== row.asked ? ` → ${plain(row.variant || row.model)}` : ""}`].filter(Boolean).join(" · ")),
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
      row.estimated && h("div", null, h("dt", null, "estimated")),
    ),
    row.recoveries?.length > 0 && small(row.error ? "Tried before it failed: " : "Recovered: ", row.recoveries.map(plain).join(", ")),
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
    kept.map((one) => h("div", { class: "said" }, h("h3", null, moment(one.at)), h("div", { class: "words" }, h("p", { dir: "auto" }, one.said)), h("div", { class: "words answered" }, h("p", { dir: "auto" }, one.answered)))),
  );
}
