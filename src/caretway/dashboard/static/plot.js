// Plots as SVG, drawn as wide as there is room: columns by day, and rows by group.

import { h, svg } from "./dom.js";
import { compact, count, money, plain } from "./words.js";

export const KINDS = [
  { name: "cache_read", title: "cached", class: "cached" },
  { name: "cache_write", title: "written to the cache", class: "written" },
  { name: "input", title: "fresh", class: "fresh" },
  { name: "output", title: "output", class: "output" },
];
const HEIGHT = 190;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;

const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.clientWidth !== target.drawnFor) target.fit();
});

/** A box whose content is drawn for its width. */
function fitted(draw) {
  const box = h("div");
  box.draw = draw;
  box.fit = fit;
  widths.observe(box);
  return box;
}

function fit() {
  this.drawnFor = this.clientWidth;
  this.replaceChildren(this.draw(this.drawnFor));
}

const sum = (row) => KINDS.reduce((all, kind) => all + (row[kind.name] ?? 0), 0);
const told = (row) => `${plain(row.group)}: ${KINDS.map((kind) => `${count(row[kind.name])} ${kind.title}`).join(", ")}; ${money(row.cents)}`;

/** Columns, one for each day. */
export function days(rows) {
  const top = nice(Math.max(1, ...rows.map(sum)));
  return fitted((width) => {
    const room = HEIGHT - TOP - BOTTOM;
    const y = (value) => TOP + room - (value / top) * room;
    const each = (width - LEFT) / Math.max(rows.length, 1);
    const thick = Math.max(2, Math.min(46, each * 0.7));
    const every = Math.ceil(52 / each);
    const lines = [0, 0.5, 1].map((part) => [
      svg("line", { class: "grid", x1: LEFT, x2: width, y1: y(part * top), y2: y(part * top) }),
      svg("text", { x: LEFT - 6, y: y(part * top) + 4, "text-anchor": "end" }, compact(part * top)),
    ]);
    const columns = rows.map((row, index) => {
      const middle = LEFT + each * (index + 0.5);
      let below = 0;
      const pieces = KINDS.map((kind) => {
        const value = row[kind.name] ?? 0;
        const height = (value / top) * room;
        below += value;
        return value > 0 && svg("rect", { class: kind.class, x: middle - thick / 2, y: y(below), width: thick, height: Math.max(height, 0.5) });
      });
      const label = index % every === 0 && svg("text", { x: Math.min(middle, width - 20), y: HEIGHT - 4, "text-anchor": "middle" }, shortDay(row.group));
      return svg("g", null, svg("title", null, told(row)), pieces, label);
    });
    return svg("svg", { class: "plot", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `Tokens by day. ${rows.map(told).join(". ")}` }, lines, columns);
  });
}

/** Rows, one for each group, the largest first. */
export function parts(rows) {
  const shown = rows.slice(0, 12);
  const top = Math.max(1, ...shown.map(sum));
  const step = 38;
  return fitted((width) =>
    svg(
      "svg",
      { class: "plot", width, height: shown.length * step, viewBox: `0 0 ${width} ${shown.length * step}`, role: "img", "aria-label": shown.map(told).join(". ") },
      shown.map((row, index) => {
        const name = plain(row.group) || "none";
        const room = Math.max(8, Math.floor((width - 130) / 7));
        let x = 0;
        return svg(
          "g",
          null,
          svg("title", null, told(row)),
          svg("text", { class: "label", x: 0, y: index * step + 13 }, name.length > room ? `${name.slice(0, room - 1)}…` : name),
          svg("text", { x: width - 56, y: index * step + 13, "text-anchor": "end" }, compact(sum(row))),
          svg("text", { x: width, y: index * step + 13, "text-anchor": "end" }, money(row.cents)),
          KINDS.map((kind) => {
            const length = ((row[kind.name] ?? 0) / top) * width;
            const piece = length > 0 && svg("rect", { class: kind.class, x, y: index * step + 19, width: length, height: 9 });
            x += length;
            return piece;
          }),
        );
      }),
    ),
  );
}

/** A round number that is not smaller. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((n) => n * power).find((n) => n >= value);
}

function shortDay(group) {
  const at = new Date(`${group}T12:00:00`);
  return Number.isNaN(at.getTime()) ? plain(group) : at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
