"""Reads values of parsed JSON for every dialect's decoder, with errors that name the field (`messages[3].content`).
Lists unknown fields and known fields without effect (`temperature`, `seed`) for `x-caretway-ignored`.
`null` counts as absent if a field is optional, because clients send both.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..core.json_bounds import MAX_LEVELS, nested_deeply
from ..core.request import Message, Role, Text, ToolChoice, ToolSpec, TurnRequest
from .kinds import COMPACTION

# ---- Asks a model to summarise a conversation, for every dialect with compaction: a prompt, and a turn without tools
# or an output format. An empty summary is an error. Pure.

ASK: Final = (
    "Do not go on with the task. Write a summary of this conversation for somebody who will continue it without seeing "
    "it: the goal, what was decided and why, what was done and found out (files, commands, results), what is left to "
    "do, and what the user said about how to work. Be complete and brief. Answer with the summary alone."
)

HEADING: Final = "Summary of the conversation so far, written before it was shortened:"
"""The heading of a summary that a client sends back."""


def asking(request: TurnRequest, instructions: str = "") -> TurnRequest:
    """The conversation with a request for its summary as the last message, without the answer's length limit."""
    asked = Message(Role.USER, (Text(instructions.strip() or ASK),))
    return replace(
        request,
        messages=(*request.messages, asked),
        tools=(),
        tool_choice=ToolChoice(),
        output_format=None,
        stop=(),
        max_output=None,
        kind=COMPACTION,
    )


def no_summary() -> GatewayError:
    return bad_request("The model wrote no summary.", hint="Ask again, or compact in the client.")


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}

MAX_STOP_LENGTH: Final = 1_000
"""Characters of one stop sequence."""


class FieldPath(Struct, frozen=True):
    """The path of a value in a request, e.g. `messages[3].content[0]`. Rendered as text only for an error, because a
    long history has thousands of paths."""

    holder: "FieldPath | str"
    """The path of the containing object; empty: the body itself."""
    key: str
    index: int | None = None

    def __str__(self) -> str:
        path = f"{self.holder}.{self.key}" if self.holder else self.key
        return path if self.index is None else f"{path}[{self.index}]"


At = FieldPath | str


def kind_of(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def wrong_type(param: At, expected: str, value: object) -> GatewayError:
    return bad_request(
        f"Invalid type for '{param}': expected {expected}, got {kind_of(value)}.", param=str(param), code="invalid_type"
    )


def invalid_value(param: At, message: str) -> GatewayError:
    return bad_request(f"Invalid value for '{param}': {message}", param=str(param), code="invalid_value")


def missing(param: At, *, code: str = "missing_required_parameter") -> GatewayError:
    return bad_request(f"Missing required parameter: '{param}'.", param=str(param), code=code)


def unsupported(param: At, message: str, *, code: str | None = None, hint: str = "") -> GatewayError:
    return GatewayError(ErrorKind.UNSUPPORTED, message, hint=hint, param=str(param), code=code)


def an_object(value: object, param: At) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise wrong_type(param, "an object", value)
    return value


def an_array(value: object, param: At) -> list[object]:
    if not isinstance(value, list):
        raise wrong_type(param, "an array", value)
    return value


def a_string(value: object, param: At) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    return value


def stop_sequences(values: list[object], param: str, most: int) -> tuple[str, ...]:
    """The stop sequences without empty strings and duplicates. Number and length are limited, because every piece of
    the answer is searched for them."""
    if len(values) > most:
        raise invalid_value(param, f"at most {most} sequences are possible, not {len(values)}.")
    for i, one in enumerate(values):
        if len(a_string(one, FieldPath("", param, i))) > MAX_STOP_LENGTH:
            raise invalid_value(FieldPath("", param, i), f"a stop sequence has at most {MAX_STOP_LENGTH} characters.")
    return tuple(dict.fromkeys(one for one in values if isinstance(one, str) and one))


def needed_string(holder: Mapping[str, object], key: str, at: At = "") -> str:
    """A required string that is not empty."""
    value = holder.get(key)
    if isinstance(value, str) and value.strip():
        return value
    param = FieldPath(at, key)
    if value is None:
        raise missing(param)
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    raise invalid_value(param, "it must not be empty.")


def optional_string(holder: Mapping[str, object], key: str, at: At = "") -> str | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong_type(FieldPath(at, key), "a string", value)
    return value


def call_arguments(holder: Mapping[str, object], at: At) -> str:
    """The `arguments` of an earlier call as text, even if invalid JSON. Missing or empty arguments become `{}`."""
    text = optional_string(holder, "arguments", at) or "{}"
    if nested_deeply(text):
        raise invalid_value(FieldPath(at, "arguments"), f"it is nested more than {MAX_LEVELS} levels deep.")
    return text


def optional_bool(holder: Mapping[str, object], key: str, at: At = "") -> bool | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, bool):
        raise wrong_type(FieldPath(at, key), "a boolean", value)
    return value


# ---- fields without an effect, and unknown ones


MAX_LISTED: Final = 32
"""Listed names, so that a body with a thousand unknown fields does not make the header too large."""
_HEADER_SAFE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Idle(Struct, frozen=True):
    """A known field without effect."""

    expected: str
    types: tuple[type, ...]
    asks_nothing: tuple[object, ...] = ()
    """Values with the same meaning as an absent field."""


WHOLE: Final = ("an integer", (int,))
NUMBER: Final = ("a number", (int, float))
OBJECT: Final = ("an object", (dict,))
ARRAY: Final = ("an array", (list,))
WORD: Final = ("a string", (str,))
FLAG: Final = ("a boolean", (bool,))


def idle_names(body: Mapping[str, object], table: Mapping[str, Idle]) -> Iterator[str]:
    """The fields of the table with a value other than the default. A wrong type is still an error."""
    if table.keys().isdisjoint(body.keys()):
        return
    for name, field in table.items():
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, field.types) or (isinstance(value, bool) and bool not in field.types):
            raise wrong_type(name, field.expected, value)
        if value not in field.asks_nothing:
            yield name


def unknown_names(holder: Mapping[str, object], known: Collection[str]) -> list[str]:
    """The names of the other fields, as the client wrote them; pass them to `listable`."""
    return [name for name, value in holder.items() if name not in known and value is not None]


def listable(names: Collection[str]) -> list[str]:
    """Names from a client, made safe for a header: plain characters, at most MAX_LISTED."""
    if not names:
        return []
    plain = list(dict.fromkeys(name if _HEADER_SAFE.fullmatch(name) else "(unprintable)" for name in names))
    if len(plain) > MAX_LISTED:
        plain[MAX_LISTED:] = [f"(and {len(plain) - MAX_LISTED} more)"]
    return plain


# ---- Remembers the tools of recent requests: an agent declares the same tools in every request.

MAX_TOOL_LISTS: Final = 16
MAX_LIST_BYTES: Final = 256 * 1024
"""A longer list is read anew in every request."""
Tools = TypeVar("Tools")


class ToolMemory(Generic[Tools]):
    """What was read from the newest lists of tools."""

    def __init__(self) -> None:
        self._known: dict[bytes, Tools] = {}
        self._lock = Lock()  # large requests are decoded in a thread

    def read(self, declared: object, read: Callable[[], Tools]) -> Tools:
        """The result of `read`, or its earlier result for an equal list."""
        try:
            key = msgspec.json.encode(declared)
        except (TypeError, ValueError, OverflowError):  # a value that JSON cannot hold
            return read()
        if len(key) > MAX_LIST_BYTES:
            return read()
        with self._lock:
            known = self._known.pop(key, None)
            if known is not None:
                self._known[key] = known  # the newest is last
                return known
        tools = read()
        with self._lock:
            self._known[key] = tools
            if len(self._known) > MAX_TOOL_LISTS:
                del self._known[next(iter(self._known))]
        return tools


# ---- Checks a client's tools: a name's characters and length, duplicate names, a choice of an undeclared tool,
# `tool_choice` as a word (auto, none, required). `dialects/openai_responses/tools.py` renames tools.

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
"""Wider than any API's own rule, because MCP clients use dots, colons and slashes in names."""


def needed_name(tool: Mapping[str, object], at: At) -> str:
    """The required name of a tool."""
    return check_name(needed_string(tool, "name", at), FieldPath(at, "name"))


def check_name(name: str, param: At) -> str:
    if not _NAME.fullmatch(name):
        raise invalid_value(param, "use 1 to 128 letters, digits, or any of _ . : / -")
    return name


def check_unique(tools: Sequence[tuple[At, ToolSpec]]) -> tuple[ToolSpec, ...]:
    """The tools, whose names must be unique. Each comes with its place in the request."""
    seen: dict[str, ToolSpec] = {}
    for at, tool in tools:
        if tool.name in seen:
            raise invalid_value(FieldPath(at, "name"), f"the tool name '{tool.name}' is used twice.")
        seen[tool.name] = tool
    return tuple(seen.values())


def check_declared(name: str, tools: tuple[ToolSpec, ...], param: str) -> str:
    if not any(tool.name == name for tool in tools):
        raise invalid_value(param, f"there is no tool {name[:128]!r} among the {len(tools)} declared ones.")
    return name


Mode = Literal["auto", "none", "required"]

_MODES: Final[dict[str, Mode]] = {"auto": "auto", "none": "none", "required": "required"}


def choice_mode(value: str, param: str, tools: tuple[ToolSpec, ...], forms: str) -> Mode:
    """The mode for a `tool_choice` in one word. `forms`: the valid values of the field, for an error message."""
    mode = _MODES.get(value)
    if mode is None:
        raise invalid_value(param, f"use {forms}, not {value[:60]!r}.")
    if mode == "required" and not tools:
        raise invalid_value(param, "a tool call is required, and the request declares no tool that can be served.")
    return mode
