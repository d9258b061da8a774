"""Tools that cursor-agent runs itself: their names in one vocabulary, titles, ids that every API takes, how they are
shown by setting (hidden, reasoning, tool calls), what the loop guard compares of them; the words of a plan. Pure.

They are never handed to a client to run. Builds differ in what they call them (`shellToolCall`, `BashToolCall`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from ...core.events import AgentActivity, Event, ReasoningDelta
from ...core.request import ToolCall
from ...sessions.loop_guard.results import result_words

Showing = Literal["hidden", "reasoning", "tool_calls"]

ID_CHARS: Final = 64
_TITLE_CHARS: Final = 200
_SUFFIX: Final = "toolcall"
_NAMES: Final[Mapping[str, str]] = {
    "shell": "bash",
    "readfile": "read",
    "writefile": "write",
    "editfile": "edit",
    "deletefile": "delete",
    "list": "ls",
    "listdir": "ls",
}
"""Lower-case key without its suffix -> the name it is shown under, where the two differ."""
_SUBJECTS: Final = (
    "command",
    "path",
    "globPattern",
    "pattern",
    "query",
    "url",
    "searchTerm",
    "description",
    "toolName",
    "name",
)
PLAN: Final = "createPlan"


@dataclass(frozen=True, slots=True)
class OwnCall:
    id: str
    name: str
    arguments: Mapping[str, Any]
    title: str
    result: str = ""
    """What it gave, without what differs each time; empty before its end."""

    @property
    def essence(self) -> str:
        """What it asks for, equal for two calls that mean the same."""
        return msgspec.json.encode(_without_id(self.arguments), order="sorted").decode()


def read_call(record: Mapping[str, Any]) -> OwnCall:
    """A `tool_call` record; what it does not say is left empty."""
    payload = record.get("tool_call")
    name, arguments, result = _named(payload) if isinstance(payload, dict) else ("tool", {}, None)
    call_id = record.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        inner = arguments.get("toolCallId")
        call_id = inner if isinstance(inner, str) else ""
    return OwnCall(call_id, name, arguments, title(name, arguments), result_words(result))


def _named(payload: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], object]:
    """Neighbours such as `description` may stand beside the one key that names the tool."""
    for key, value in payload.items():
        if key.lower().endswith(_SUFFIX) and len(key) > len(_SUFFIX):
            inside = value if isinstance(value, dict) else {}
            return tool_name(key), _object(inside.get("args", inside.get("input"))), inside.get("result")
    function = payload.get("function")
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        return function["name"], _object(function.get("arguments")), payload.get("result")
    return "tool", {}, None


def _without_id(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if key != "toolCallId"}


def tool_name(key: str) -> str:
    bare = key[: -len(_SUFFIX)] if key.lower().endswith(_SUFFIX) else key
    return _NAMES.get(bare.lower(), bare[:1].lower() + bare[1:])


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def title(name: str, arguments: Mapping[str, Any]) -> str:
    subject = next((arguments[key] for key in _SUBJECTS if isinstance(arguments.get(key), str)), "")
    return f"{name} {' '.join(subject.split())}".strip()[:_TITLE_CHARS]


def shown(call: OwnCall, showing: Showing, number: int) -> list[Event]:
    """The events that tell of a call that the agent runs itself; `number` counts them."""
    match showing:
        case "hidden":
            return [AgentActivity(call.title)]
        case "reasoning":
            return [AgentActivity(call.title), ReasoningDelta(f"\n[cursor-agent ran {call.title}]\n")]
        case "tool_calls":
            arguments = msgspec.json.encode(call.arguments).decode()
            return [AgentActivity(call.title, ToolCall(safe_id(call.id, number), call.name, arguments))]


def plan_text(arguments: Mapping[str, Any]) -> str:
    """A plan that is made for the user, as paragraphs of the answer: nothing else says it."""
    paragraphs = [part for key in ("name", "overview", "plan") if isinstance(part := arguments.get(key), str) and part]
    return "\n\n".join(["", *paragraphs, ""]) if paragraphs else ""


def told(message: str, showing: Showing) -> list[Event]:
    """The loop guard has something to say, and nobody can tell the model."""
    activity: list[Event] = [AgentActivity(message)]
    return [*activity, ReasoningDelta(f"\n{message}\n")] if showing == "reasoning" else activity


def safe_id(call_id: str, number: int) -> str:
    """An id that every dialect takes, and that no ticket of ours looks like."""
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", call_id) or "call"
    return f"own_{number}_{safe}"[:ID_CHARS]
