// @ts-nocheck
/**
 * Stands for the SDK where the order of things matters, which the real one leaves to chance: the prompt names what
 * happens, and over which transport. Like the real one it hears words one after the other, stores checkpoints beside
 * them, makes calls at once, and goes on from the last checkpoint that was stored when it saw that the connection broke.
 */
import channel from "node:diagnostics_channel";
import { EventEmitter } from "node:events";

const REQUEST = "request";
const frame = (payload) => Buffer.from([0, 0, 0, 0, payload.length, ...payload]);
const state = (number) => [0x08, number];
const checkpoint = (number) => frame([0x1a, 0x02, ...state(number)]);
const WORD = frame([0x0a, 0x05, 0x0a, 0x03, 0x0a, 0x01, 0x41]);
const ENDED = frame([0x0a, 0x02, 0x72, 0x00]);
const soon = () => new Promise((go) => setTimeout(go, 20));

const BEGIN = {
  h2(stream) {
    stream.session = {};
    const headers = { ":path": "/agent.v1.AgentService/Run", "x-original-request-id": REQUEST };
    channel.channel("http2.client.stream.start").publish({ stream, headers });
  },
  http1(response) {
    const request = { path: "/agent.v1.AgentService/RunSSE", getHeader: () => REQUEST };
    channel.channel("http.client.request.start").publish({ request });
    channel.channel("http.client.response.finish").publish({ request, response });
  },
};

/** What a run can do. */
class Run {
  constructor(store, agentId, transport, { onDelta, local }) {
    Object.assign(this, { store, agentId, transport });
    this.hear = (update) => onDelta({ update });
    this.call = (toolCallId) => local.customTools.look.execute({}, { toolCallId });
  }
  say = (text) => this.hear({ type: "text-delta", text });
  end = () => this.hear({ type: "turn-ended" });
  attempt(...messages) {
    this.stream = Object.assign(new EventEmitter(), { push: () => true });
    BEGIN[this.transport](this.stream);
    this.arrive(...messages);
  }
  arrive = (...messages) => messages.forEach((message) => this.stream.push(message));
  breaks = () => this.stream.emit("close");
  async save(number) {
    const [blobId, data] = [`root-${number}`, Uint8Array.from(state(number))];
    await this.store.checkpoints.create({ agentId: this.agentId, blobId, data });
    const agent = { agentId: this.agentId, latestCheckpoint: { rootBlobId: blobId } };
    await this.store.agents.update({ agent });
  }
}

const PLAYS = {
  /** A word comes after a checkpoint that is stored late, and a call after the word. */
  async late(run) {
    run.attempt(checkpoint(1), WORD);
    const told = [run.say("A"), run.call("first"), run.call("second")];
    await soon();
    await Promise.all([run.save(1), ...told]);
  },
  /** A word came that nobody tells of. */
  async untold(run) {
    run.attempt(WORD);
    await run.call("first");
  },
  /** The connection breaks while the call waits: the next attempt makes it again. */
  async again(run) {
    run.attempt(checkpoint(1), WORD);
    const [word, lost] = [run.say("A"), run.call("first").catch(() => {})];
    run.attempt(WORD);
    await Promise.all([word, lost, run.say("A"), run.call("second")]);
  },
  /** A checkpoint comes last before the connection breaks. The SDK goes on from the one before, and stores it then. */
  async caught(run) {
    run.attempt(checkpoint(1), WORD, checkpoint(2));
    await Promise.all([run.save(1), run.say("A")]);
    run.breaks();
    const saved = run.save(2);
    await soon();
    run.attempt(WORD);
    await Promise.all([saved, run.say("A"), run.call("second")]);
  },
  /** The same, and the next attempt comes to the same checkpoint: that one counts. */
  async same(run) {
    run.attempt(WORD, checkpoint(1));
    await run.say("A");
    run.breaks();
    const saved = run.save(1);
    await soon();
    run.attempt(WORD, checkpoint(1), ENDED);
    await Promise.all([saved, run.say("A")]);
    await Promise.all([run.save(1), run.end()]);
  },
  /** The connection is gone before the SDK has come to what it brought: the SDK comes to it all the same. */
  async drained(run) {
    run.attempt(checkpoint(1), WORD);
    run.breaks();
    await Promise.all([run.say("A"), soon().then(() => run.save(1))]);
    run.attempt(WORD);
    await run.say("B");
  },
  /** A checkpoint is stored before the words that it holds are heard. */
  async early(run) {
    run.attempt(WORD, WORD, checkpoint(1), WORD);
    await Promise.all([run.save(1), soon().then(() => run.say("A"))]);
    await run.say("B");
    await run.say("C");
  },
  /** The last checkpoint is stored after the connection was closed, and the turn is over with it. */
  async over(run) {
    run.attempt(WORD, checkpoint(1), ENDED);
    await run.say("A");
    run.breaks();
    await Promise.all([run.end(), soon().then(() => run.save(1))]);
  },
};

async function send(store, agentId, { text }, options) {
  await store.runs.create({ run: { agentId, runId: "run", requestId: REQUEST } });
  const [play, transport] = text.split(" ");
  const played = PLAYS[play](new Run(store, agentId, transport, options));
  return { wait: () => played.then(() => ({ status: "finished" })), cancel: async () => {} };
}

export class ConfigurationError extends Error {}
export const emptyFs = () => ({});
export const Cursor = { me: async () => ({}) };
export const composeLocalAgentStore = (store) => store;
export const createAgentPlatform = async ({ localStore }) => ({
  prewarmLocalWorkspace: async () => async () => {},
  deleteAgent: async () => {},
  resumeAgent: async (agentId, { apiKey }) => {
    if (apiKey === "none") throw new ConfigurationError("It is only tried what there is.");
    const dispose = { [Symbol.asyncDispose]: async () => {} };
    return { send: (words, options) => send(localStore, agentId, words, options), ...dispose };
  },
});
