// Formats numbers, times and names. Pure.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
export const UNKNOWN = "–";

export const count = (n) => (n == null ? UNKNOWN : whole.format(n));
export const compact = (n) => (n == null ? UNKNOWN : n < 10000 ? whole.format(n) : short.format(n));

export function money(cents) {
  if (cents == null) return UNKNOWN;
  if (cents > 0 && cents < 0.5) return "< $0.01";
  return `$${(cents / 100).toFixed(2)}`;
}

export function lasted(ms) {
  if (ms == null) return UNKNOWN;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return span(ms / 1000);
}

/** Formats seconds in the two largest units. */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function ago(seconds) {
  const s = Math.max(0, seconds);
  if (s < 5) return "just now";
  if (s < 60) return `${Math.floor(s)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

export const date = (t) => (t == null ? UNKNOWN : day.format(t * 1000));
export const time = (t) => (t == null ? UNKNOWN : clock.format(t * 1000));
export const minute = (t) => hours.format(t * 1000);
export const moment = (t) => (t == null ? UNKNOWN : full.format(t * 1000));

/** A name from a client or a model, on one line. Control characters and characters that change the direction of text
 * are escaped: they could make one name look like another. */
export function plain(text) {
  return String(text ?? "").replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : (many ?? `${one}s`)}`;

export const DIALECTS = { openai_chat: "Chat Completions", openai_responses: "Responses", anthropic_messages: "Messages" };

/** A short label for a group of hours or days: `14:00`, `19 Nov`. */
export function shortGroup(group) {
  const at = new Date(`${group}T12:00:00`);
  return Number.isNaN(at.getTime()) ? plain(group).slice(-5) : day.format(at);
}

/** The outcome of an answer in words. */
const OUTCOMES = { paused: "called tools", end: "done", length: "cut at its length limit", "hung up": "client hung up" };
export const outcome = (row) => OUTCOMES[row.outcome] ?? plain(row.outcome);

/** The states of a live turn in words. */
export const STATES = { running: "running", parked: "waiting for a tool", detached: "client is gone" };
export const STATE_TONES = { running: "good", parked: "warn" };

/** The colour of a session's outcome. */
export const TONES = { resumed: "good", continued: "good", repeated: "good", fresh: "", replayed: "warn", refused: "bad" };
