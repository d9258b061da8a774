// Shows a model's streamed text: paragraphs, headings, lists, quotes, fenced code. All text goes into text nodes, HTML
// is not interpreted, and blocks are not nested, so neither depth nor length can block the page.

import { h } from "./dom.js";

const MAX_BLOCKS = 1000;
/** The maximum length of one block: the layout of a longer block is too slow. */
const MAX_BLOCK = 10000;
/** The number of characters added in one frame. */
const AT_ONCE = 30000;
const MAX_LEVEL = 5;
/** The maximum length of a line that is searched for bold words and code. */
const MAX_INLINE = 2000;
const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,30})/;
const HEADING = /^#{1,6}\s+/;
const ITEM = /^(\s{0,40})(?:[-*+]|(\d{1,9})[.)])\s+/;
const QUOTE = /^\s{0,3}>[>\s]{0,100}/;
const INLINE = /(`[^`]+`|\*\*[^*]+\*\*)/;

export class Words {
  constructor(name = "") {
    this.node = h("div", { class: `words ${name}`, dir: "auto" });
    this.pieces = [];
    this.waiting = "";
    this.frame = 0;
    this.partial = "";
    this.rest = "";
    this.tail = h("span");
    this.block = null;
    this.fence = "";
    this.blocks = 0;
    this.chars = 0;
  }

  get text() {
    return this.pieces.join("");
  }

  add(text) {
    this.pieces.push(text);
    this.waiting += text;
    this.frame ||= requestAnimationFrame(() => this.flush());
  }

  /** Shows the rest of the text after the stream has ended. */
  async end() {
    cancelAnimationFrame(this.frame);
    while (this.waiting) {
      this.take(AT_ONCE);
      if (this.waiting) await new Promise((done) => setTimeout(done));
    }
    this.tail.remove();
    if (this.partial) this.line(this.partial, "");
    this.partial = "";
  }

  flush() {
    this.frame = 0;
    this.take(AT_ONCE);
    if (this.waiting) this.frame = requestAnimationFrame(() => this.flush());
  }

  take(most) {
    const lines = (this.partial + this.waiting.slice(0, most)).split("\n");
    this.waiting = this.waiting.slice(most);
    this.tail.remove();
    this.partial = lines.pop();
    lines.forEach((line, index) => {
      if (this.blocks <= MAX_BLOCKS) this.line(line, "\n");
      else if (index === lines.length - 1 || this.rest.length > MAX_BLOCK) this.write(this.all(`${line}\n`), true);
      else this.rest += `${line}\n`;
    });
    while (this.partial.length > MAX_BLOCK) {
      this.line(this.partial.slice(0, MAX_BLOCK), "");
      this.partial = this.partial.slice(MAX_BLOCK);
    }
    this.tail.textContent = this.partial;
    (this.block ?? this.node).append(this.tail);
  }

  /** Joins lines to write them together, once there are too many blocks. */
  all(line) {
    const rest = this.rest + line;
    this.rest = "";
    return rest;
  }

  /** Adds a complete line. */
  line(line, end) {
    if (this.fence) {
      if (line.trim().startsWith(this.fence) && !line.trim().replaceAll(this.fence[0], "")) this.fence = this.block = null;
      else this.write(line + end, true);
      return;
    }
    if (this.blocks > MAX_BLOCKS) return this.write(line + end, true);
    const fence = FENCE.exec(line);
    if (fence) {
      this.fence = fence[1];
      this.open("pre", { tabindex: "0", "aria-label": fence[2] ? `Code: ${fence[2]}` : "Code" });
      return;
    }
    if (!line.trim()) {
      this.block = null;
      return;
    }
    const item = ITEM.exec(line);
    const heading = HEADING.exec(line);
    const quote = QUOTE.exec(line);
    const before = item ?? heading ?? quote;
    const rest = before ? line.slice(before[0].length) : line;
    if (item) this.open("p", { class: `item level${Math.min(MAX_LEVEL, item[1].length >> 1)}` }, item[2] ? `${item[2]}. ` : "• ");
    else if (heading) this.open("p", { class: "heading" });
    else if (quote && this.block?.className !== "quote") this.open("p", { class: "quote" });
    else if (!this.block) this.open("p");
    this.write(rest + end, false);
    if (heading) this.block = null;
  }

  open(tag, given, ...children) {
    this.block = h(tag, { dir: "auto", ...given }, children);
    this.node.append(this.block);
    this.blocks += 1;
    this.chars = 0;
  }

  write(text, bare) {
    for (let at = 0; at < text.length; at += MAX_BLOCK) this.piece(text.slice(at, at + MAX_BLOCK), bare);
  }

  piece(text, bare) {
    if (!this.block || this.chars + text.length > 2 * MAX_BLOCK) {
      const { nodeName, className } = this.block ?? {};
      this.open(nodeName ?? "p", className ? { class: className } : {});
    }
    this.chars += text.length;
    const parts = bare || text.length > MAX_INLINE ? [text] : text.split(INLINE);
    parts.forEach((part, index) => {
      if (index % 2) this.block.append(part[0] === "`" ? h("code", null, part.slice(1, -1)) : h("strong", null, part.slice(2, -2)));
      else if (this.block.lastChild?.nodeType === Node.TEXT_NODE) this.block.lastChild.appendData(part);
      else if (part) this.block.append(part);
    });
  }
}
