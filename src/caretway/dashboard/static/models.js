// Models: the account's models, and the names that clients requested.

import { badge, code, col, empty, h, num, panel, renew, small, table } from "./dom.js";
import { fetched, when } from "./view.js";
import { compact, count, plain, UNKNOWN } from "./words.js";

export const models = {
  name: "models",
  title: "Models",
  open(root) {
    const field = h("input", { type: "search", id: "search", placeholder: "Name or alias", on: { input: () => view.redraw() } });
    const found = h("div", { class: "stack" });
    renew(root, h("div", { class: "search" }, h("label", { for: "search" }, "Search"), field), found);
    const view = fetched(found, { paths: ["/models"], on: ["models", "settings"], draw: (told) => draw(told, field.value.trim().toLowerCase()) });
    return view;
  },
};

function draw(told, search) {
  const also = Map.groupBy(told.data, (model) => model.stands_for ?? "");
  const rows = (also.get("") ?? [])
    .map((model) => ({ ...model, aliases: [...model.aliases, ...(also.get(model.id) ?? []).map((one) => one.id)] }))
    .filter((model) => [model.id, model.name, ...model.aliases].some((name) => name?.toLowerCase().includes(search)));
  const own = Object.entries(told.aliases);
  return [
    panel(
      null,
      rows.length
        ? table("Models of this account", COLUMNS, rows, (row) => row.id)
        : told.data.length
          ? empty("No model fits.")
          : empty("No model is listed.", "Sign in with ", code("caretway login"), ", or look at ", h("a", { href: "#/settings/health" }, "Health"), "."),
    ),
    panel(
      "Names of your own",
      own.length
        ? h("ul", { class: "plainlist" }, own.map(([name, stands]) => h("li", null, code(name), " → ", code([stands].flat().join(" | ")))))
        : empty("None.", "Set some in the ", h("a", { href: "#/settings?q=model_aliases" }, "settings"), "."),
    ),
    panel(
      "What clients asked for",
      told.asked.length === 0
        ? empty("Nobody asked yet.")
        : table(
            "Names that clients asked for, and what answered",
            [
              col("Asked for", (row) => code(row.asked)),
              col("Got", (row) => (row.refused ? badge("refused", "bad") : row.taken === row.asked ? "the same" : code((row.taken) || UNKNOWN))),
              num("Times", (row) => count(row.count)),
              num("Last", (row) => when(row.last_at)),
            ],
            told.asked,
            (row) => `${row.asked} ${row.taken}`,
          ),
      small(told.strict ? "Names that match no model are refused (strict_models)." : "A name that is not listed gets the nearest model of its family; strict_models refuses it instead."),
    ),
  ];
}

const COLUMNS = [
  col("Model", (row) => [code(row.id), row.name && row.name !== row.id && h("div", { class: "muted small" }, plain(row.name))]),
  num("Window", (row) => compact(row.context)),
  num("Max mode", (row) => compact(row.max_context)),
  col("Takes", (row) => h("span", { class: "row tight" }, row.images && badge("images"), row.reasoning && badge("thinks", "good"), !row.images && !row.reasoning && UNKNOWN)),
  col("Parameters", (row) => (row.parameters.length ? row.parameters.map((one) => h("div", { class: "small" }, h("span", { class: "muted" }, `${plain(one.name)}: `), one.values.map(plain).join(", "))) : UNKNOWN)),
  col("Also called", (row) => (row.aliases.length ? h("span", { class: "small" }, row.aliases.map(plain).join(", ")) : UNKNOWN)),
];
