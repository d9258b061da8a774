// The frame of the dashboard: sign-in, tabs, the event stream, banners.

import * as api from "./api.js";
import { announce, badge, button, code, h, prose, renew } from "./dom.js";
import { clients } from "./clients.js";
import { conversations } from "./conversations.js";
import { models } from "./models.js";
import { overview } from "./overview.js";
import { playground } from "./playground.js";
import { settings } from "./settings.js";
import { usage } from "./usage.js";
import { closed, trouble } from "./view.js";
import { ago, plain, span, time } from "./words.js";

const TABS = [overview, conversations, usage, models, clients, playground, settings];
/** Old tab names -> their new places. */
const MOVED = { now: "overview", try: "playground", health: "settings/health", record: "settings/record" };
const at = (id) => document.getElementById(id);

const app = { now: null, session: null, lost: false, newer: false };
let shown = closed;
let view = null;

const events = new api.Events({
  now(snapshot) {
    app.now = snapshot;
    app.lost = false;
    frame();
    shown.now?.(snapshot);
  },
  changed: (what) => shown.changed?.(what),
  lost() {
    if (!app.lost) announce("The gateway does not answer.");
    app.lost = true;
    frame();
  },
  back(session) {
    if (app.lost) announce("The gateway is back.");
    app.newer = app.session !== null && session.version !== app.session.version;
    app.session = session;
    app.lost = false;
    frame();
    shown.changed?.([]);
  },
});

/** Parses `#/conversations/ID?q=text` to {tab, rest, query}. */
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = (MOVED[path] ?? path).split("/");
  const tab = TABS.find((one) => one.name === name) ?? overview;
  return { tab, rest: decoded(rest.join("/")), query: new URLSearchParams(query ?? "") };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray percent sign
  }
}

function show() {
  shown.close?.();
  shown = closed;
  const to = route();
  const other = view !== null && (view.tab !== to.tab || view.rest !== to.rest);
  view = to;
  frame();
  if (!app.session?.signed_in) return;
  const title = to.tab.names?.(to.rest) || to.tab.title;
  document.title = `${title} – Caretway`;
  renew(at("view"), h("h1", null, title), h("div", { class: "content", "data-key": to.tab.name + "/" + to.rest }));
  shown = to.tab.open(at("view").lastChild, to, app);
  if (app.now) shown.now?.(app.now);
  if (other) {
    at("view").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function frame() {
  const signedIn = Boolean(app.session?.signed_in);
  renew(at("banners"), banners());
  renew(at("state"), signedIn ? state() : null);
  renew(
    at("tabs"),
    signedIn &&
      TABS.map((tab) =>
        h("a", { href: `#/${tab.name}`, "aria-current": view?.tab === tab ? "page" : null }, tab.title),
      ),
  );
}

function banners() {
  const { backend, recording } = app.now ?? {};
  const simulated = app.session?.signed_in && backend?.standing === "simulated";
  return [
    simulated &&
      banner(
        "simulated loud",
        h("strong", null, "Simulated answers. "),
        "No model is asked. For real ones run ",
        code("caretway login"),
        backend.asked_for ? ", then start it again without the simulator." : "; no restart.",
      ),
    app.session?.signed_in &&
      backend?.standing === "stand-in" &&
      banner("stand-in loud", h("strong", null, "Not Cursor. "), "Another address answers."),
    app.lost &&
      banner(
        "lost bad",
        h("strong", null, "The gateway does not answer. "),
        "What you see is old. If the gateway was stopped, start it with ",
        code("caretway serve"),
        ".",
      ),
    app.newer && banner("newer", "The gateway was updated. ", button("Load the new dashboard", () => location.reload(), "quiet")),
    recording &&
      banner("recording", h("span", { class: "dot bad" }), `Recording with content until ${time(recording.until)}. `, h("a", { href: "#/settings/record" }, "Stop or save")),
  ];
}

const banner = (kind, ...children) => h("div", { class: `banner ${kind}`, role: "note", "data-key": kind }, children);

const STANDINGS = { official: "good", unofficial: "warn", "stand-in": "loud", simulated: "loud" };

function state() {
  const { backend } = app.now ?? {};
  return [
    backend && badge(`${plain(backend.name)} · ${backend.standing}`, STANDINGS[backend.standing]),
    h("span", { class: "link" }, h("span", { class: `dot ${app.lost ? "bad" : "good"}` }), app.lost ? "no connection" : "live"),
    app.session.key_required && button("Sign out", leave, "quiet"),
  ];
}

async function leave() {
  events.close();
  try {
    await api.signOut();
  } catch (failure) {
    if (failure.status !== 401) {
      events.open();
      renew(at("banners"), banners(), trouble(failure));
      return;
    }
  }
  app.now = null;
  await start();
  announce("Signed out.");
}

function signInForm(said) {
  const field = h("input", { type: "password", id: "key", autocomplete: "current-password", required: true, "aria-describedby": "about-key" });
  const answer = h("div", { role: "alert" }, said && h("p", { class: "error" }, said));
  const form = h(
    "form",
    { class: "panel sign-in", on: { submit: enter } },
    h("h1", null, "Sign in"),
    h("p", { id: "about-key" }, "This gateway asks for a key: the one that its clients use. It is sent once; a cookie that only opens this dashboard stays, for twelve hours."),
    h("label", { for: "key" }, "Key"),
    field,
    answer,
    h("button", { type: "submit", class: "main" }, "Sign in"),
    h("p", { class: "muted" }, "A key with a name opens the dashboard if it was made with ", code("caretway key new --name NAME --page"), "."),
  );
  async function enter(event) {
    event.preventDefault();
    try {
      app.session = await api.signIn(field.value.trim());
    } catch (failure) {
      renew(answer, h("p", { class: "error" }, prose(failure.message)), failure.hint && h("p", null, prose(failure.hint)));
      field.select();
      return;
    }
    events.open();
    show();
    announce("Signed in.");
  }
  document.title = "Sign in – Caretway";
  at("view").replaceChildren(form);
  field.focus();
}

function askForKey() {
  if (!app.session?.signed_in) return;
  events.close();
  app.now = null;
  start("You were signed out. Sign in again with the gateway's key.");
}

/** Fetches the session, then shows the dashboard or the sign-in form. */
async function start(said) {
  shown.close?.();
  shown = closed;
  try {
    app.session = await api.session();
  } catch (failure) {
    at("view").replaceChildren(trouble(failure));
    setTimeout(() => start(said), 2000);
    return;
  }
  frame();
  if (app.session.signed_in) {
    events.open();
    show();
  } else {
    signInForm(app.session.key_required ? said : "");
  }
}

// Updates relative times: one timer for the page, and only changed texts are written.
function tick() {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("time[data-at]")) {
    const seconds = Date.now() / 1000 - Number(element.dataset.at);
    const text = element.dataset.kind === "ago" ? ago(seconds) : span(seconds);
    if (element.textContent !== text) element.textContent = text;
  }
}

api.onSignedOut(askForKey);
addEventListener("hashchange", show);
setInterval(tick, 1000);
start();
