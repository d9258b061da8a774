// Overview: the last hour, running and waiting turns, the newest answers, the account and today's cost.

import { change } from "./api.js";
import { KINDS, lastHour, legend, stack } from "./chart.js";
import { announce, badge, button, code, col, copyable, empty, h, num, panel, path, prose, small, sure, table, who } from "./dom.js";
import { bar, conversationLink, fetched, since, trouble, when } from "./view.js";
import { compact, count, date, lasted, minute, moment, money, outcome, plain, plural, STATES, STATE_TONES, TONES, UNKNOWN } from "./words.js";

export const overview = {
  name: "overview",
  title: "Overview",
  open(root, _route, app) {
    let failure = null;
    const view = fetched(root, { paths: ["/overview"], on: ["overview"], draw: (told) => [failure && trouble(failure), app.now && draw(told, app.now, cancel)], without: () => app.now && draw(null, app.now, cancel) });
    async function cancel(turn) {
      if (!(await sure(`Cancel the turn of ${plain(turn.client) || "this client"} on ${plain(turn.model)}?`, "Cancel the turn"))) return;
      try {
        failure = null;
        await change("DELETE", `/turns/${encodeURIComponent(turn.id)}`);
        announce("The turn is cancelled.");
      } catch (caught) {
        failure = caught;
      }
      view.redraw();
    }
    // The axis moves even without new data.
    let shown = Math.floor(Date.now() / 60000);
    const timer = setInterval(() => {
      const now = Math.floor(Date.now() / 60000);
      if (document.hidden || now === shown) return;
      shown = now;
      view.changed(["overview"]);
    }, 1000);
    return { ...view, now: view.redraw, close: () => (clearInterval(timer), view.close()) };
  },
};

function draw(told, now, cancel) {
  return h(
    "div",
    { class: "beside" },
    h(
      "div",
      { class: "stack" },
      now.last_error && lastError(now.last_error),
      told && hour(told),
      turns(now, cancel),
      told && latest(told.answers),
      now.cluster && panel("Cluster", cluster(now.cluster)),
    ),
    h("div", { class: "stack" }, told && today(told.today), panel(now.backend.standing === "simulated" ? "Account (simulated)" : "Account", account(now.account)), gatewayPanel(now)),
  );
}

// ---- the last hour

function hour(told) {
  if (!told.ledger) return panel("Last 60 minutes", empty("The ledger is switched off.", "The hour and the answers are read from it. Switch it on with ", code("ledger_max_age"), " in the settings file."));
  const busy = told.minutes.filter((one) => one.answers || one.failed || one.refused || one.output);
  if (busy.length === 0) return panel("Last 60 minutes", empty("No answer in the last hour.", "Answers, tokens, times and errors show up here minute by minute. ", start()));
  return panel(
    "Last 60 minutes",
    legend(),
    lastHour(told.minutes),
    told.errors.length > 0 &&
      h(
        "ul",
        { class: "plainlist", "aria-label": "Errors of the last hour" },
        told.errors.map((one) => h("li", { class: "row tight" }, badge(`${count(one.count)} ${plain(one.code)}`, "bad"), h("span", { class: "small" }, prose(one.says)))),
        h("li", { class: "small" }, h("a", { href: "#/conversations?failed=1&period=hour" }, "Their conversations")),
      ),
    h(
      "details",
      { "data-key": "hour-table" },
      h("summary", { class: "muted small" }, "As a table"),
      table(
        "The last hour by minutes",
        [
          col("Minute", (row) => minute(row.at)),
          num("Answers", (row) => count(row.answers)),
          ...KINDS.map((kind) => num(kind.title, (row) => count(row[kind.name]))),
          num("First token p50", (row) => lasted(row.first_p50)),
          num("p95", (row) => lasted(row.first_p95)),
          num("Failed", (row) => count(row.failed)),
          num("Refused", (row) => count(row.refused)),
        ],
        busy,
        (row) => String(row.at),
      ),
    ),
  );
}

const start = () => [h("a", { href: "#/playground" }, "Try the playground"), " or ", h("a", { href: "#/clients" }, "set up a client"), "."];

function lastError(error) {
  return h(
    "section",
    { class: "panel trouble", "data-key": "error" },
    h("h2", null, "Last error"),
    h("p", { class: "error" }, prose(error.message)),
    error.hint && h("p", null, prose(error.hint)),
    h(
      "p",
      { class: "muted small" },
      when(error.at),
      [error.status || "", error.code, error.client, error.model, error.path].filter(Boolean).map((one) => ` · ${plain(one)}`),
      error.conversation && [" · ", h("a", { href: conversationLink(error.conversation) }, "Open its conversation")],
    ),
  );
}

// ---- turns

function turns(now, cancel) {
  const speed = now.tokens_per_second;
  return panel(
    "Now",
    h("p", { class: "lead", "data-key": "counts" }, `${count(now.running)} running, ${count(now.parked)} waiting for a tool`, now.running > 0 && `, ${speed.toFixed(speed < 10 ? 1 : 0)} tokens per second`),
    now.turns.length === 0
      ? h("p", { class: "muted" }, "Nothing is running. ", start())
      : table(
          "Turns that are running or waiting for a tool",
          [
            who("Client", (turn) => [plain(turn.client) || UNKNOWN, turn.key && h("div", { class: "muted small" }, plain(turn.key))]),
            col("State", (turn) => [badge(STATES[turn.state], STATE_TONES[turn.state]), turn.waiting_for.map((tool) => [" ", code(tool)])]),
            num("For", (turn) => since(turn.since)),
            col("Model", (turn) => plain(turn.model)),
            col("Session", (turn) => [badge(turn.session, TONES[turn.session]), h("div", { class: "muted small" }, plain(turn.reason))]),
            num("Tokens", (turn) => count(turn.tokens)),
            col("", (turn) => button("Cancel", () => cancel(turn), { class: "quiet above", "aria-label": `Cancel the turn of ${plain(turn.client)} on ${plain(turn.model)}` })),
          ],
          now.turns,
          (turn) => turn.id,
          (turn) => turn.conversation && conversationLink(turn.conversation),
        ),
    now.turns_left_off > 0 && h("p", { class: "muted" }, `${count(now.turns_left_off)} more are not shown.`),
  );
}

export function ended(row) {
  if (!row.error) return badge(outcome(row), row.outcome === "paused" || row.outcome === "end" ? "good" : "");
  return badge(plain(row.error), "bad");
}

function latest(answers) {
  return panel(
    "Last answers",
    answers.length === 0
      ? empty("No answer yet.")
      : table(
          "The answers that ended last",
          [
            num("Ended", (row) => when(row.at)),
            who("Client", (row) => [plain(row.client) || UNKNOWN, row.key && h("div", { class: "muted small" }, plain(row.key))]),
            who("Model", (row) => plain(row.model) || UNKNOWN),
            path("Outcome", (row) => [ended(row), row.error && h("div", { class: "small muted" }, prose(row.message)), row.session === "replayed" && h("div", { class: "small muted" }, `history sent again: ${plain(row.reason)}`)]),
            num("First token", (row) => lasted(row.first_ms)),
            num("Took", (row) => (row.total_ms ? lasted(row.total_ms) : UNKNOWN)),
          ],
          answers,
          (row) => `${row.request_id} ${row.at}`,
          (row) => row.conversation && conversationLink(row.conversation),
        ),
  );
}

// ---- the side

function today({ total, clients }) {
  if (!total || total.responses + total.refused === 0) return panel("Today", empty("Nothing was used today."));
  const top = Math.max(1e-9, ...clients.map((row) => row.cents ?? 0));
  return panel(
    "Today",
    h("p", { class: "big" }, money(total.cents), h("span", { class: "muted small" }, ` ${compact(total.tokens)} tokens, ${plural(total.responses, "answer")}`)),
    h(
      "ul",
      { class: "bars", "aria-label": "Cost by client" },
      clients.map((row) =>
        h("li", null, h("div", { class: "row spread" }, h("span", null, plain(row.group) || "not named"), h("span", { class: "number" }, money(row.cents))), stack([["fresh", (row.cents ?? 0) / top]])),
      ),
    ),
    total.unpriced > 0 && small(`${plural(total.unpriced, "run")} without a price not included. `, h("a", { href: "#/usage" }, "Which models"), "."),
  );
}

const known = (yes, word) => yes != null && badge(yes ? word : `not ${word}`, yes ? "good" : "bad");

function gatewayPanel(now) {
  const { backend } = now;
  return panel(
    "Gateway",
    copyable(now.address, "the address"),
    h("p", null, prose(backend.says)),
    backend.standing !== "simulated" && h("p", null, known(now.signed_in, "signed in"), " ", known(now.reachable, "reachable")),
    now.detail && h("p", { class: "muted" }, prose(now.detail)),
    small("Up for ", since(now.started_at), `, version ${now.version}`),
  );
}

function account(told) {
  if (!told) return empty("Not asked yet.");
  if (!told.known) return empty("What is left of the plan is not known.", prose(told.reason));
  const { plan, period } = told;
  return [
    h("p", null, h("strong", null, plain(plan?.name ?? "Plan"))),
    (told.pools ?? []).map((pool) => {
      const name = plain(pool.name);
      return h(
        "div",
        { class: "quota" },
        h("p", null, h("span", null, name), h("span", { class: "number" }, pool.percent_used == null ? UNKNOWN : `${Math.round(pool.percent_used)} % used`)),
        pool.percent_used != null && bar(pool.percent_used / 100, `${name}: ${Math.round(pool.percent_used)} % used`),
      );
    }),
    told.limit_cents != null && h("p", { class: "muted" }, `${money(told.spent_cents)} of ${money(told.limit_cents)} spent, ${money(told.remaining_cents)} left.`),
    period?.ends_at && h("p", { title: moment(period.ends_at) }, "Quota resets on ", h("strong", null, `${date(period.ends_at)}, ${minute(period.ends_at)}`), ` (in ${plural(Math.ceil(period.days_left), "day")}).`),
  ];
}

// ---- the cluster

function cluster(told) {
  return [
    !told.redis && h("p", { class: "error" }, "Redis does not answer: this is the last known state."),
    table("Gateways of the cluster", REPLICAS, told.replicas, (one) => one.id),
    told.left_off > 0 && h("p", { class: "muted" }, `${count(told.left_off)} more are not shown.`),
  ];
}

const REPLICAS = [
  col("Gateway", (one) => [code(one.id), one.here && " this one"]),
  path("Address", (one) => plain(one.address)),
  col("State", (one) => badge(one.state, one.state === "ready" ? "good" : "warn")),
  col("Version", (one) => plain(one.version)),
  num("Waiting for a tool", (one) => count(one.parked)),
  num("Since", (one) => since(one.since)),
];
