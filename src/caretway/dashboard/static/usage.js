// Usage: tokens and money by day, model, key and client; what sessions saved; budgets.

import { code, col, empty, figure, figures, h, num, panel, small, table } from "./dom.js";
import { KINDS, days, parts } from "./plot.js";
import { bar, fetched } from "./view.js";
import { compact, count, date, moment, money, plain, plural, UNKNOWN } from "./words.js";

const PERIODS = { today: "Today", week: "Week", month: "Month", all: "All" };
const GROUPS = { model: "By model", key: "By key", client: "By client" };

export const usage = {
  name: "usage",
  title: "Usage",
  open(root, route) {
    const period = PERIODS[route.query.get("period")] ? route.query.get("period") : "week";
    const path = (by) => `/usage?period=${period}&by=${by}`;
    return fetched(root, {
      paths: ["day", ...Object.keys(GROUPS)].map(path),
      on: ["usage"],
      draw: (daily, ...groups) => draw(period, daily, groups),
    });
  },
};

function draw(period, daily, groups) {
  const { total } = daily;
  const choice = h(
    "div",
    { class: "choice", role: "group", "aria-label": "Period" },
    Object.entries(PERIODS).map(([name, title]) => h("a", { class: "button", href: `#/usage?period=${name}`, "aria-current": name === period ? "true" : null }, title)),
  );
  if (!daily.ledger) return [choice, panel(null, empty("The ledger is switched off.", "Switch it on with ", code("ledger"), " in the settings file."))];
  if (!total || (total.responses === 0 && total.refused === 0)) return [choice, panel(null, empty("Nothing was used in this time.", "Every answer counts from now on.")), budgetPanel(daily.budgets)];
  return [
    choice,
    panel(
      null,
      figures(
        figure("Tokens", compact(total.tokens), `${compact(total.output)} output`),
        figure("Input", compact(total.read), percent(total.cached_share, "cached")),
        figure("Saved by sessions", compact(total.saved), percent(total.saved_share, "less input")),
        figure("Cost", money(total.cents), total.unpriced > 0 ? `${plural(total.unpriced, "run")} without a price` : "at list price"),
        figure("Responses", count(total.responses), total.failed + total.refused > 0 ? `${count(total.failed)} failed, ${count(total.refused)} refused` : "none failed"),
      ),
    ),
    panel("By day", legend(), days(daily.rows), asTable("day", daily.rows, "Day")),
    h(
      "div",
      { class: "columns" },
      groups.map((told) => panel(GROUPS[told.by], told.rows.length ? [parts(told.rows), asTable(told.by, told.rows, GROUPS[told.by].slice(3))] : empty("Nothing."))),
    ),
    h("div", { class: "columns" }, savedPanel(total, daily.replays), budgetPanel(daily.budgets)),
    daily.unpriced.length > 0 &&
      small("Without a price (dollars for a million tokens, in the settings file): ", daily.unpriced.map((one) => [code(plain(one)), " "])),
    daily.prices?.source && small(`Prices: ${plain(daily.prices.source)}${daily.prices.as_of ? `, as of ${plain(daily.prices.as_of)}` : ""}.`),
  ];
}

function savedPanel(total, replays) {
  return panel(
    "Saved by sessions",
    h("p", null, `${count(total.saved)} tokens were not sent again, because the conversation was still known. `, replayed(replays)),
    replays.length > 0 &&
      table(
        "Why conversations were told again",
        [
          col("Why a conversation was told again", (row) => plain(row.reason)),
          num("Responses", (row) => count(row.responses)),
          num("Tokens", (row) => compact(row.input)),
        ],
        replays,
        (row) => row.reason,
      ),
  );
}

function replayed(rows) {
  const responses = rows.reduce((sum, row) => sum + row.responses, 0);
  return responses ? `${plural(responses, "response")} began with the whole history instead.` : "No conversation had to be told again.";
}

const percent = (share, of) => (share == null ? "" : `${Math.round(100 * share)} % ${of}`);

function legend() {
  return h("ul", { class: "legend", "aria-label": "Colours" }, KINDS.map((kind) => h("li", null, h("span", { class: kind.class }), kind.title)));
}

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
            budget.resets_at && h("p", { class: "muted small", title: moment(budget.resets_at) }, `starts again on ${date(budget.resets_at)}`),
          ),
        ),
  );
}
