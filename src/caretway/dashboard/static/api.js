// Talks to the dashboard's API: requests with the CSRF token, and one event stream that reconnects after a restart.

const BASE = "/caretway/v1";
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;

/** A failure with a message for people. */
export class Failure extends Error {
  constructor(message, { status = 0, code = "", hint = "" } = {}) {
    super(message);
    Object.assign(this, { status, code, hint });
  }
}

let csrf = null;
let whenSignedOut = () => {};

export function onSignedOut(listener) {
  whenSignedOut = listener;
}

export async function session() {
  const told = await read(await send("GET", "/session"));
  csrf = told.csrf;
  return told;
}

export async function signIn(key) {
  const told = await read(await send("POST", "/session", { key }));
  csrf = told.csrf;
  return told;
}

export async function signOut() {
  await change("DELETE", "/session");
  csrf = null;
}

export const get = async (path, signal) => read(await ask("GET", path, undefined, signal));
export const text = async (path) => (await ask("GET", path)).text();
export const change = async (method, path, body) => read(await ask(method, path, body));

/** Cancels the turn that waits for this call, also while the tab is closing. */
export function release(call) {
  send("DELETE", `/turns/${encodeURIComponent(call)}`, undefined, undefined, true).catch(() => {});
}

/** A response whose body the caller reads. If a restart has changed the CSRF token, fetches it and retries. */
export async function ask(method, path, body, signal) {
  let response = await send(method, path, body, signal);
  if (response.status === 403) {
    const failure = await failed(response);
    if (failure.code !== "csrf_wrong") throw failure;
    await session();
    response = await send(method, path, body, signal);
  }
  if (response.ok) return response;
  const failure = await failed(response);
  if (response.status === 401) whenSignedOut();
  throw failure;
}

async function send(method, path, body, signal, keepalive) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrf) headers["x-caretway-csrf"] = csrf;
  try {
    return await fetch(BASE + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      keepalive,
      cache: "no-store",
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new Failure("The gateway does not answer.", { hint: "Is it running? Start it with `caretway serve`." });
  }
}

async function read(response) {
  if (!response.ok) throw await failed(response);
  return response.json();
}

async function failed(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Not JSON: only the status is known.
  }
  return new Failure(error.message ?? `The gateway answered with status ${response.status}.`, {
    status: response.status,
    code: error.code ?? "",
    hint: error.hint ?? "",
  });
}

/** The event stream of a visible page. A hidden page has none, because browsers limit connections to one address. */
export class Events {
  constructor(listeners) {
    this.listeners = listeners;
    this.source = null;
    this.timer = 0;
    this.wait = FIRST_WAIT_MS;
    this.wanted = false;
    document.addEventListener("visibilitychange", () => this.turn());
    addEventListener("pagehide", () => this.shut());
    addEventListener("pageshow", () => this.turn());
  }

  open() {
    this.wanted = true;
    this.turn();
  }

  close() {
    this.wanted = false;
    this.shut();
  }

  turn() {
    if (!this.wanted || document.hidden) this.shut();
    else if (!this.source && !this.timer) this.dial();
  }

  shut() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.source?.close();
    this.source = null;
  }

  dial() {
    const source = new EventSource(`${BASE}/events`);
    this.source = source;
    source.addEventListener("open", () => (this.wait = FIRST_WAIT_MS));
    source.addEventListener("now", (event) => this.listeners.now(JSON.parse(event.data)));
    source.addEventListener("changed", (event) => this.listeners.changed(JSON.parse(event.data).what));
    source.addEventListener("signed_out", () => {
      this.close();
      whenSignedOut();
    });
    source.addEventListener("error", () => this.lost());
  }

  /** Reconnects here, because the browser gives up after a 401 or 503. */
  lost() {
    this.shut();
    this.timer = setTimeout(() => this.again(), this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
    this.listeners.lost();
  }

  async again() {
    try {
      const told = await session();
      this.timer = 0;
      if (!this.wanted) return;
      if (!told.signed_in) return whenSignedOut();
      this.listeners.back(told);
      this.turn();
    } catch {
      if (this.wanted) this.lost();
    }
  }
}
