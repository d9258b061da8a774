"""The cursor-agent stand-in's error texts, and the `sim-agent:` lines in a prompt that cause faults.

Texts follow public descriptions of the real program's failures. `sim-agent:` lines are read in the message with the
script. Pure, and quick to import.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
    # Names that `sim: fail` accepts ...
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
    # ... and names that only `sim-agent: error` accepts.
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
    """The faults of the last user message with a line for the simulator."""
    said = next((text for role, text in reversed(blocks) if role == "user" and _ANY.search(text)), "")
    return Faults(dict(_LINE.findall(said)))


# ---- tools

# Tools that the stand-in pretends to run: their keys, whether they need permission, made-up results.


@dataclass(frozen=True, slots=True)
class OwnTool:
    key: str
    kind: str
    """The tool's kind in ACP."""
    gated: bool = False
    """The tool changes something or uses the network: forbidden in ask mode, otherwise only with permission."""


TOOLS: Final[Mapping[str, OwnTool]] = {
    "shell": OwnTool("shellToolCall", "execute", gated=True),
    "shell_stream": OwnTool("shellToolCall", "execute", gated=True),
    "background_shell": OwnTool("shellToolCall", "execute", gated=True),
    "read": OwnTool("readToolCall", "read"),
    "write": OwnTool("writeToolCall", "edit", gated=True),
    "delete": OwnTool("deleteToolCall", "edit", gated=True),
    "ls": OwnTool("lsToolCall", "read"),
    "grep": OwnTool("grepToolCall", "search"),
    "fetch": OwnTool("webFetchToolCall", "fetch", gated=True),
}
OTHER: Final = OwnTool("mcpToolCall", "other")

QUERIES: Final[Mapping[str, str]] = {
    "web_search": "webSearchRequestQuery",
    "ask_question": "askQuestionInteractionQuery",
    "create_plan": "createPlanRequestQuery",
    "web_fetch": "webFetchRequestQuery",
    "switch_mode": "switchModeRequestQuery",
}


def tool(kind: str) -> OwnTool:
    return TOOLS.get(kind, OTHER)


def outcome(kind: str, args: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the `success` member and its text."""
    subject = str(next(iter(args.values()), ""))
    text = f"simulated {kind} of {subject}" if subject else f"simulated {kind}"
    if tool(kind).key == "shellToolCall":
        return {"stdout": text + "\n", "stderr": "", "exitCode": 0}, text
    return {"content": text}, text


# ---- chats

# The stand-in's files, in CURSOR_CONFIG_DIR or a cache directory: chats, whether it is signed in, how often a prompt
# was tried.

SIGNED_OUT_MARK: Final = "signed-out"
USER: Final = "sim@caretway.invalid"


def config_directory(environ: Mapping[str, str]) -> str:
    if named := environ.get("CURSOR_CONFIG_DIR"):
        return named
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "caretway-sim-agent")


@dataclass(slots=True)
class StoredChat:
    id: str
    blocks: list[tuple[str, str]] = field(default_factory=list)
    """(role, text) of all messages, prompts as they were sent."""


class Chats:
    def __init__(self, root: str) -> None:
        self._root = root

    def new(self) -> StoredChat:
        digits = os.urandom(16).hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return StoredChat("-".join(digits[a:b] for a, b in itertools.pairwise(cuts)))

    def find(self, chat_id: str) -> StoredChat | None:
        with contextlib.suppress(OSError, ValueError):
            with open(os.path.join(self._root, "chats", os.path.basename(chat_id), "chat.json")) as file:
                rows = json.load(file)
            return StoredChat(chat_id, [(str(role), str(text)) for role, text in rows])
        return None

    def save(self, chat: StoredChat) -> None:
        folder = os.path.join(self._root, "chats", chat.id)
        os.makedirs(folder, exist_ok=True)
        beside = os.path.join(folder, f"chat.{os.getpid()}")
        with open(beside, "w") as file:
            json.dump(chat.blocks, file)
        os.replace(beside, os.path.join(folder, "chat.json"))

    def attempts(self, prompt: str) -> int:
        """Counts an attempt at this prompt, and returns how many there were, with this one."""
        name = hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:32]
        folder = os.path.join(self._root, "attempts")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "a+") as file:
            file.write(".")
            return file.tell()

    @property
    def signed_in(self) -> bool:
        return not os.path.exists(os.path.join(self._root, SIGNED_OUT_MARK))

    def sign_in(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._root, SIGNED_OUT_MARK))

    def sign_out(self) -> None:
        os.makedirs(self._root, exist_ok=True)
        with open(os.path.join(self._root, SIGNED_OUT_MARK), "w"):
            pass
