// Record, a part of Settings: records conversations for a bounded time and saves them as scripts of the simulator.

import { change, text } from "./api.js";
import { announce, button, code, col, copyable, empty, h, num, panel, small, table } from "./dom.js";
import { fetched, trouble, when } from "./view.js";
import { count, plain, time } from "./words.js";

const MINUTES = [5, 15, 60];

export const record = {
  open(root) {
    let failure = null;
    let script = null;
    const view = fetched(root, { paths: ["/record", "/content"], on: ["record", "conversations"], draw });
    async function attempt(work, said) {
      try {
        failure = null;
        await work();
        if (said) announce(said);
      } catch (caught) {
        failure = caught;
      }
      await view.load();
    }
    const forSeconds = (seconds) => attempt(() => change("PUT", "/record", { seconds }), seconds ? "Recording." : "Recording has ended.");
    const keep = (on) => attempt(() => change("PUT", "/content", { keep: on }), on ? "Content is kept." : "Content is not kept any more.");
    const show = (id) => attempt(async () => (script = { id, text: await text(`/record/${encodeURIComponent(id)}`) }));
    function draw(told, content) {
      const on = told.until != null && told.until * 1000 > Date.now();
      return [
        failure && trouble(failure),
        panel(
          "Record",
          h("p", null, "What clients and models say is recorded with its content, in the memory of this gateway, until the time is over. A recorded conversation can be saved as a script of the simulator, so that what went wrong becomes a test."),
          on
            ? h("p", { class: "row" }, h("span", null, h("span", { class: "dot bad" }), `Recording until ${time(told.until)}.`), button("Stop", () => forSeconds(0), "danger"))
            : h("p", { class: "row" }, MINUTES.map((minutes) => button(`Record for ${minutes} min`, () => forSeconds(minutes * 60)))),
        ),
        panel(
          "Recorded",
          told.conversations.length === 0
            ? empty("Nothing is recorded.", on ? "It shows up here with its first answer." : "Start a recording, then let the client do what goes wrong.")
            : table(
                "Recorded conversations",
                [
                  col("When", (row) => when(row.at)),
                  col("Conversation", (row) => h("a", { href: `#/conversations/${encodeURIComponent(row.id)}` }, code(row.id))),
                  num("Steps", (row) => count(Array.isArray(row.steps) ? row.steps.length : row.steps)),
                  {
                    title: "",
                    cell: (row) =>
                      h(
                        "span",
                        { class: "row" },
                        button("Show", () => show(row.id), { class: "quiet", "aria-label": `Show the script of ${plain(row.id)}` }),
                        h("a", { class: "button quiet", href: `/caretway/v1/record/${encodeURIComponent(row.id)}`, download: `caretway-${row.id}.sim.txt`, "aria-label": `Save the script of ${plain(row.id)}` }, "Save"),
                      ),
                  },
                ],
                told.conversations,
                (row) => row.id,
              ),
        ),
        script && panel("Script", small("Of ", code(script.id), ". Read it before you pass it on: it holds what was said."), copyable(script.text, "the script")),
        panel(
          "Keep content",
          h("p", null, "Off, unless you switch it on: then a conversation also shows what was said, and the list of conversations their first words. It is kept in memory, a bounded amount of it, and forgotten with the conversation or when the gateway stops."),
          button(content.keep ? "Do not keep content" : "Keep content", () => keep(!content.keep), { "aria-pressed": String(content.keep) }),
        ),
      ];
    }
    return view;
  },
};
