// Settings: each with its value, where that comes from and when a change counts. Some can be changed here.

import { change } from "./api.js";
import { announce, badge, button, code, empty, h, panel, prose, renew, small } from "./dom.js";
import { fetched } from "./view.js";
import { plain } from "./words.js";

const COUNTS = { now: "counts at once", "new conversations": "counts for new conversations", restart: "counts after a restart" };

export const settings = {
  name: "settings",
  title: "Settings",
  open(root, route) {
    const field = h("input", { type: "search", id: "search", value: route.query.get("q") ?? "", placeholder: "Name, value or words of the help", on: { input: () => view.redraw() } });
    const only = (id) => h("input", { type: "checkbox", id, on: { change: () => view.redraw() } });
    const changed = only("changed");
    const advanced = only("advanced");
    const found = h("div", { class: "stack" });
    renew(root, h("div", { class: "row" }, h("div", { class: "search" }, h("label", { for: "search" }, "Search"), field), h("span", null, changed, " ", h("label", { for: "changed" }, "Only changed ones")), h("span", null, advanced, " ", h("label", { for: "advanced" }, "Advanced ones too"))), found);
    const view = fetched(found, {
      paths: ["/settings"],
      on: ["settings"],
      draw: (told) => draw(told, { search: field.value.trim().toLowerCase(), changed: changed.checked, advanced: advanced.checked }, view.load),
    });
    return view;
  },
};

function draw(told, { search, changed, advanced }, load) {
  const rows = told.settings.filter((row) => (!changed || row.origin !== "default") && (advanced || search || changed || !row.advanced) && [row.name, row.value, row.help].some((text) => text?.toLowerCase().includes(search)));
  const groups = Map.groupBy(rows, (row) => row.group);
  return [
    small(told.file ? ["Read from ", code(told.file), "."] : "No settings file is used.", " Flags win over variables, variables over the file."),
    rows.length === 0 && panel(null, empty("No setting fits.")),
    [...groups].map(([group, list]) => h("section", { class: "panel", "data-key": group }, h("h2", null, plain(group)), h("ul", { class: "settings" }, list.map((row) => entry(row, load))))),
  ];
}

function entry(row, load) {
  return h(
    "li",
    { "data-key": row.name },
    h("div", { class: "row spread" }, code(row.name), h("span", { class: "muted small" }, COUNTS[row.counts] ?? plain(row.counts))),
    h("p", { class: "value" }, code(plain(row.value) || "not set"), " ", badge(plain(row.origin), row.origin === "default" ? "" : "good")),
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
