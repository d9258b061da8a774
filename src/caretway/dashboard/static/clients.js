// Clients: how to start or set up each client, when it was last seen, and its mistakes.

import { badge, code, col, copyable, empty, h, num, panel, path, prose, small, table } from "./dom.js";
import { fetched, when } from "./view.js";
import { count, plain, UNKNOWN } from "./words.js";

export const clients = {
  name: "clients",
  title: "Clients",
  open: (root) => fetched(root, { paths: ["/clients"], on: ["clients", "models"], draw }),
};

function draw(told) {
  const mistakes = told.seen.flatMap((one) => one.mistakes.map((mistake) => ({ ...mistake, client: one.client })));
  return [
    mistakes.length > 0 &&
      panel(
        "Mistakes of clients",
        table(
          "Requests that clients got wrong",
          [
            col("Client", (row) => plain(row.client) || UNKNOWN),
            path("Asked for", (row) => code(row.what)),
            col("Got", (row) => badge(`${row.status} ${plain(row.code)}`, "bad")),
            col("What to do", (row) => prose(row.says)),
            num("Times", (row) => count(row.count)),
            num("Last", (row) => when(row.last_at)),
          ],
          mistakes,
          (row) => `${row.client} ${row.what} ${row.status} ${row.code}`,
        ),
      ),
    panel(
      "Seen lately",
      told.seen.length === 0
        ? empty("No client has asked yet.", "Start one with a line from below.")
        : table(
            "Clients that asked",
            [
              col("Client", (row) => plain(row.client) || UNKNOWN),
              num("Responses", (row) => count(row.responses)),
              num("Mistakes", (row) => count(row.mistakes.reduce((sum, one) => sum + one.count, 0))),
              num("Last", (row) => when(row.last_at)),
            ],
            told.seen,
            (row) => row.client,
          ),
    ),
    panel(
      "Set up a client",
      h("p", null, "OpenAI base URL ", code(`${told.url}/v1`), ", Anthropic base URL ", code(told.url), ". ", told.key_required ? "A key is required." : "Any key will do."),
      told.clients.map((client) => entry(client)),
    ),
  ];
}

function entry(client) {
  return h(
    "details",
    { class: "entry", "data-key": client.name },
    h(
      "summary",
      null,
      h("strong", null, client.title),
      " ",
      client.installed ? badge("installed", "good") : badge("not installed"),
      client.last_seen && h("span", { class: "muted small" }, " seen ", when(client.last_seen)),
    ),
    !client.installed && [h("p", { class: "small" }, "Install it:"), copyable(client.install, `how ${client.title} is installed`)],
    h("p", { class: "small" }, "Start it once, and change no file of it:"),
    copyable(client.launch, `the line that starts ${client.title}`),
    client.setup
      ? [h("p", { class: "small" }, "Or set it up for good:"), copyable(client.setup, `the line that sets up ${client.title}`), h("p", { class: "small" }, "then ", code(client.then))]
      : small(`There is no setup: ${client.then}.`),
    client.paste.map((piece) => [h("p", { class: "small" }, "By hand: ", code(piece.title)), copyable(piece.text, `${client.title}: ${piece.title}`)]),
    small(`It speaks ${client.api}. More: docs/clients/${client.docs}`),
  );
}
