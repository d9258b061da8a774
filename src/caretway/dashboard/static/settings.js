// Settings: changed settings first, then all others by group, with a search. Contains Health and Record.

import { change } from "./api.js";
import { announce, badge, button, code, empty, h, prose, renew, small } from "./dom.js";
import { health } from "./health.js";
import { record } from "./record.js";
import { fetched } from "./view.js";
import { plain } from "./words.js";

const PARTS = { "": "Settings", health: "Health", record: "Record" };
const EFFECT = { now: "takes effect at once", restart: "takes effect after a restart" };

export const settings = {
  name: "settings",
  title: "Settings",
  names: (rest) => PARTS[rest],
  open(root, route) {
    const part = PARTS[route.rest] ? route.rest : "";
    const place = h("div", { class: "stack" });
    renew(
      root,
      h(
        "nav",
        { class: "choice", "aria-label": "Parts of the settings" },
        Object.entries(PARTS).map(([name, title]) => h("a", { class: "button", href: name ? `#/settings/${name}` : "#/settings", "aria-current": name === part ? "page" : null }, title)),
      ),
      place,
    );
    return { "": list, health, record }[part].open(place, route);
  },
};

const list = {
  open(root, route) {
    const field = h("input", { type: "search", id: "search", value: route.query.get("q") ?? "", placeholder: "Name, value or words of the help", on: { input: () => view.redraw() } });
    const found = h("div", { class: "stack" });
    renew(root, h("div", { class: "search" }, h("label", { for: "search" }, "Search"), field), found);
    const view = fetched(found, { paths: ["/settings"], on: ["settings"], draw: (told) => draw(told, field.value.trim().toLowerCase(), view.load) });
    return view;
  },
};

function draw(told, search, load) {
  const rows = told.settings.filter((row) => [row.name, row.value, row.help].some((text) => text?.toLowerCase().includes(search)));
  const changed = rows.filter((row) => row.origin !== "default" || (row.changeable && !search));
  const groups = Map.groupBy(
    rows.filter((row) => !changed.includes(row)),
    (row) => (row.advanced ? "Advanced" : row.group),
  );
  return [
    small(told.file ? ["Read from ", code(told.file), "."] : "No settings file is used.", " Flags win over variables, variables over the file. Change one with ", code("caretway config set NAME VALUE"), "."),
    rows.length === 0 && h("section", { class: "panel" }, empty("No setting fits.")),
    changed.length > 0 && h("section", { class: "panel", "data-key": "changed" }, h("h2", null, search ? "Changed" : "Changed, or changeable here"), h("ul", { class: "settings" }, changed.map((row) => entry(row, load)))),
    groups.size > 0 &&
      h(
        "section",
        { class: "panel", "data-key": "all" },
        h("h2", null, "Defaults"),
        [...groups].map(([group, members]) =>
          h(
            "details",
            { class: "entry", open: Boolean(search), "data-key": search ? `found ${group}` : group },
            h("summary", null, h("strong", null, plain(group)), h("span", { class: "muted small" }, ` ${members.length}: ${members.map((row) => row.name).join(", ")}`)),
            h("ul", { class: "settings" }, members.map((row) => entry(row, load))),
          ),
        ),
      ),
  ];
}

function entry(row, load) {
  return h(
    "li",
    { "data-key": row.name },
    h("div", { class: "row spread" }, h("span", { class: "value" }, code(row.name), " ", code(plain(row.value) || "not set"), " ", row.origin !== "default" && badge(plain(row.origin), "good")), h("span", { class: "muted small" }, EFFECT[row.counts] ?? plain(row.counts))),
    small(prose(row.help)),
    row.changeable && editor(row, load),
  );
}

function editor(row, load) {
  const said = h("div", { role: "alert" });
  const form = h(
    "form",
    { on: { submit: (event) => save(event, event.currentTarget.querySelector("textarea").value) } },
    h("label", { for: `edit-${row.name}`, class: "unseen" }, `New value of ${row.name}`),
    h("textarea", { id: `edit-${row.name}`, rows: 2, class: "mono", spellcheck: "false" }, row.value),
    h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Save"), button("Back to the default", (event) => save(event, null))),
    said,
  );
  async function save(event, value) {
    event.preventDefault();
    const answer = event.currentTarget.closest("form").lastElementChild;
    try {
      await change("PUT", `/settings/${row.name}`, { value: value?.trim() ?? null });
      renew(answer);
      announce(`${row.name} is saved.`);
      if (value === null) event.target.closest("form").querySelector("textarea").value = "";
      await load();
    } catch (failure) {
      renew(answer, h("p", { class: "error" }, prose(failure.message)), failure.hint && h("p", null, prose(failure.hint)));
    }
  }
  return h("details", { "data-key": `edit-${row.name}` }, h("summary", null, "Change"), form);
}
