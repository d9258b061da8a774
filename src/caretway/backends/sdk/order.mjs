/**
 * Restores the order of a run's text, calls and checkpoints as they arrived on the wire, and drops those of a lost
 * attempt. The SDK reports text piece by piece, stores checkpoints in parallel and makes calls at once, so each can
 * overtake the others.
 *
 * When a connection breaks, the SDK first reports what has arrived, then continues from the last checkpoint that it has
 * stored. A checkpoint that it stores later does not count, because its content is sent again.
 */

const PATIENCE_MS = 3000; // how long to wait for an arrived item that the SDK does not report

/** @typedef {{ kind: "word" | "end" | "checkpoint" | "other", data?: Buffer, taken?: boolean }} Item */

export class Order {
  /** @param {(frame: object) => void} tell @param {() => Promise<void> | null} held resolves when to go on */
  constructor(tell, held) {
    this.tell = tell;
    this.held = held;
    this.items = /** @type {Item[]} */ ([]); // not reported yet; taken: the SDK has reached it
    this.last = /** @type {Buffer} */ (Buffer.alloc(0)); // the newest checkpoint on the wire
    this.lost = this.over = false;
    this.telling = this.stale = 0; // stale: checkpoints of lost attempts that the SDK has yet to store
    this.waiting = /** @type {(() => void)[]} */ ([]);
  }

  // ---- on the wire

  /** @param {Item["kind"]} kind @param {Buffer} data */
  came(kind, data) {
    if (kind === "other" || (kind === "checkpoint" && data.equals(this.last))) return; // nothing new
    if (kind === "checkpoint") this.last = data;
    this.items.push({ kind, data });
  }

  /** The connection is gone. The SDK still reports the text, and stores the checkpoints before it. */
  broke() {
    if (!this.lost) this.leaveOut(this.items.findLastIndex(spoken) + 1);
    this.lost = true;
  }

  /** An attempt begins; again: the SDK has reconnected. @param {boolean} again */
  begins(again) {
    this.lost = false;
    this.leaveOut(0);
    this.items = this.items.filter(({ taken }) => taken);
    if (again) this.atLast({ t: "again" });
  }

  /** Drop the first unstored checkpoint and all after it: the next attempt repeats them. @param {number} from */
  leaveOut(from) {
    const at = this.items.findIndex((item, n) => n >= from && unstored(item));
    if (at < 0) return this.wake();
    this.stale += this.items.splice(at).filter(unstored).length;
    this.last = Buffer.alloc(0);
    this.wake();
  }

  // ---- when the SDK reaches an item. False: the item is dropped

  /** @param {Item["kind"]} what @param {object} frame */
  async heard(what, frame) {
    const item = this.items.find(({ kind, taken }) => kind === what && !taken);
    if (!item && !this.lost) this.tell(frame);
    return item ? this.inTurn(item, frame) : !this.lost;
  }

  /** Report a call after the text and the calls before it. @param {object} frame */
  call(frame) {
    return this.atLast(frame, this.items.findLastIndex(({ kind }) => kind !== "checkpoint") + 1);
  }

  /** @param {object} frame @param {number} at */
  atLast(frame, at = this.items.length) {
    const item = /** @type {Item} */ ({ kind: "other" });
    this.items.splice(at, 0, item);
    return this.inTurn(item, frame);
  }

  /**
   * The checkpoint that is being stored; null: it belongs to a lost attempt.
   * @param {Uint8Array} data @param {boolean} known
   */
  stored(data, known) {
    const same = this.items.find((item) => unstored(item) && item.data?.subarray(-data.length).equals(data));
    if (!same && (known || this.stale)) {
      this.stale -= Number(!known);
      return null;
    }
    const item = same ?? this.items.find(unstored) ?? /** @type {Item} */ ({ kind: "checkpoint" });
    if (!this.items.includes(item)) this.items.push(item);
    item.taken = true;
    return item;
  }

  /** Report a checkpoint once the SDK would continue from it. @param {Item} item @param {object} frame */
  async state(item, frame) {
    this.telling++;
    await new Promise((go) => setImmediate(go));
    this.telling--;
    return this.inTurn(item, frame);
  }

  /** @param {Item} item @param {object} frame */
  async inTurn(item, frame) {
    item.taken = true;
    this.telling++;
    while (this.items.includes(item) && (this.held() || this.items[0] !== item)) await (this.held() ?? this.moved());
    const due = this.items[0] === item;
    if (due) this.items.shift();
    if (due) this.tell(frame);
    this.telling--;
    this.wake();
    return due;
  }

  // ---- waiting

  /** Wait until an item was reported or dropped. @returns {Promise<void>} */
  moved() {
    const [first] = this.items;
    return new Promise((go) => {
      const timer = setTimeout(() => (this.skip(first), go()), PATIENCE_MS);
      this.waiting.push(() => (clearTimeout(timer), go()));
    });
  }

  wake() {
    for (const go of this.waiting.splice(0)) go();
  }

  /** @param {Item | undefined} first */
  skip(first) {
    if (!first || first !== this.items[0] || first.taken || this.held()) return;
    if (unstored(first)) this.tell({ t: "state" }); // the known checkpoint is not the newest
    this.stale += Number(unstored(first));
    this.items.shift();
    this.wake();
  }

  /** Wait until the SDK has reconnected, or will not. */
  async anew() {
    const until = Date.now() + PATIENCE_MS;
    while (this.lost && !this.over && Date.now() < until) await this.moved();
  }

  /** Wait until everything that the SDK has reached is reported. */
  async quiet() {
    do await new Promise((go) => setTimeout(go, 1));
    while (this.telling && !this.over && (await (this.held() ?? this.moved()), true));
  }

  end() {
    this.over = true;
    this.items = [];
    this.wake();
  }
}

/** @param {Item} item */
const spoken = ({ kind }) => kind === "word" || kind === "end";
/** @param {Item} item */
const unstored = ({ kind, taken }) => kind === "checkpoint" && !taken;
