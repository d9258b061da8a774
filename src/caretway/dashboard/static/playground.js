// The playground: a conversation with a model that streams, with thinking, tool calls and usage; and its request as code.

import { ask, get, release } from "./api.js";
import { announce, badge, button, code, copyable, empty, h, panel, renew } from "./dom.js";
import { asCurl, asPython, asTypeScript } from "./code.js";
import { Words } from "./markdown.js";
import { trouble } from "./view.js";
import { count, lasted, plain, TONES } from "./words.js";

const EFFORTS = ["effort", "reasoning"];
const TOOL = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];
const WAYS = { curl: asCurl, Python: asPython, TypeScript: asTypeScript };
/** Within this distance from its end, the page follows the answer. */
const NEAR_PX = 160;

let kept = null;

export const playground = {
  name: "playground",
  title: "Playground",
  open(root, _route, app) {
    kept ??= new Playground(app);
    kept.show(root);
    return { now: () => kept.drawCode(), changed: (what) => (what.length === 0 || what.includes("models")) && kept.load() };
  },
};

class Playground {
  constructor(app) {
    this.app = app;
    this.messages = [];
    this.models = [];
    this.way = "curl";
    this.leaving = null;
    /** Calls for whose results a turn of the gateway waits. */
    this.parked = [];
    addEventListener("pagehide", () => this.letGo());
    this.model = h("select", { id: "try-model", on: { change: () => (this.drawEffort(), this.drawCode()) } });
    this.effort = h("select", { id: "try-effort", on: { change: () => this.drawCode() } });
    this.effortField = h("span", { class: "choose" }, h("label", { for: "try-effort" }, "Effort"), this.effort);
    this.system = h("textarea", { id: "try-system", rows: 2, on: { input: () => this.drawCode() } });
    this.offer = h("input", { type: "checkbox", id: "try-offer", on: { change: () => this.drawCode() } });
    this.tools = h("textarea", { id: "try-tools", rows: 8, spellcheck: "false", class: "mono", on: { input: () => this.drawCode() } }, JSON.stringify(TOOL, null, 1));
    this.prompt = h("textarea", {
      id: "try-prompt",
      rows: 3,
      placeholder: "Ask something",
      on: {
        input: () => this.drawCode(),
        keydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && this.send(event),
      },
    });
    this.go = h("button", { type: "submit", class: "main" }, "Send");
    this.stop = button("Stop", () => this.leaving?.abort(), { hidden: true });
    this.again = button("New conversation", () => this.clear(), "quiet");
    this.said = h("div", { id: "try-said" });
    this.log = h("div", { class: "log", role: "log", "aria-label": "Conversation" });
    this.code = h("div");
    this.node = this.layout();
    this.clear();
    this.load();
  }

  layout() {
    return h(
      "div",
      { class: "try" },
      h(
        "div",
        { class: "talk" },
        this.log,
        h(
          "form",
          { class: "panel composer", on: { submit: (event) => this.send(event) } },
          h("label", { for: "try-prompt", class: "unseen" }, "Message"),
          this.prompt,
          h("div", { class: "row" }, this.go, this.stop, this.again, h("span", { class: "choose" }, h("label", { for: "try-model" }, "Model"), this.model), this.effortField, h("span", { class: "muted small" }, "Ctrl + Enter sends")),
          this.said,
        ),
      ),
      h(
        "div",
        null,
        panel(
          "Options",
          h("details", null, h("summary", null, "System prompt"), h("label", { for: "try-system", class: "unseen" }, "System prompt"), this.system),
          h(
            "details",
            null,
            h("summary", null, "Tools"),
            h("p", null, this.offer, " ", h("label", { for: "try-offer" }, "Offer these tools. You type their results.")),
            h("label", { for: "try-tools", class: "unseen" }, "Tools as JSON"),
            this.tools,
          ),
        ),
        h("section", { class: "panel" }, h("h2", null, "The request as code"), this.code),
      ),
    );
  }

  /** Cancels the turn that waits for calls without a result. */
  letGo() {
    if (this.parked.length) release(this.parked[0].id);
    this.parked = [];
  }

  show(root) {
    root.append(this.node);
    this.drawCode();
  }

  async load() {
    try {
      const told = await get("/models");
      this.models = told.data;
      const chosen = this.model.value;
      renew(this.model, told.data.map((model) => h("option", { value: model.id }, plain(model.id))));
      if (chosen) this.model.value = chosen;
      renew(this.said);
    } catch (failure) {
      renew(this.said, trouble(failure, () => this.load()));
    }
    this.drawEffort();
    this.drawCode();
  }

  drawEffort() {
    const model = this.models.find((one) => one.id === this.model.value);
    const levels = model?.parameters?.find((one) => EFFORTS.includes(one.name))?.values ?? [];
    this.effortField.hidden = levels.length === 0;
    renew(this.effort, h("option", { value: "" }, "default"), levels.map((level) => h("option", { value: level }, plain(level))));
  }

  clear() {
    this.leaving?.abort();
    this.letGo();
    this.messages = [];
    renew(this.log, empty("No answer yet.", "What you send here goes the way of every client's request, and counts like one."));
    this.drawCode();
  }

  /** The request that would be sent now. */
  body(prompt = this.prompt.value.trim()) {
    const system = this.system.value.trim();
    const body = {
      model: this.model.value,
      messages: [
        ...(system ? [{ role: "system", content: system }] : []),
        ...this.messages,
        ...(prompt ? [{ role: "user", content: prompt }] : []),
      ],
    };
    if (this.effort.value) body.reasoning_effort = this.effort.value;
    if (this.offer.checked) body.tools = JSON.parse(this.tools.value);
    return { ...body, stream: true, stream_options: { include_usage: true } };
  }

  drawCode() {
    const address = this.app.now?.address ?? location.origin;
    let shown;
    try {
      const body = this.body();
      if (body.messages.length === 0) body.messages.push({ role: "user", content: "Hello" });
      shown = copyable(WAYS[this.way](address, body, this.app.session?.key_required), `the request as ${this.way}`);
    } catch {
      shown = h("p", { class: "error" }, "The tools are not valid JSON.");
    }
    renew(
      this.code,
      h(
        "div",
        { class: "choice", role: "group", "aria-label": "Language" },
        Object.keys(WAYS).map((way) =>
          button(way, () => ((this.way = way), this.drawCode()), { "aria-pressed": String(way === this.way) }),
        ),
      ),
      shown,
    );
  }

  send(event) {
    event.preventDefault();
    const prompt = this.prompt.value.trim();
    if (this.leaving || !prompt) return;
    if (this.parked.length) return document.getElementById(`result-${this.parked[0].id}`)?.focus();
    if (this.messages.length === 0) this.log.replaceChildren();
    this.log.append(h("div", { class: "said user" }, h("h2", null, "You"), h("div", { class: "words" }, h("p", { dir: "auto" }, prompt))));
    this.prompt.value = "";
    this.messages.push({ role: "user", content: prompt });
    this.answer();
  }

  async answer() {
    const shown = new Answer(this.log);
    const talk = this.messages;
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    this.busy(true);
    const started = performance.now();
    this.follow(true);
    try {
      const response = await ask("POST", "/try", this.body(""), signal);
      shown.headers(response.headers);
      for await (const chunk of chunks(response.body)) {
        shown.take(chunk, performance.now() - started);
        this.follow();
      }
    } catch (failure) {
      if (signal.aborted) shown.note("Stopped.");
      else shown.fail(failure);
    }
    await shown.end(performance.now() - started, signal.aborted);
    this.leaving = null;
    this.busy(false);
    if (talk !== this.messages) return; // a new conversation has begun
    if (shown.message.content || shown.calls.length) talk.push(shown.message);
    if (shown.calls.length && !shown.failed && !signal.aborted) {
      this.parked = shown.calls;
      shown.askResults((results) => this.giveResults(results));
    }
    announce(shown.failed ? "The answer failed." : shown.calls.length ? "The model is waiting for tool results." : "The answer is complete.");
    this.follow();
    this.drawCode();
  }

  /** Scrolls to the end if the reader is near it. */
  follow(always) {
    const page = document.documentElement;
    if (always || page.scrollHeight - innerHeight - scrollY < NEAR_PX) requestAnimationFrame(() => this.log.isConnected && this.log.lastElementChild?.scrollIntoView({ block: "end" }));
  }

  giveResults(results) {
    this.parked = [];
    this.messages.push(...results);
    this.answer();
  }

  busy(on) {
    this.go.disabled = on;
    this.stop.hidden = !on;
    this.log.setAttribute("aria-busy", String(on));
  }
}

/** One answer on the screen. Its text is never interpreted as HTML. */
class Answer {
  constructor(log) {
    this.thinking = new Words("muted");
    this.words = new Words();
    this.thought = h("details", { hidden: true, open: true }, h("summary", null, "Thinking"), this.thinking.node);
    this.callList = h("div");
    this.foot = h("p", { class: "muted small foot" });
    this.node = h("div", { class: "said model" }, h("h2", null, "Model"), this.thought, this.words.node, this.callList, this.foot);
    this.calls = [];
    this.told = [];
    this.usage = null;
    this.first = null;
    this.failed = false;
    this.noted = null;
    this.drawing = 0;
    log.append(this.node);
  }

  get message() {
    const message = { role: "assistant", content: this.words.text || null };
    if (this.calls.length) message.tool_calls = this.calls;
    return message;
  }

  headers(headers) {
    const session = headers.get("x-caretway-session");
    if (session) this.told.push([badge(plain(session), TONES[session]), " ", plain(headers.get("x-caretway-session-reason") ?? "")]);
    const model = headers.get("x-caretway-model");
    if (model) this.told.push(plain(model));
  }

  take(chunk, ms) {
    if (chunk.error) return this.fail({ message: chunk.error.message, hint: chunk.error.hint });
    if (chunk.usage) this.usage = chunk.usage;
    for (const { delta } of chunk.choices ?? []) {
      if (delta && Object.keys(delta).some((name) => name !== "role" && delta[name])) this.first ??= ms;
      if (delta?.reasoning_content) {
        this.thought.hidden = false;
        this.thinking.add(delta.reasoning_content);
      }
      if (delta?.content) this.words.add(delta.content);
      for (const piece of delta?.tool_calls ?? []) this.takeCall(piece);
    }
  }

  takeCall(piece) {
    const call = (this.calls[piece.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    if (piece.id) call.id = piece.id;
    call.function.name += piece.function?.name ?? "";
    call.function.arguments += piece.function?.arguments ?? "";
    this.drawing ||= requestAnimationFrame(() => this.drawCalls());
  }

  drawCalls() {
    this.drawing = 0;
    renew(this.callList, this.calls.map((one) => h("div", { class: "call" }, badge("calls", "warn"), " ", code(one.function.name), h("pre", { tabindex: "0", "aria-label": "Arguments" }, one.function.arguments))), this.noted);
  }

  async end(ms, stopped) {
    await Promise.all([this.thinking.end(), this.words.end()]);
    const parts = [...this.told];
    if (this.usage) {
      const cached = this.usage.prompt_tokens_details?.cached_tokens;
      parts.push(`${count(this.usage.prompt_tokens)} in${cached ? ` (${count(cached)} cached)` : ""}, ${count(this.usage.completion_tokens)} out`);
    }
    if (this.first != null) parts.push(`first token after ${lasted(this.first)}`);
    parts.push(`${this.failed ? "failed after" : stopped ? "stopped after" : "done in"} ${lasted(ms)}`);
    this.drawCalls();
    renew(this.foot, parts.map((part, index) => [index > 0 && " · ", part]));
  }

  note(words) {
    this.noted = h("p", { class: "muted" }, words);
    this.drawCalls();
  }

  fail(failure) {
    this.failed = true;
    this.node.append(trouble(failure));
  }

  askResults(give) {
    const fields = this.calls.map((call, index) => h("textarea", { rows: 2, id: `result-${call.id}`, "aria-label": `Result of ${plain(call.function.name)}, call ${index + 1}` }));
    const form = h(
      "form",
      {
        class: "results",
        on: {
          submit: (event) => {
            event.preventDefault();
            const results = this.calls.map((call, index) => ({ role: "tool", tool_call_id: call.id, content: fields[index].value }));
            form.replaceWith(results.map((result) => h("div", { class: "said tool" }, h("h2", null, "Tool result"), h("div", { class: "words" }, h("p", { dir: "auto" }, result.content)))).reduce((all, one) => (all.append(one), all), h("div")));
            give(results);
          },
        },
      },
      this.calls.map((call, index) => h("div", { class: "field" }, h("label", { for: `result-${call.id}` }, "Result of ", code(call.function.name)), fields[index])),
      h("button", { type: "submit", class: "main" }, this.calls.length > 1 ? "Send the results" : "Send the result"),
    );
    this.node.append(form);
    fields[0].focus();
  }
}

/** Yields the JSON values of an SSE body. */
async function* chunks(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
