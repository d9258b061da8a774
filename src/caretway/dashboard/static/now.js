// The first tab: what the gateway is, what it does at this moment, and what went wrong last.

import { change } from "./api.js";
import { announce, badge, button, code, col, copyable, empty, figure, figures, h, num, panel, path, prose, renew, sure, svg, table } from "./dom.js";
import { bar, since, trouble, when } from "./view.js";
import { count, date, money, moment, plain, plural, TONES, UNKNOWN } from "./words.js";

const SECONDS = 60;
const speeds = [];

export const now = {
  name: "now",
  title: "Now",
  open(root) {
    let snapshot = null;
    let failure = null;
    renew(root, h("p", { class: "muted", "aria-busy": "true" }, "Waiting for the gateway …"));
    const redraw = () => snapshot && renew(root, failure && trouble(failure), draw(snapshot, cancel));
    async function cancel(turn) {
      if (!(await sure(`Cancel the turn of ${plain(turn.client) || "this client"} on ${plain(turn.model)}?`, "Cancel the turn"))) return;
      try {
        failure = null;
        await change("DELETE", `/turns/${encodeURIComponent(turn.id)}`);
        announce("The turn is cancelled.");
      } catch (caught) {
        failure = caught;
      }
      redraw();
    }
    const timer = setInterval(() => {
      if (snapshot && !document.hidden && keepSpeed(snapshot.running ? snapshot.tokens_per_second : 0)) redraw();
    }, 1000);
    return {
      now(next) {
        snapshot = next;
        redraw();
      },
      close: () => clearInterval(timer),
    };
  },
};

/** True: the curve is to be drawn again. */
function keepSpeed(speed) {
  const idle = speed === 0 && speeds.every((one) => one === 0);
  speeds.push(speed);
  if (speeds.length > SECONDS) speeds.shift();
  return !idle;
}

function draw(snapshot, cancel) {
  const { backend, turns } = snapshot;
  return [
    panel(
      null,
      figures(
        figure("Running", count(snapshot.running)),
        figure("Parked", count(snapshot.parked), "wait for a tool"),
        figure("Tokens per second", snapshot.tokens_per_second.toFixed(snapshot.tokens_per_second < 10 ? 1 : 0), curve()),
        figure("Up for", since(snapshot.started_at), `version ${snapshot.version}`),
      ),
    ),
    snapshot.last_error && lastError(snapshot.last_error),
    panel(
      "Turns",
      turns.length === 0
        ? empty("Nothing runs.", "Turns show up here while a client is being answered, or while one waits for its tools. ", h("a", { href: "#/try" }, "Try it"), " or ", h("a", { href: "#/clients" }, "set up a client"), ".")
        : turnTable(turns, cancel),
      snapshot.turns_left_off > 0 && h("p", { class: "muted" }, `${count(snapshot.turns_left_off)} more are not shown.`),
    ),
    snapshot.cluster && panel("Cluster", cluster(snapshot.cluster)),
    h(
      "div",
      { class: "columns" },
      panel(
        "Gateway",
        h("p", { class: "sentence" }, prose(backend.says)),
        copyable(snapshot.address, "the address"),
        backend.standing !== "simulated" && h("p", null, known(snapshot.signed_in, "signed in"), " ", known(snapshot.reachable, "reachable")),
        snapshot.detail && h("p", { class: "muted" }, prose(snapshot.detail)),
      ),
      panel(backend.standing === "simulated" ? "Account (simulated)" : "Account", account(snapshot.account)),
    ),
  ];
}

const known = (yes, word) => yes != null && badge(yes ? word : `not ${word}`, yes ? "good" : "bad");

function turnTable(turns, cancel) {
  return table(
    "Turns that run or wait",
    [
      col("State", (turn) => badge(turn.state, { running: "good", parked: "warn", detached: "" }[turn.state])),
      col("Model", (turn) => plain(turn.model)),
      col("Client", (turn) => [plain(turn.client) || UNKNOWN, turn.key && h("span", { class: "muted" }, ` ${plain(turn.key)}`)]),
      col("Session", (turn) => [h("a", { href: `#/conversations/${encodeURIComponent(turn.conversation)}` }, badge(turn.session, TONES[turn.session])), h("div", { class: "muted small" }, plain(turn.reason))]),
      col("Waits for", (turn) => (turn.waiting_for.length ? turn.waiting_for.map((tool) => [code(tool), " "]) : UNKNOWN)),
      num("Tokens", (turn) => count(turn.tokens)),
      num("Since", (turn) => since(turn.since)),
      col("", (turn) => button("Cancel", () => cancel(turn), { class: "quiet", "aria-label": `Cancel the turn of ${plain(turn.client)} on ${plain(turn.model)}` })),
    ],
    turns,
    (turn) => turn.id,
  );
}

function cluster(told) {
  return [
    !told.redis && h("p", { class: "error" }, "Redis does not answer: this is the last that was known."),
    table("Gateways of the cluster", REPLICAS, told.replicas, (one) => one.id),
    told.left_off > 0 && h("p", { class: "muted" }, `${count(told.left_off)} more are not shown.`),
  ];
}

const REPLICAS = [
  col("Gateway", (one) => [code(one.id), one.here && " this one"]),
  path("Address", (one) => plain(one.address)),
  col("State", (one) => badge(one.state, one.state === "ready" ? "good" : "warn")),
  col("Version", (one) => plain(one.version)),
  num("Parked", (one) => count(one.parked)),
  num("Since", (one) => since(one.since)),
];

function lastError(error) {
  return h(
    "section",
    { class: "panel trouble", "data-key": "error" },
    h("h2", null, "Last error"),
    h("p", { class: "error" }, prose(error.message)),
    error.hint && h("p", null, prose(error.hint)),
    h(
      "p",
      { class: "muted" },
      when(error.at),
      [error.status, error.code, error.client, error.model, error.path].filter(Boolean).map((one) => ` · ${plain(one)}`),
    ),
  );
}

function account(told) {
  if (!told) return empty("Not asked yet.");
  if (!told.known) return empty("What is left of the plan is not known.", prose(told.reason));
  const { plan, period } = told;
  return [
    h("p", { class: "sentence" }, plain(plan?.name ?? "Plan"), period?.ends_at && ` · starts again on ${date(period.ends_at)} (${plural(Math.ceil(period.days_left), "day")})`),
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
    period?.ends_at && h("p", { class: "unseen" }, `Reset: ${moment(period.ends_at)}`),
  ];
}

/** The last minute as a line. */
function curve() {
  const width = 120;
  const height = 22;
  const top = Math.max(1, ...speeds);
  const points = speeds.map((speed, index) => {
    const x = width - (speeds.length - 1 - index) * (width / (SECONDS - 1));
    return `${x.toFixed(1)},${(height - 2 - (speed / top) * (height - 4)).toFixed(1)}`;
  });
  return svg(
    "svg",
    { class: "curve", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Tokens per second in the last minute" },
    svg("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1 }),
    svg("polyline", { points: points.join(" ") }),
  );
}
