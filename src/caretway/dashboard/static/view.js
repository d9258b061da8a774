// Helpers of the tabs: a view that fetches, draws, and fetches again after a change; times; failures.

import { get } from "./api.js";
import { button, h, prose, renew } from "./dom.js";
import { ago, moment, span } from "./words.js";

export const closed = {};
const APART_MS = 2000;

/** A failure with its remedy. */
export function trouble(failure, again) {
  return h(
    "div",
    { class: "panel trouble", role: "alert" },
    h("p", { class: "error" }, prose(failure.message)),
    failure.hint && h("p", null, prose(failure.hint)),
    again && button("Try again", again),
  );
}

/** Shows `draw(data)` in `root`. `paths` are fetched together; a name of `on` in `changed` fetches again, at most every
 * two seconds. `without`: the content below a failure. */
export function fetched(root, { paths, on, draw, without }) {
  let leaving = new AbortController();
  let data = null;
  let failed = null;
  let timer = 0;
  let loaded = 0;
  renew(root, h("p", { class: "muted", "aria-busy": "true" }, "Loading …"));

  async function load() {
    leaving.abort();
    leaving = new AbortController();
    clearTimeout(timer);
    timer = 0;
    loaded = performance.now();
    const { signal } = leaving;
    try {
      const list = typeof paths === "function" ? paths() : paths;
      data = await Promise.all(list.map((path) => get(path, signal)));
      failed = null;
    } catch (failure) {
      failed = failure;
    }
    if (!signal.aborted) redraw();
  }

  function redraw() {
    if (failed) renew(root, trouble(failed, load), without?.());
    else if (data) renew(root, draw(...data));
  }

  function soon() {
    if (!timer) timer = setTimeout(load, Math.max(0, loaded + APART_MS - performance.now()));
  }

  load();
  return {
    load,
    redraw,
    changed: (what) => (what.length === 0 || what.some((one) => on.includes(one))) && soon(),
    close: () => (clearTimeout(timer), leaving.abort()),
  };
}

export const conversationLink = (id) => `#/conversations/${encodeURIComponent(id)}`;

/** A point in time, as "3 min ago"; the page's timer keeps it current. */
export function when(t) {
  if (t == null) return "–";
  const iso = new Date(t * 1000).toISOString();
  return h("time", { datetime: iso, "data-at": t, "data-kind": "ago", title: moment(t) }, ago(Date.now() / 1000 - t));
}

/** The time elapsed since `t`. */
export function since(t) {
  const iso = new Date(t * 1000).toISOString();
  return h("time", { datetime: iso, "data-at": t, title: moment(t) }, span(Date.now() / 1000 - t));
}

/** A bar for a share from 0 to 1, as a `meter`: the page forbids inline styles. */
export function bar(share, label, tone) {
  const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
  return h("meter", { class: tone ?? (share >= 1 ? "bad" : share >= 0.8 ? "warn" : "good"), min: 0, max: 100, value: percent, "aria-label": label }, `${percent} %`);
}
