// @ts-nocheck
/**
 * Stands for the SDK where the order of things matters, which the real one leaves to chance: the prompt names what
 * happens. A word waits for a checkpoint that is stored late, and the call that follows it is asked for meanwhile.
 */
import channel from "node:diagnostics_channel";

const REQUEST = "request";
const frame = (payload) => Buffer.from([0, 0, 0, 0, payload.length, ...payload]);
const CHECKPOINT = frame([0x1a, 0x02, 0x08, 0x01]);
const WORD = frame([0x0a, 0x05, 0x0a, 0x03, 0x0a, 0x01, 0x41]);

function attempt(...messages) {
  const headers = { ":path": "/agent.v1.AgentService/Run", "x-original-request-id": REQUEST };
  const stream = { push: () => true };
  channel.channel("http2.client.stream.start").publish({ stream, headers });
  for (const message of messages) stream.push(message);
}

const PLAYS = {
  /** The word is told late. */
  async late(say, call) {
    attempt(CHECKPOINT, WORD);
    await Promise.all([say("A"), call("first")]);
  },
  /** A word came that nobody tells of. */
  async untold(say, call) {
    attempt(WORD);
    await call("first");
  },
  /** The connection breaks while the call waits: the next attempt makes it again. */
  async again(say, call) {
    attempt(CHECKPOINT, WORD);
    const [word, lost] = [say("A"), call("first").catch(() => {})];
    attempt(CHECKPOINT, WORD);
    await Promise.all([word, lost, say("A"), call("second")]);
  },
};

async function send(store, agentId, { text }, { onDelta, local }) {
  await store.runs.create({ run: { agentId, runId: "run", requestId: REQUEST } });
  const say = (words) => onDelta({ update: { type: "text-delta", text: words } });
  const call = (toolCallId) => local.customTools.look.execute({}, { toolCallId });
  const played = PLAYS[text](say, call);
  return { wait: () => played.then(() => ({ status: "finished" })), cancel: async () => {} };
}

export class ConfigurationError extends Error {}
export const emptyFs = () => ({});
export const Cursor = { me: async () => ({}) };
export const composeLocalAgentStore = (store) => store;
export const createAgentPlatform = async ({ localStore }) => ({
  prewarmLocalWorkspace: async () => async () => {},
  resumeAgent: async (agentId, { apiKey }) => {
    if (apiKey === "none") throw new ConfigurationError("It is only tried what there is.");
    const dispose = { [Symbol.asyncDispose]: async () => {} };
    return { send: (words, options) => send(localStore, agentId, words, options), ...dispose };
  },
});
