/**
 * Carries out the gateway's orders with the SDK's TypeScript API, and reports a run's output, tool calls, stored blobs
 * and attempts. One JSON object a line; carrier.py makes all decisions. Nothing is kept: blobs and checkpoints go to the
 * gateway, and an agent is disposed of with its run.
 */
import { createInterface } from "node:readline";
import { watchAttempts } from "./attempts.mjs";
import { Order } from "./order.mjs";

/** @typedef {typeof import("@cursor/sdk")} Sdk */

const WORDS = new Set(["text-delta", "thinking-delta"]);
const EXECUTORS = ["Read", "Write", "Grep", "Ls", "Delete", "Shell"];
const BEAT_MS = 2000;
const CALL_MS = 8000; // how long the SDK may take to open an account or an agent; it has no limit of its own
const LEAVE_MS = 2000; // how long a conversation waits for the end of its last run
const cwd = process.cwd();

// ---- output: only this module writes to stdout (guard.mjs), and a full pipe holds the runs back

/** Replaces lone surrogates, which JSON can escape but UTF-8 cannot encode. @param {string} _ @param {unknown} value */
const whole = (_, value) => (typeof value === "string" ? value.toWellFormed() : value);
let batch = "";
let full = /** @type {Promise<void> | null} */ (null);

function tell(/** @type {object} */ frame) {
  if (!batch) setImmediate(flush);
  const line = JSON.stringify(frame);
  batch += `${line.includes("\\ud") ? JSON.stringify(frame, whole) : line}\n`;
}

function flush() {
  const there = process.stdout.write(batch);
  batch = "";
  if (!there) full ??= new Promise((go) => process.stdout.once("drain", go)).then(() => void (full = null));
}

const base64 = (/** @type {Uint8Array} */ data) => Buffer.from(data).toString("base64");

// ---- live runs

const byNumber = /** @type {Map<number, Live>} */ (new Map());
const byAgent = /** @type {Map<string, Live>} */ (new Map());

/** One run, with its rows of the store. */
export class Live {
  /** @param {any} asked */
  constructor(asked) {
    const [now, root] = [Date.now(), asked.root ?? ""];
    this.asked = asked;
    this.root = root;
    this.request = "";
    this.row = /** @type {any} */ ({
      ...{ agentId: asked.agent, cwd, status: "idle", activeRunId: null, name: null, createdAt: now, updatedAt: now },
      latestCheckpoint: root ? { schemaVersion: 1, rootBlobId: root } : null,
      sdkMetadata: { blobEncryptionKey: asked.blobKey },
    });
    this.runs = /** @type {Map<string, any>} */ (new Map());
    this.blobs = new Map(asked.blobs.map((/** @type {any} */ [id, data]) => [id, Buffer.from(data, "base64")]));
    this.newest = this.aside = /** @type {[string, Uint8Array] | null} */ (null); // blobs that may be a checkpoint's root
    this.waiting = /** @type {Map<number, (value: any) => void>} */ (new Map());
    this.gate = /** @type {PromiseWithResolvers<void> | null} */ (null);
    this.run = this.refusal = this.source = /** @type {any} */ (null);
    this.execs = this.attempts = this.beaten = 0;
    this.over = this.ended = false;
    this.gone = /** @type {PromiseWithResolvers<void>} */ (Promise.withResolvers());
    this.order = new Order((frame) => this.tell(frame), () => this.gate?.promise ?? full);
  }

  tell(/** @type {object} */ frame) {
    if (!this.over) tell({ n: this.asked.n, ...frame });
  }

  /** Handle an update of the run; the run continues when it was reported. @param {any} update */
  async hear(update) {
    this.beaten = Date.now();
    const { type: kind, text, tokens, callCount, callId: call, usage } = update;
    const frame = { t: "update", kind, s: text, c: tokens ?? callCount, call, usage };
    if (WORDS.has(kind) && text) await this.order.heard("word", frame);
    else if (kind === "turn-ended") this.ended = await this.order.heard("end", frame);
    else this.tell(frame);
    while ((this.gate || full) && !this.over) await (this.gate?.promise ?? full);
  }

  // ---- called by attempts.mjs

  /** An attempt begins; all but the first are reconnections of the SDK. @param {any} source */
  begins(source) {
    this.order.begins(this.attempts++ > 0);
    this.source = source;
  }

  /** Data arrived that the SDK may not report: the run is alive. */
  beat() {
    if (Date.now() - this.beaten < BEAT_MS) return;
    this.beaten = Date.now();
    this.tell({ t: "beat" });
  }

  /** @param {any} end */
  refused(end) {
    this.refusal = end;
    this.giveAway();
    this.order.broke();
    this.order.atLast({ t: "refused", end });
  }

  // ---- called for the gateway

  go() {
    this.gate?.resolve();
    this.gate = null;
  }

  /** Let the gateway run a call; resolves with its answer. @param {object} frame @returns {Promise<any>} */
  async ask(frame) {
    const id = ++this.execs;
    const answered = new Promise((answer) => this.waiting.set(id, answer));
    const answer = (await this.order.call({ ...frame, id })) ? await answered : null;
    if (answer === null) throw new Error("The turn is over.");
    return answer;
  }

  /** @param {string} id @param {Uint8Array} data */
  store(id, data) {
    this.giveAway();
    this.newest = /** @type {[string, Uint8Array]} */ ([id, data]);
  }

  giveAway() {
    const [id, data] = this.newest ?? [];
    this.newest = null;
    if (id && data) this.tell({ t: "set", key: id, data: base64(data) });
  }

  /** The row of a run, with the id that its attempts have on the wire. @param {any} run */
  keep(run) {
    this.runs.set(run.runId, run);
    this.request = run.requestId ?? this.request;
  }

  /** @param {any} row */
  async update(row) {
    this.row = row;
    const root = row.latestCheckpoint?.rootBlobId ?? "";
    const blob = [this.newest, this.aside].find((each) => each?.[0] === root);
    if (!blob || root === this.root) return;
    const item = this.order.stored(blob[1], blob === this.aside);
    if (item) {
      this.root = root;
      if (blob === this.newest) this.newest = null;
      return void this.order.state(item, { t: "state", data: base64(blob[1]) });
    }
    this.aside = blob; // belongs to a lost attempt
    this.giveAway();
    await this.order.anew(); // so that the SDK does not continue from it
  }

  end() {
    this.giveAway();
    this.over = true;
    this.go();
    this.order.end();
    for (const answer of this.waiting.values()) answer(null);
    byNumber.delete(this.asked.n);
  }
}

// ---- what the SDK stores: rows live as long as their run, blobs go to the gateway

const nothing = async () => {};
const none = async () => ({ items: [] });
const unread = { seq: 0, offset: "0", payload: null, payloadRef: null, idempotencyKey: null, createdAt: 0 };

/** @param {Sdk} sdk */
const platformFor = (sdk) =>
  sdk.createAgentPlatform({
    workspaceRef: cwd,
    localStore: sdk.composeLocalAgentStore({
      agents: {
        get: async ({ agentId }) => byAgent.get(agentId)?.row ?? null,
        create: async ({ agent }) => agent,
        update: async ({ agent }) => (await byAgent.get(agent.agentId)?.update(agent), agent),
        ...{ delete: nothing, list: none },
      },
      runs: {
        get: async ({ agentId, runId }) => byAgent.get(agentId)?.runs.get(runId) ?? null,
        create: async ({ run }) => (byAgent.get(run.agentId)?.keep(run), run),
        update: async ({ run }) => (byAgent.get(run.agentId)?.keep(run), run),
        ...{ delete: nothing, list: none },
      },
      checkpoints: {
        get: async ({ agentId, blobId }) => {
          const { newest, blobs } = byAgent.get(agentId) ?? {};
          return (newest?.[0] === blobId ? newest[1] : blobs?.get(blobId)) ?? null;
        },
        create: async ({ agentId, blobId, data }) => byAgent.get(agentId)?.store(blobId, data),
        update: async ({ agentId, blobId, data }) => byAgent.get(agentId)?.store(blobId, data),
        delete: nothing,
        list: async (asked) => ({ items: [...(byAgent.get(asked?.filter?.agentIds?.[0] ?? "")?.blobs.keys() ?? [])] }),
      },
      runEvents: { append: async ({ runId, eventType }) => ({ runId, eventType, ...unread }), list: none, delete: nothing },
    }),
  });

// ---- accounts: each has its own platform, store and executor

const accounts = /** @type {Map<string, ReturnType<typeof openAccount>>} */ (new Map());
const optionsOf = (/** @type {string} */ apiKey) => ({ apiKey, local: { cwd, settingSources: [] } });

/** @param {Sdk} sdk @param {string} apiKey */
async function openAccount(sdk, apiKey) {
  await inTime(sdk.Cursor.me({ apiKey })); // a warm-up that fails spoils the whole process, so the key is tried first
  const platform = await platformFor(sdk);
  const warm = platform.prewarmLocalWorkspace(optionsOf(apiKey));
  warm.catch(() => tell({ t: "spoiled" }));
  return { platform, release: await inTime(warm) };
}

/** @param {Sdk} sdk @param {string} apiKey */
function accountOf(sdk, apiKey) {
  const account = accounts.get(apiKey) ?? openAccount(sdk, apiKey);
  accounts.set(apiKey, account);
  account.catch(() => accounts.get(apiKey) === account && accounts.delete(apiKey));
  return account;
}

/**
 * Fails a call that takes too long, because it would block all later calls.
 * @template T @param {Promise<T>} call @returns {Promise<T>}
 */
function inTime(call) {
  return new Promise((done, fail) => {
    const late = () => (tell({ t: "spoiled" }), fail(new Error("Network request failed: no answer in time.")));
    const timer = setTimeout(late, CALL_MS);
    call.then(done, fail).finally(() => clearTimeout(timer));
  });
}

// ---- a run, from its beginning to its end

/** @param {Sdk} sdk @param {any} asked */
async function openRun(sdk, asked) {
  const { key, model, allowed, tools, text, images, system, workspace } = asked;
  const live = new Live(asked);
  byNumber.set(asked.n, live);
  const last = byAgent.get(asked.agent); // Cursor has cached the conversation under this name
  if (last?.ended || last?.over) await Promise.race([last.gone.promise, new Promise((go) => setTimeout(go, LEAVE_MS))]);
  if (live.over) return;
  const name = byAgent.has(asked.agent) ? `agent-${crypto.randomUUID()}` : asked.agent; // or a fork's name
  live.row.agentId = name;
  byAgent.set(name, live);
  let [platform, agent] = /** @type {any[]} */ ([]);
  try {
    ({ platform } = await accountOf(sdk, key));
    live.beat();
    const prompt = system ? { systemPrompt: system } : {};
    agent = await inTime(platform.resumeAgent(name, { ...optionsOf(key), model, tools: allowed, ...prompt }));
    if (live.over) return;
    live.run = await agent.send(images.length ? { text, images } : { text }, {
      model,
      onDelta: (/** @type {any} */ { update }) => live.hear(update),
      local: {
        customTools: Object.fromEntries(tools.map((/** @type {any} */ tool) => [tool.name, customTool(live, tool)])),
        resourceProviderOptions: Object.fromEntries(
          EXECUTORS.map((kind) => [`override${kind}Executor`, { execute: executor(live, kind.toLowerCase()) }]),
        ),
        ...(workspace ? { reportedWorkspacePath: workspace } : {}),
      },
    });
    live.blobs.clear(); // the SDK has all blobs now
    live.asked = { n: asked.n, agent: name };
    if (live.over) await live.run.cancel();
    const { status, error } = await live.run.wait();
    await live.order.quiet();
    live.tell({ t: "over", status, message: error?.message ?? "", code: error?.code ?? "", end: live.refusal });
  } catch (failure) {
    live.tell({ t: "over", status: "error", ...faultOf(failure) });
  } finally {
    live.end();
    await agent?.[Symbol.asyncDispose]().catch(() => {});
    live.runs.clear(); // no run is active, whatever its row says
    await platform?.deleteAgent(name).catch(() => {}); // else the SDK keeps its blobs for good
    byAgent.delete(name);
    live.gone.resolve();
  }
}

/** @param {any} failure */
function faultOf(failure) {
  const { code = "", status = 0, name = "", message = failure } = failure ?? {};
  return { thrown: true, message: String(message), code: String(code), http: status | 0, name: String(name) };
}

/** @param {Live} live @param {any} tool @returns {import("@cursor/sdk").SDKCustomTool} */
const customTool = (live, { name, ...tool }) =>
  ({ ...tool, execute: (args, { toolCallId: call = "" }) => live.ask({ t: "call", name, call, args }) });

/** @param {Live} live @param {string} kind */
const executor = (live, kind) => async (/** @type {any} */ _, /** @type {any} */ args) =>
  revived(await live.ask({ t: "exec", kind, data: base64(args.toBinary()) }));

/** The value for the message library: in JSON, 64-bit numbers and bytes are marked objects. @returns {any} */
function revived(/** @type {any} */ value) {
  if (Array.isArray(value)) return value.map(revived);
  if (value === null || typeof value !== "object") return value;
  if ("$int" in value) return BigInt(value.$int);
  if ("$bytes" in value) return new Uint8Array(Buffer.from(value.$bytes, "base64"));
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, revived(inner)]));
}

// ---- input

/** @param {number} n @param {Promise<unknown>} asked */
const reply = async (n, asked) => tell({ t: "reply", n, ...(await asked.then((value) => ({ value }), faultOf)) });

/** @type {Record<string, (sdk: Sdk, frame: any, live: Live | undefined) => unknown>} */
const ORDERS = {
  open: openRun,
  answer: (_, { id, value }, live) => (live?.waiting.get(id)?.(value), live?.waiting.delete(id)),
  hold: (_sdk, _frame, live) => live && (live.gate ??= Promise.withResolvers()),
  go: (_sdk, _frame, live) => live?.go(),
  doubt: (_sdk, _frame, live) => (live?.source?.session ?? live?.source?.socket)?.destroy(), // the SDK never does this
  forget: (_sdk, { key }) => (accounts.get(key)?.then(({ release }) => release()).catch(() => {}), accounts.delete(key)),
  models: (sdk, { n, key: apiKey }) => reply(n, sdk.Cursor.models.list({ apiKey })),
  usage: (sdk, { n, key: apiKey, agent }) => reply(n, sdk.Agent.getUsage(agent, { apiKey })),
  me: (sdk, { n, key: apiKey }) => reply(n, sdk.Cursor.me({ apiKey })),
  ping: (_sdk, { n }) => reply(n, nothing()),
  cancel: (_sdk, _frame, live) => (live?.run?.cancel().catch(() => {}), live?.end()),
};

/** The features that this SDK lacks. Older ones ignore unknown options, so each is tried. @param {Sdk} sdk */
async function unfit(sdk) {
  const [platform, agent] = [await platformFor(sdk), "agent-tried"];
  const tried = {
    systemPrompt: { systemPrompt: " " },
    tools: { tools: ["no such tool"] },
    resourceProviderOptions: { local: { cwd, fs: sdk.emptyFs?.(), resourceProviderOptions: {} } },
  };
  const missing = [];
  byAgent.set(agent, new Live({ n: -1, agent, blobs: [] }));
  for (const [name, options] of Object.entries(tried)) {
    const made = platform.resumeAgent(agent, { ...optionsOf("none"), ...options });
    const failure = await made.then(() => "taken as it is", (reason) => reason);
    if (!(failure instanceof sdk.ConfigurationError)) missing.push(`${name} (${failure})`);
  }
  byAgent.delete(agent);
  return missing.join(", ");
}

watchAttempts((request) => [...byNumber.values()].find((live) => request && live.request === request));
const sdk = /** @type {Sdk} */ (await import(String(process.env.CARETWAY_SDK)));
const wanting = await unfit(sdk);
createInterface({ input: process.stdin, crlfDelay: Infinity })
  .on("close", () => process.exit(0)) // the gateway is gone, however it ended
  .on("line", (line) => {
    const frame = JSON.parse(line);
    ORDERS[frame.op](sdk, frame, byNumber.get(frame.n));
  });
tell({ t: "ready", s: wanting });
