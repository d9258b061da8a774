"""The cursor-agent stand-in's error texts, and the `sim-agent:` lines in a prompt that make it misbehave.

Texts follow the public descriptions of the real program's failures. `sim-agent:` lines are read in the same message in
which the script is. Pure, and quick to import.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SIGNED_OUT: Final = (
    "Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY environment variable."
)
UNTRUSTED: Final = (
    "Workspace Trust Required\n\nCursor Agent can execute code in this directory.\n"
    "Pass --trust, --yolo, or -f if you trust this directory."
)
MODELS: Final[Mapping[str, str]] = {
    "auto": "Auto",
    "sim-auto": "Sim Auto",
    "sim-fast": "Sim Fast",
    "sim-think": "Sim Think",
    "sim-composer": "Sim Composer",
    "sim-composer-high": "Sim Composer High",
    "sim-composer-high-fast": "Sim Composer High Fast",
}
NO_MODEL: Final = "no-such-model"


def bad_model(model: str) -> str:
    return f"Cannot use this model: {model}. Available models: {', '.join(MODELS)}"


FAILURES: Final[Mapping[str, str]] = {
    # What `sim: fail` can name ...
    "unauthenticated": SIGNED_OUT,
    "usage_limit": (
        "\x1b[31mError:\x1b[0m You've hit your usage limit. You've saved $12 on API model usage this month with Pro. "
        "Your usage limits will reset on 12/24/2031. Switch to continue with sim-fast."
    ),
    "rate_limit": "Error: 429 Too Many Requests",
    "overflow": "Error: the prompt is too long: it does not fit the context window",
    "bad_model": bad_model("sim-unknown"),
    "deprecated": "Error: [failed_precondition] This version of Cursor Agent is no longer supported.",
    "unavailable": "Error: connect ECONNREFUSED 127.0.0.1:443",
    "internal": "Error: [internal] something broke, says the author of this message",
    "bare": "ConnectError: [resource_exhausted] Error",
    "quota": "ConnectError: [resource_exhausted] You've hit your usage limit",
    "outdated": "ConnectError: [permission_denied] Update Required",
    "schema": "ConnectError: [internal] We're having trouble connecting to the model provider.",
    "policy": "ConnectError: [failed_precondition] Review Data Policy",
    "plan": "ConnectError: [failed_precondition] Error",
    "not_in_plan": "ConnectError: [failed_precondition] This model is not included in your plan",
    "gone": "ConnectError: [not_found] Error",
    "late": "ConnectError: [invalid_argument] Error",
    "region": "ConnectError: [permission_denied] Model not available",
    "team_region": "ConnectError: [failed_precondition] This region is not yet available for your team",
    "max_mode": "ConnectError: [invalid_argument] Max mode required",
    "denied": "ConnectError: [permission_denied] Error",
    "no_exec": "ConnectError: [internal] No exec result",
    "picture": "ConnectError: [internal] Unable to parse image",
    "eof": "ConnectError: [unavailable] Error",
    # ... and what only `sim-agent: error` can.
    "not_logged_in": "Not logged in",
    "exhausted": "ConnectError: [resource_exhausted] Error",
    "connect_unavailable": "ConnectError: [unavailable] Error",
    "fetch": "TypeError: fetch failed",
    "chat_gone": "Error: Chat not found",
    "quota_and_auth": "You've hit your usage limit (authentication required to raise it: run 'agent login').",
}

_LINE: Final = re.compile(r"^[ \t]*sim-agent:[ \t]*(\S+)[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_ANY: Final = re.compile(r"^[ \t]*sim(?:-agent)?:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Faults:
    """The `sim-agent:` lines of one prompt."""

    given: Mapping[str, str]

    def has(self, word: str) -> bool:
        return word in self.given

    def text(self, word: str) -> str:
        return self.given.get(word, "").replace("\\n", "\n")

    def number(self, word: str, default: float) -> float:
        try:
            return float(self.given[word])
        except (KeyError, ValueError):
            return default


def read_faults(blocks: Sequence[tuple[str, str]]) -> Faults:
    """From the last message of the user that has any line for the simulator."""
    said = next((text for role, text in reversed(blocks) if role == "user" and _ANY.search(text)), "")
    return Faults(dict(_LINE.findall(said)))
