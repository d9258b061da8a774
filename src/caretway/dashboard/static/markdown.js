// What a model says, shown as it comes: paragraphs, headings, lists, quotes, fenced code. Every word is a text node, no
// markup of the model is read, and nothing is nested: neither depth nor length can hold up the page.

import { h } from "./dom.js";

const MAX_BLOCKS = 3000;
/** Characters of one block: the layout of a longer one would take too long. */
const MAX_BLOCK = 10000;
/** Characters that are shown in one frame. */
const AT_ONCE = 100000;
const MAX_LEVEL = 5;
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

  /** Everything has come. */
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
    for (const line of lines) this.line(line, "\n");
    while (this.partial.length > MAX_BLOCK) {
      this.line(this.partial.slice(0, MAX_BLOCK), "");
      this.partial = this.partial.slice(MAX_BLOCK);
    }
    this.tail.textContent = this.partial;
    (this.block ?? this.node).append(this.tail);
  }

  /** One line that is whole. */
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
    if (!this.block || this.chars > MAX_BLOCK) {
      const { nodeName, className } = this.block ?? {};
      this.open(nodeName ?? "p", className ? { class: className } : {});
    }
    this.chars += text.length;
    if (bare || text.length > 2000) return this.block.append(text);
    for (const part of text.split(INLINE)) {
      if (part.length > 2 && part.startsWith("`")) this.block.append(h("code", null, part.slice(1, -1)));
      else if (part.length > 4 && part.startsWith("**")) this.block.append(h("strong", null, part.slice(2, -2)));
      else if (part) this.block.append(part);
    }
  }
}
