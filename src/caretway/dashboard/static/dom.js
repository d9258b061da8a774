// Creates and updates elements. All content passes through here as text, never as HTML.

import { plain } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element. `on` has its listeners; true sets an attribute without a value; null and false omit it. */
export function h(tag, given, ...children) {
  return filled(document.createElement(tag), given, children);
}

export function svg(tag, given, ...children) {
  return filled(document.createElementNS(SVG, tag), given, children);
}

function filled(element, given, children) {
  for (const [name, value] of Object.entries(given ?? {})) {
    if (name === "on") listen(element, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...nodes(children));
  return element;
}

/** Converts children to nodes: flattens lists and drops only null, false and "". */
export function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child != null && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

// Listeners are looked up at each event, so that an updated element uses its new ones.
function listen(element, listeners) {
  element.listeners = listeners;
  for (const kind of Object.keys(listeners)) element.addEventListener(kind, heard);
}

function heard(event) {
  event.currentTarget.listeners?.[event.type]?.(event);
}

/** Updates the children of `parent` to `wanted`. Equal nodes stay, and with them focus, selection and open details. */
export function renew(parent, ...wanted) {
  const list = nodes(wanted);
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let here = parent.firstChild;
  for (const next of list) {
    const twin = next.dataset?.key ? keyed.get(next.dataset.key) : here;
    if (twin && alike(twin, next)) {
      if (twin !== here) parent.insertBefore(twin, here);
      else here = here.nextSibling;
      become(twin, next);
    } else {
      parent.insertBefore(next, here);
    }
  }
  while (here) {
    const after = here.nextSibling;
    here.remove();
    here = after;
  }
}

function alike(old, next) {
  return old.nodeName === next.nodeName && !old.draw === !next.draw && (old.dataset?.key ?? "") === (next.dataset?.key ?? "");
}

function become(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (next.listeners) {
    for (const kind of Object.keys(next.listeners)) if (!old.listeners?.[kind]) old.addEventListener(kind, heard);
  }
  old.listeners = next.listeners;
  if (old.nodeName === "PROGRESS" || old.nodeName === "METER") old.value = next.value;
  if (old.nodeName === "TEXTAREA") return;
  if (next.draw) {
    const same = old.data === next.data;
    Object.assign(old, { data: next.data, draw: next.draw });
    if (!same) old.fit();
    return;
  }
  renew(old, ...next.childNodes);
}

export const col = (title, cell) => ({ title, cell });
export const path = (title, cell) => ({ title, cell, kind: "path" });
export const who = (title, cell) => ({ title, cell, kind: "who" });
export const num = (title, cell) => ({ title, cell, kind: "number" });

const MANY = 8;

/** A table that becomes a list of cards where it does not fit. Roles are explicit, because CSS `display` removes them.
 * `hrefOf`: the target of a row; the link in the first cell fills the row. */
export function table(caption, columns, rows, keyOf, hrefOf) {
  const filled = (row, column, index) => {
    const href = index === 0 && hrefOf?.(row);
    return href ? h("a", { href, class: "whole" }, column.cell(row)) : h("div", null, column.cell(row));
  };
  const head = (column) => h("th", { role: "columnheader", scope: "col", class: column.kind }, column.title || h("span", { class: "unseen" }, "Actions"));
  const line = (row, index) =>
    h(
      "tr",
      { role: "row", "data-key": keyOf ? keyOf(row) : String(index), class: hrefOf?.(row) ? "linked" : null },
      columns.map((column, place) => h("td", { role: "cell", class: column.kind, "data-title": column.title || null }, filled(row, column, place))),
    );
  return h(
    "div",
    { class: columns.length > MANY ? "fit many" : "fit" },
    h(
      "table",
      { role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(head))),
      h("tbody", { role: "rowgroup" }, rows.map(line)),
    ),
  );
}

export const code = (text) => h("code", null, plain(text));
export const small = (...children) => h("p", { class: "muted small" }, children);

/** A sentence of the gateway; text in backticks becomes code. */
export function prose(text) {
  return plain(text)
    .split("`")
    .map((part, index) => (index % 2 ? code(part) : part));
}

export function panel(title, ...children) {
  return h("section", { class: "panel" }, title && h("h2", null, title), children);
}

/** The placeholder of an empty view, with the next step. */
export function empty(title, ...how) {
  return h("div", { class: "empty" }, h("p", { class: "lead" }, title), how.length > 0 && h("p", null, how));
}

export function badge(text, tone) {
  return h("span", { class: `badge ${tone ?? ""}` }, text);
}

/** A button. `more`: its class, or attributes. */
export function button(text, click, more) {
  return h("button", { type: "button", ...(typeof more === "string" ? { class: more } : more), on: { click } }, text);
}

export function figure(title, value, more) {
  return h("div", { class: "figure" }, h("dt", null, title), h("dd", null, value), more && h("dd", { class: "more" }, more));
}

export function figures(...children) {
  return h("dl", { class: "figures" }, children);
}

/** A text with a button that copies it. */
export function copyable(text, label) {
  const copier = button("Copy", copy, { class: "quiet", "aria-label": `Copy ${label}` });
  async function copy() {
    const done = await navigator.clipboard.writeText(text).then(
      () => "Copied",
      () => "Select and copy",
    );
    const shown = document.querySelector(`[data-copy="${CSS.escape(label)}"] button`) ?? copier;
    shown.textContent = done;
    announce(done);
    setTimeout(() => (shown.textContent = "Copy"), 1500);
  }
  return h("div", { class: text.includes("\n") ? "copyable tall" : "copyable", "data-copy": label }, h("pre", { tabindex: "0", "aria-label": label }, text), copier);
}

/** Announces a text to screen readers. */
export function announce(text) {
  document.getElementById("told").textContent = text;
}

/** Asks for confirmation before an action that cannot be undone. */
export function sure(question, doIt) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-labelledby": "question", on: { close: () => (dialog.remove(), resolve(dialog.returnValue === "yes")) } },
      h("p", { id: "question" }, question),
      h(
        "div",
        { class: "row" },
        button(doIt, () => dialog.close("yes"), "danger"),
        button("No, go back", () => dialog.close("no")),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
