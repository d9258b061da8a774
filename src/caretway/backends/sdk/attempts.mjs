/**
 * Reports the messages that arrive in each attempt of a run, and how Cursor ended the attempt. The SDK does not report
 * its attempts, and reports a refusal late. Node's diagnostics channels show every attempt. No decisions here.
 */
import channel from "node:diagnostics_channel";
import { gunzipSync } from "node:zlib";

const HEAD_BYTES = 5; // of a frame: flags, then its length
const [GZIPPED, LAST] = [1, 2]; // flags
const REQUEST = "x-original-request-id";
const [UPDATE, CHECKPOINT, TEXT, THINKING, ENDED] = [0x0a, 0x1a, 0x0a, 0x22, 0x72]; // tags of an AgentServerMessage

/** @param {Buffer} message @returns {import("./order.mjs").Item["kind"]} */
export function kindOf(message) {
  if (message[0] === CHECKPOINT) return "checkpoint";
  const at = message.findIndex((byte, n) => n > 0 && byte < 0x80) + 1; // after the length
  if (message[0] !== UPDATE) return "other";
  if (message[at] === ENDED) return "end";
  return (message[at] === TEXT || message[at] === THINKING) && message[at + 1] ? "word" : "other";
}

/** Cuts received bytes into frames. @param {(flags: number, data: Buffer) => void} frame */
function cutter(frame) {
  let [kept, size, wanted] = [/** @type {Buffer[]} */ ([]), 0, HEAD_BYTES];
  return (/** @type {Buffer} */ chunk) => {
    kept.push(chunk);
    size += chunk.length;
    while (size >= wanted) {
      const data = kept.length > 1 ? Buffer.concat(kept) : kept[0];
      wanted = HEAD_BYTES + data.readUInt32BE(1);
      if (size >= wanted) frame(data[0], data.subarray(HEAD_BYTES, wanted));
      kept = [size >= wanted ? data.subarray(wanted) : data];
      if (size >= wanted) [size, wanted] = [size - wanted, HEAD_BYTES];
    }
  };
}

/** @param {(request: string) => import("./bridge.mjs").Live | undefined} runOf finds a run by the id of its attempts */
export function watchAttempts(runOf) {
  const find = (/** @type {unknown} */ path, /** @type {string} */ request) =>
    /AgentService\/Run(SSE)?$/.test(String(path)) ? runOf(request) : undefined;
  const follow = (/** @type {any} */ source, /** @type {ReturnType<typeof runOf>} */ run) => {
    if (!run) return;
    run.begins(source);
    let whole = false;
    const take = cutter((flags, data) => {
      try {
        const plain = flags & GZIPPED && data.length ? gunzipSync(data) : data;
        whole = whole || Boolean(flags & LAST);
        if (!(flags & LAST)) run.order.came(kindOf(plain), plain);
        else if (JSON.parse(String(plain) || "{}").error) run.refused(JSON.parse(String(plain)));
      } catch {} // unreadable: the SDK reports the error
    });
    // Over HTTP/2 the SDK still stores what has arrived and continues from there; the beginning of the next attempt
    // shows that it has.
    if (!source.session) source.once("close", () => whole || run.source !== source || run.order.broke());
    const { push } = source;
    source.push = function (/** @type {any} */ chunk, /** @type {any} */ encoding) {
      if (chunk) take(chunk);
      if (chunk) run.beat();
      return push.call(this, chunk, encoding);
    };
  };
  channel.subscribe("http2.client.stream.start", (/** @type {any} */ { stream, headers = stream.sentHeaders }) =>
    follow(stream, find(headers[":path"], headers[REQUEST])),
  );
  channel.subscribe("http.client.request.start", (/** @type {any} */ { request }) =>
    find(request.path, request.getHeader(REQUEST))?.order.broke(),
  );
  channel.subscribe("http.client.response.finish", (/** @type {any} */ { request, response }) =>
    follow(response, find(request.path, request.getHeader(REQUEST))),
  );
}
