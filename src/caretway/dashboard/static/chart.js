// SVG plots that fill the available width: the last hour, columns over time with a line, rows by group, and the lane of
// a step on a conversation's axis.

import { h, svg } from "./dom.js";
import { compact, count, lasted, minute, money, plain, shortGroup } from "./words.js";

export const KINDS = [
  { name: "cache_read", title: "cached", class: "cached" },
  { name: "cache_write", title: "written to the cache", class: "written" },
  { name: "input", title: "fresh", class: "fresh" },
  { name: "output", title: "output", class: "output" },
];
const SAVED = { name: "saved", title: "saved by sessions", class: "saved" };
const LEFT = 50;

const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.clientWidth !== target.drawnFor) target.fit();
});

/** A box that draws its content for its width. `renew` draws it again for other `data`. */
function fitted(data, draw) {
  const box = h("div");
  Object.assign(box, { data, draw, fit });
  widths.observe(box);
  return box;
}

function fit() {
  this.drawnFor = this.clientWidth;
  if (this.drawnFor) this.replaceChildren(...[this.draw(this.drawnFor)].flat());
}

const sum = (row) => KINDS.reduce((all, kind) => all + (row[kind.name] ?? 0), 0);
const box = (width, height, given, ...children) => svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, ...given }, children);
const rect = (name, x, y, width, height, ...children) => svg("rect", { class: name, x: x.toFixed(1), y: y.toFixed(1), width: width.toFixed(1), height: Math.max(height, 0).toFixed(1) }, children);
const line = (name, x1, y1, x2, y2) => svg("line", { class: name, x1, y1, x2, y2 });
const label = (x, y, text, anchor, name) => svg("text", { class: name, x, y, "text-anchor": anchor }, text);

/** The smallest round number that is at least `value`. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 4, 5, 10].map((n) => n * power).find((n) => n >= value);
}

export function legend(...more) {
  return h("ul", { class: "legend", "aria-label": "Colours" }, [...KINDS, ...more].map((kind) => h("li", null, h("span", { class: kind.class }), kind.title)));
}

export const usageLegend = () => legend(SAVED, { title: "cost", class: "costs" });

// ---- the last hour

const BAND = 62;
const TITLE = 19;
const AXIS = 20;
const BANDS = [
  { title: "Answers", total: (all) => count(all("answers")), top: (one) => one.answers, unit: count, bars: () => [["answers", "fresh"]] },
  { title: "Tokens", total: (all) => compact(KINDS.reduce((n, kind) => n + all(kind.name), 0)), top: sum, unit: compact, bars: () => KINDS.map((kind) => [kind.name, kind.class]) },
  { title: "Time to first token, p50 to p95", total: () => "", top: (one) => one.first_p95 ?? 0, unit: lasted, range: ["first_p50", "first_p95"] },
  { title: "Errors", total: (all) => count(all("failed") + all("refused")), top: (one) => one.failed + one.refused, unit: count, bars: () => [["failed", "failed"], ["refused", "failed"]] },
];

/** The minute under the cursor, kept across redraws. */
let cursor = null;

export function minuteWords(one) {
  const first = one.first_p50 == null ? "" : `; first token ${lasted(one.first_p50)}, p95 ${lasted(one.first_p95)}`;
  const tokens = KINDS.map((kind) => `${compact(one[kind.name])} ${kind.title}`).join(", ");
  return `${minute(one.at)}: ${count(one.answers)} answers, ${count(one.failed + one.refused)} errors${first}; tokens: ${tokens}`;
}

/** Four plots on one axis, with one cursor. */
export function lastHour(minutes) {
  return fitted(minutes, (width) => {
    const room = width - LEFT - 4;
    const each = room / minutes.length;
    const bottom = BANDS.length * BAND;
    const x = (index) => LEFT + each * index;
    const all = (name) => minutes.reduce((n, one) => n + one[name], 0);
    const bands = BANDS.map((band, number) => {
      const floor = (number + 1) * BAND;
      const high = BAND - TITLE - 4;
      const top = nice(Math.max(...minutes.map(band.top)));
      const y = (value) => (value / top) * high;
      const marks = minutes.map((one, index) => {
        if (band.range) {
          const [low, up] = band.range.map((name) => one[name]);
          return low != null && [rect("spread", x(index) + each * 0.25, floor - y(up), Math.max(each * 0.5, 1), y(up) - y(low)), rect("median", x(index) + 0.5, floor - y(low) - 1, each - 1, 2)];
        }
        let below = 0;
        return band.bars(one).map(([name, kind]) => {
          const value = one[name];
          below += value;
          return value > 0 && rect(kind, x(index) + 0.5, floor - y(below), Math.max(each - 1, 1), Math.max(y(value), 1));
        });
      });
      const total = band.total(all);
      const quiet = minutes.every((one) => !band.top(one));
      return [
        line("grid", LEFT, floor, width - 4, floor),
        label(LEFT, floor - BAND + 14, [svg("tspan", { class: "label" }, band.title), total && svg("tspan", { class: "value", dx: 8 }, total)]),
        !quiet && label(LEFT - 6, floor - high + 4, band.unit(top), "end"),
        marks,
      ];
    });
    const every = width < 500 ? 20 : 10;
    const ticks = minutes.map((one, index) => (one.at / 60) % every === 0 && [line("grid", x(index), 0, x(index), bottom + 3), label(Math.min(x(index), width - 18), bottom + 16, minute(one.at), "middle")]);
    const hair = svg("line", { class: "cursor", y1: 0, y2: bottom });
    const readout = h("p", { class: "readout small" });
    const plot = box(width, bottom + AXIS, { class: "plot hour", role: "slider", tabindex: 0, "aria-label": "The last 60 minutes, minute by minute", "aria-valuemin": 0, "aria-valuemax": minutes.length - 1 }, ticks, bands, hair);
    const show = (index) => {
      const at = index == null ? null : Math.min(minutes.length - 1, Math.max(0, index));
      cursor = at == null ? null : minutes[at].at;
      const one = minutes[at ?? minutes.length - 1];
      hair.setAttribute("visibility", at == null ? "hidden" : "visible");
      const middle = x(at ?? 0) + each / 2;
      hair.setAttribute("x1", middle);
      hair.setAttribute("x2", middle);
      readout.textContent = at == null ? "Point at a minute, or choose it with the arrow keys." : minuteWords(one);
      plot.setAttribute("aria-valuenow", at ?? minutes.length - 1);
      plot.setAttribute("aria-valuetext", minuteWords(one));
    };
    const place = () => {
      const found = minutes.findIndex((one) => one.at === cursor);
      return found < 0 ? null : found;
    };
    plot.addEventListener("pointermove", (event) => show(Math.floor((event.clientX - plot.getBoundingClientRect().left - LEFT) / each)));
    plot.addEventListener("pointerleave", () => show(null));
    plot.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -10, ArrowUp: 10, Home: -Infinity, End: Infinity }[event.key];
      if (!steps) return;
      event.preventDefault();
      show((place() ?? minutes.length - 1) + steps);
    });
    show(place());
    return [plot, readout];
  });
}

// ---- columns over time

const HEIGHT = 220;
const BOTTOM = 20;
const TOP = 10;
const RIGHT = 52;

export function groupWords(row) {
  return `${plain(row.group) || "none"}: ${[...KINDS, SAVED].map((kind) => `${count(row[kind.name])} ${kind.title}`).join(", ")}; ${money(row.cents)}`;
}

/** One column of tokens per time slot, with saved tokens on top, and the cost as a line on the same axis. */
export function columns(slots, rows) {
  const known = new Map(rows.map((row) => [row.group, row]));
  const filled = slots.map((group) => known.get(group) ?? { group, cents: 0 });
  const whole = (row) => sum(row) + (row.saved ?? 0);
  const top = nice(Math.max(1, ...filled.map(whole)));
  const dear = nice(Math.max(1, ...filled.map((row) => row.cents ?? 0)));
  return fitted(rows, (width) => {
    const room = HEIGHT - TOP - BOTTOM;
    const y = (value) => TOP + room - (value / top) * room;
    const costs = (cents) => TOP + room - (cents / dear) * room;
    const right = width - RIGHT;
    const each = (right - LEFT) / Math.max(filled.length, 1);
    const thick = Math.max(2, Math.min(46, each * 0.7));
    const every = Math.ceil(52 / each);
    const middle = (index) => LEFT + each * (index + 0.5);
    const lines = [0, 0.5, 1].map((part) => [
      line("grid", LEFT, y(part * top), right, y(part * top)),
      label(LEFT - 6, y(part * top) + 4, compact(part * top), "end"),
      label(right + 6, y(part * top) + 4, money(part * dear), "start"),
    ]);
    const bars = filled.map((row, index) => {
      let below = 0;
      const pieces = [...KINDS, SAVED].map((kind) => {
        const value = row[kind.name] ?? 0;
        below += value;
        return value > 0 && rect(kind.class, middle(index) - thick / 2, y(below), thick, Math.max((value / top) * room, 0.5));
      });
      const text = index % every === 0 && label(middle(index), HEIGHT - 4, shortGroup(row.group), "middle");
      return svg("g", null, svg("title", null, groupWords(row)), rect("hit", LEFT + each * index, TOP, each, room), pieces, text);
    });
    const points = filled.map((row, index) => (row.cents == null ? null : [middle(index), costs(row.cents)])).filter(Boolean);
    return box(
      width,
      HEIGHT,
      { class: "plot", role: "img", "aria-label": `Tokens and cost. ${filled.filter(whole).map(groupWords).join(". ")}` },
      lines,
      bars,
      svg("polyline", { class: "cost", points: points.map((point) => point.join(",")).join(" ") }),
      points.map(([cx, cy]) => svg("circle", { class: "cost", cx, cy, r: 2.5 })),
    );
  });
}

/** One row per group, the largest first. */
export function parts(rows) {
  const shown = rows.slice(0, 8);
  const top = Math.max(1, ...shown.map(sum));
  return h(
    "ul",
    { class: "bars" },
    shown.map((row) =>
      h(
        "li",
        { title: groupWords(row) },
        h("div", { class: "row spread" }, h("span", null, plain(row.group) || "none"), h("span", { class: "number" }, `${compact(sum(row))} · ${money(row.cents)}`)),
        stack(KINDS.map((kind) => [kind.class, (row[kind.name] ?? 0) / top])),
      ),
    ),
  );
}

/** A horizontal bar of pieces, each a share of the whole width. */
export function stack(pieces) {
  let x = 0;
  return svg(
    "svg",
    { class: "stackbar", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" },
    pieces.map(([name, share]) => {
      const piece = share > 0 && svg("rect", { class: name, x, y: 0, width: share * 100, height: 1 });
      x += share * 100;
      return piece;
    }),
  );
}

// ---- a conversation's axis

const SQUEEZE = 0.25;
const SHORT_S = 5;

/** Maps a conversation's seconds to 0 to 1. Long pauses between requests are shortened. */
export function axis(steps, until) {
  const worked = steps.reduce((all, step) => all + step.total_ms / 1000 + (step.waited_for.length ? step.waited_s : 0), 0);
  const longest = Math.max(SHORT_S, worked * SQUEEZE);
  const marks = [];
  let at = 0;
  for (const step of steps) {
    const cut = step.waited_for.length === 0 && step.waited_s > longest;
    marks.push([step.started_at - step.waited_s, at, cut]);
    at += cut ? longest : step.waited_s;
    marks.push([step.started_at, at, false]);
    at += step.total_ms / 1000;
  }
  const last = steps.at(-1);
  marks.push([last?.at ?? 0, at, false]);
  if (until) marks.push([until, (at += Math.max(0, until - last.at)), false]);
  const whole = Math.max(at, 0.001);
  return {
    whole,
    place(t) {
      const after = marks.findIndex(([when]) => when >= t);
      if (after === 0 || marks.length < 2) return 0;
      const [[t0, x0], [t1, x1]] = after < 0 ? marks.slice(-2) : [marks[after - 1], marks[after]];
      return (t1 > t0 ? x0 + ((Math.min(t, t1) - t0) / (t1 - t0)) * (x1 - x0) : x1) / whole;
    },
    cut: (step) => marks.some(([when, , cut]) => cut && when === step.started_at - step.waited_s),
  };
}

/** The wait before a step and the step itself, on the axis of its conversation. */
export function lane(step, on, words) {
  const first = step.first_ms == null ? step.at : Math.min(step.at, step.started_at + step.first_ms / 1000);
  const pieces = [
    [step.waited_for.length ? "awaits" : on.cut(step) ? "gap cut" : "gap", step.started_at - step.waited_s, step.started_at],
    [step.error ? "failed" : "thinks", step.started_at, first],
    [step.error ? "failed" : "speaks", first, step.at],
  ];
  return svg(
    "svg",
    { class: "lane", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": words },
    svg("title", null, words),
    pieces.map(([name, from, to]) => {
      const [x0, x1] = [on.place(from) * 1000, on.place(to) * 1000];
      return to > from && svg("rect", { class: name, x: x0, y: name.startsWith("gap") ? 4 : 0, width: Math.max(x1 - x0, 1.5), height: name.startsWith("gap") ? 2 : 10 });
    }),
  );
}

