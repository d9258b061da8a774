/**
 * The SDK with all of its built-in tools, as it comes: nothing is overridden, so that only the cage holds it. Plays
 * each prompt that it reads in a conversation of its own and says what came of it: a JSON line in, a JSON line out.
 */
import { createInterface } from "node:readline";

/** @type {typeof import("@cursor/sdk")} */
const sdk = await import(process.env.CARETWAY_SDK ?? "");
const cwd = process.cwd();

/**
 * Rows of one kind, by id, in memory.
 * @param {(row: any) => string} id @param {string} field
 */
function rows(id, field) {
  /** @type {Map<string, any>} */
  const kept = new Map();
  const put = async (/** @type {any} */ input) => {
    const row = input[field] ?? input;
    kept.set(id(row), row);
    return row;
  };
  return {
    get: async (/** @type {any} */ input) => kept.get(id(input)) ?? null,
    create: put,
    update: put,
    delete: async () => {},
    list: async () => ({ items: [...kept.values()] }),
  };
}

const blobs = rows((row) => `${row.agentId} ${row.blobId}`, "");
let seq = 0;
const platform = await sdk.createAgentPlatform({
  workspaceRef: cwd,
  localStore: sdk.composeLocalAgentStore({
    agents: rows((row) => row.agentId, "agent"),
    runs: rows((row) => row.runId, "run"),
    checkpoints: { ...blobs, get: async (input) => (await blobs.get(input))?.data ?? null },
    runEvents: {
      append: async (input) => {
        const none = { payload: null, payloadRef: null, idempotencyKey: null };
        return { ...none, ...input, seq: ++seq, offset: String(seq), createdAt: Date.now() };
      },
      list: async () => ({ items: [] }),
      delete: async () => {},
    },
  }),
});
const options = { apiKey: "key", model: { id: "sim-auto" }, local: { cwd } };
await platform.prewarmLocalWorkspace(options); // held: what one prompt started, the next one finds
for await (const line of createInterface({ input: process.stdin })) {
  const agent = await platform.createAgent(options);
  const run = await agent.send({ text: JSON.parse(line) }, {});
  const { status, result, error } = await run.wait();
  process.stdout.write(`${JSON.stringify({ status, text: result ?? "", error: error?.message ?? "" })}\n`);
}
process.exit(0);
