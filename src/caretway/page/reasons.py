"""Why a response was fresh, continued, resumed, replayed or refused, as a sentence with what to change. Pure.

The reasons are those of `x-caretway-session-reason`; one that has no row here is told in its own words.
"""

from typing import Final

_NOTHING: Final = "Nothing needs to be changed."
_SAYS: Final = {
    "first message": f"A new conversation. {_NOTHING}",
    "fresh was asked for": "The request or the settings ask for `fresh`: the whole history was sent. "
    "Leave out `x-caretway-session: fresh`, or set session to auto.",
    "tool results for a parked turn": f"The run waited for these results and went on. {_NOTHING}",
    "tool results for a parked turn; new tools wait": "The run went on; tools that were added meanwhile are offered to "
    f"the next one. {_NOTHING}",
    "the transcript is known": f"Only the new message was sent; Cursor had the rest. {_NOTHING}",
    "the same request was answered before": "The client repeated a request and got the same answer. If that happens "
    "often, raise the client's timeout.",
    "this backend cannot park a turn": "Every tool result starts a new run with the whole history. "
    "The backends agent and sdk keep the run waiting.",
    "this backend keeps no conversations": "Every message is sent with the whole history. "
    "The backend agent continues conversations.",
    "unknown or expired ticket": "The results came for a run that is gone: it waited too long, or the gateway was "
    "started again. Raise parked_timeout if tools take long.",
    "its replica is gone": "The gateway that held the run has died or was stopped; another one went on from its "
    "history. "
    "Stop gateways with SIGTERM, and give them time (cluster_drain).",
    "its replica is gone, and Redis is away": "The gateway that held the run is gone, and Redis could not be asked who "
    "goes on with it. Look after Redis.",
    "its replica has another version": "The gateway that held the run cannot be talked to: it has another version. "
    "This ends with the upgrade.",
    "its turn is on another replica": "The results came over a WebSocket, and another gateway held the run. "
    "It happens once after a WebSocket was opened anew.",
    "tickets of several turns": "One request had results of several runs. Answer each of them in its own conversation.",
    "several results for one ticket": "One call was answered twice with different results. Send one result for a call.",
    "the model changed": "The model was changed while a run waited. Finish the tool call first.",
    "the tools changed": "A tool was changed or removed while the run waited. Keep the list of tools while calls are "
    "open.",
    "the history changed": "What was said before was changed by the client. Some clients trim old tool results; "
    "switch that off where the cache matters.",
    "an image beside tool results": "An image came with the results, and a waiting run cannot take it. "
    "Let the tool return it.",
    "these results were given before": "These results were answered already, in another conversation. "
    "Branching a conversation replays it once.",
    "these results were given before, beside other words": "The client sent the same results again with other words: "
    "the history was replayed for a new answer.",
    "an earlier request with these results was given up": "The client hung up on its first try and asked again. "
    "Raise the client's timeout.",
    "nothing new was said": "The history ends with the assistant. Send a user message after it.",
    "no known conversation begins like this": "The history is not one that the gateway has kept: edited, from another "
    "model or account, too old, or from before a restart without its store.",
    "the parked turn was lost": "The waiting run was lost at Cursor, and the history was replayed. "
    "If it happens often, run `caretway doctor`.",
    "compacted": f"The client summarised its history, so all of it is new to Cursor. {_NOTHING}",
}
_BEGINS: Final = (
    (
        "a tool was loaded: ",
        "The client loaded a tool that the waiting run could not call. Offer it from the beginning to keep the run.",
    ),
)
_REFUSED: Final = "The request was refused before a model was asked; its error says why."


def explained(session: str, reason: str) -> str:
    if session == "refused":
        return _REFUSED
    if (known := _SAYS.get(reason)) is not None:
        return known
    for beginning, sentence in _BEGINS:
        if reason.startswith(beginning):
            return sentence
    told = reason[:1].upper() + reason[1:]
    if session == "replayed":
        return f"{told}: the whole history was sent to a new run. `caretway usage` counts how often."
    return f"{told}." if told else ""
