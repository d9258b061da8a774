/**
 * Decides when each thing of a run is told: words, calls and checkpoints in the order in which they came on the wire, and
 * what a lost attempt leaves out. The SDK hears words one after the other, stores checkpoints beside them and makes calls
 * at once, so each can overtake the others.
 *
 * When a connection breaks, the SDK first hears what has come, then goes on from the last checkpoint that it has stored.
 * One that it stores after that is none: what it holds is said again.
 */

const PATIENCE_MS = 3000; // for one that came and of which the SDK says nothing

/** @typedef {{ kind: "word" | "end" | "checkpoint" | "other", data?: Buffer, taken?: boolean }} Item */

export class Order {
  /** @param {(frame: object) => void} tell @param {() => Promise<void> | null} held until more may be told */
  constructor(tell, held) {
    this.tell = tell;
    this.held = held;
    this.items = /** @type {Item[]} */ ([]); // that are not told yet; taken: the SDK has come to it
    this.last = /** @type {Buffer} */ (Buffer.alloc(0)); // checkpoint on the wire
    this.lost = this.over = false;
    this.telling = this.stale = 0; // stale: checkpoints of lost attempts that the SDK has yet to store
    this.waiting = /** @type {(() => void)[]} */ ([]);
  }

  // ---- on the wire

  /** @param {Item["kind"]} kind @param {Buffer} data */
  came(kind, data) {
    if (kind === "other" || (kind === "checkpoint" && data.equals(this.last))) return; // which says nothing new
    if (kind === "checkpoint") this.last = data;
    this.items.push({ kind, data });
  }

  /** The connection is gone. The SDK still hears the words, and stores the checkpoints before them. */
  broke() {
    if (!this.lost) this.leaveOut(this.items.findLastIndex(spoken) + 1);
    this.lost = true;
  }

  /** An attempt; again: the SDK has gone on by itself. @param {boolean} again */
  begins(again) {
    this.lost = false;
    this.leaveOut(0);
    this.items = this.items.filter(({ taken }) => taken);
    if (again) this.atLast({ t: "again" });
  }

  /** What follows a checkpoint that is not stored is said again. @param {number} from */
  leaveOut(from) {
    const at = this.items.findIndex((item, n) => n >= from && unstored(item));
    if (at < 0) return this.wake();
    this.stale += this.items.splice(at).filter(unstored).length;
    this.last = Buffer.alloc(0);
    this.wake();
  }

  // ---- as the SDK comes to it. False: it is left out

  /** @param {Item["kind"]} what @param {object} frame */
  async heard(what, frame) {
    const item = this.items.find(({ kind, taken }) => kind === what && !taken);
    if (!item && !this.lost) this.tell(frame);
    return item ? this.inTurn(item, frame) : !this.lost;
  }

  /** After the words that lead to it and the calls before it. @param {object} frame */
  call(frame) {
    return this.atLast(frame, this.items.findLastIndex(({ kind }) => kind !== "checkpoint") + 1);
  }

  /** @param {object} frame @param {number} at */
  atLast(frame, at = this.items.length) {
    const item = /** @type {Item} */ ({ kind: "other" });
    this.items.splice(at, 0, item);
    return this.inTurn(item, frame);
  }

  /** The one that is being stored; null: it belongs to a lost attempt. @param {Uint8Array} data @param {boolean} known */
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

  /** Told when the SDK has taken note of it: it goes on from there now. @param {Item} item @param {object} frame */
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

  /** Until something was told or left out. @returns {Promise<void>} */
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
    if (unstored(first)) this.tell({ t: "state" }); // the one that is known is not the newest
    this.stale += Number(unstored(first));
    this.items.shift();
    this.wake();
  }

  /** Until the SDK has gone on, or will not. */
  async anew() {
    const until = Date.now() + PATIENCE_MS;
    while (this.lost && !this.over && Date.now() < until) await this.moved();
  }

  /** Until everything that the SDK has come to is told. */
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
