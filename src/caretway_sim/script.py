"""Parses the script language (`sim:` lines in a prompt) into typed steps. Pure.

A malformed line becomes a `Say` that names the mistake, so the author of the prompt sees it in place of the answer.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

# ---- script words

# The names that `sim: exec`, `sim: query` and `sim: fail` accept, and their fields on the wire.

EXEC_FIELDS: Final = {
    "shell": "shell_args",
    "shell_stream": "shell_stream_args",
    "read": "read_args",
    "write": "write_args",
    "delete": "delete_args",
    "ls": "ls_args",
    "grep": "grep_args",
    "fetch": "fetch_args",
    "diagnostics": "diagnostics_args",
    "background_shell": "background_shell_spawn_args",
    "list_mcp_resources": "list_mcp_resources_exec_args",
    "read_mcp_resource": "read_mcp_resource_exec_args",
    "write_shell_stdin": "write_shell_stdin_args",
    "request_context": "request_context_args",
    "mcp_state": "mcp_state_exec_args",
}
NEWER_EXECS: Final = {
    "unknown": 22,
    "execute_hook": 27,
    "subagent": 28,
    "force_background_shell": 30,
    "force_background_subagent": 31,
    "subagent_await": 37,
    "smart_mode_classifier": 38,
    "canvas_diagnostics": 40,
    "shell_precheck": 41,
    "mcp_precheck": 42,
    "web_fetch_precheck": 43,
    "git_diff": 44,
    "mini_swe_bash": 52,
    "conversation_search": 53,
    "store_conflict": 54,
}
"""Newer kinds by field number, because our schema lacks most of them (22 is computer use). Scripts give their arguments
by number too."""
EXEC_KINDS: Final = EXEC_FIELDS.keys() | NEWER_EXECS.keys()
QUERY_FIELDS: Final = {
    "web_search": ("web_search_request_query", {"search_term": "simulated search"}),
    "ask_question": ("ask_question_interaction_query", {"title": "A simulated question"}),
    "switch_mode": ("switch_mode_request_query", {"target_mode_id": "agent"}),
    "create_plan": ("create_plan_request_query", {"name": "Simulated plan", "plan": "1. Answer."}),
    "web_fetch": ("web_fetch_request_query", {"url": "https://example.invalid/"}),
}
NEWER_QUERIES: Final = {
    "setup_vm": (8, {1: "success"}),
    "pull_request": (10, {3: "rejected"}),
    "mcp_auth": (11, {2: "rejected"}),
    "generate_image": (12, {2: "rejected"}),
    "kind_13": (13, {2: "failure"}),
    "connect_scm": (14, {2: "rejected"}),
}
"""Read without our schema, so that a mistake in the schema shows: each kind's field, and the meaning of the reply's
fields."""
QUERY_KINDS: Final = QUERY_FIELDS.keys() | NEWER_QUERIES.keys()
FAILURES: Final = (
    "unauthenticated",
    "usage_limit",
    "rate_limit",
    "overflow",
    "bad_model",
    "deprecated",
    "unavailable",
    "internal",
    "bare",
    "quota",
    "outdated",
    "schema",
    "policy",
    "plan",
    "not_in_plan",
    "gone",
    "late",
    "region",
    "team_region",
    "max_mode",
    "denied",
    "no_exec",
    "picture",
    "eof",
)
"""Names that `sim: fail` accepts. Each wire has its own table of their forms."""


# ---- script


MAX_DELTAS: Final = 1_000_000
MAX_DELTA_CHARS: Final = 1_000_000
MAX_DELAY_MS: Final = 600_000
FILLER: Final = "the quick brown fox jumps over the lazy dog and "


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Think:
    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """Calls of client tools, all made before any result is awaited."""

    uses: tuple[ToolUse, ...]
    before: tuple[str, ...] = ()
    """Results of the same step that have arrived already."""


@dataclass(frozen=True, slots=True)
class Loop:
    use: ToolUse


@dataclass(frozen=True, slots=True)
class Exec:
    kind: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    kind: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """Say the results of the last call."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Say what the server-side state holds."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """Say the instructions that reached the model."""


@dataclass(frozen=True, slots=True)
class Ponder:
    """Reason silently: tokens are counted or blobs are stored, and nothing else is sent."""

    delay_ms: float
    by: Literal["tokens", "blobs"] = "tokens"


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask whether a call of this client's tool would be approved, without running it."""

    use: ToolUse


@dataclass(frozen=True, slots=True)
class ScriptStream:
    count: int
    size: int
    delay_ms: float = 0.0

    def delta(self, index: int) -> str:
        """Numbered text, so that a lost or doubled delta shows."""
        head = f"{index} "
        body = FILLER * (self.size // len(FILLER) + 1)
        return (head + body)[: self.size]


@dataclass(frozen=True, slots=True)
class Fail:
    code: str
    when: Literal["here", "before", "after"] = "here"
    """before: before any other output; after: only after some output."""


@dataclass(frozen=True, slots=True)
class Drop:
    times: int = 1


@dataclass(frozen=True, slots=True)
class Leave:
    """End the stream without an error and without `turn_ended`."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Hang:
    """Send only heartbeats."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Store the results of the previous call in blobs, then send only heartbeats: no checkpoint."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Abandon:
    """Make the previous call and end the stream without an error before its result."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Mute:
    """Send nothing."""


@dataclass(frozen=True, slots=True)
class Wait:
    delay_ms: float


Step = (
    Say
    | Think
    | ScriptCall
    | Loop
    | Exec
    | Query
    | Result
    | Recall
    | Instructions
    | Ponder
    | Probe
    | ScriptStream
    | Fail
    | Drop
    | Leave
    | Hang
    | Stall
    | Abandon
    | Mute
    | Wait
)

_LINE: Final = re.compile(r"^[ \t]*sim:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


class ScriptError(ValueError):
    """A line that is not in the language."""


def has_script(text: str) -> bool:
    return _LINE.search(text) is not None


def parse(text: str) -> tuple[Step, ...]:
    """The steps of every `sim:` line, in order."""
    return tuple(_parse_line(line) for line in _LINE.findall(text))


def _parse_line(line: str) -> Step:
    word, _, rest = line.partition(" ")
    try:
        read = _WORDS.get(word)
        if read is None:
            raise ScriptError(f"unknown word {word!r}")
        return read(rest.strip() if read not in (_say, _think) else rest)
    except ScriptError as wrong:
        return Say(f"[sim: {wrong}]")


def _text(rest: str) -> str:
    return rest.replace("\\n", "\n")


def _say(rest: str) -> Step:
    return Say(_text(rest))


def _think(rest: str) -> Step:
    return Think(_text(rest))


_DECODER: Final = json.JSONDecoder()


def _use(rest: str) -> tuple[ToolUse, str]:
    """`NAME JSON` -> the call, and the rest of the text."""
    found = re.match(r"[^\s{}&]+", rest)
    if found is None:
        raise ScriptError("a tool name is missing")
    name, rest = found[0], rest[found.end() :].lstrip()
    args, rest = _object(rest)
    return ToolUse(name, args), rest


def _object(rest: str) -> tuple[dict[str, Any], str]:
    """An optional JSON object at the start of `rest`, and the text after it."""
    if not rest.startswith("{"):
        return {}, rest
    try:
        value, end = _DECODER.raw_decode(rest)
    except ValueError as broken:
        raise ScriptError(f"broken JSON: {broken}") from broken
    return value, rest[end:].lstrip()


def _call(rest: str) -> Step:
    uses = []
    while True:
        use, rest = _use(rest)
        uses.append(use)
        if not rest:
            return ScriptCall(tuple(uses))
        if not rest.startswith("&"):
            raise ScriptError(f"expected '&' or the end of the line before {rest[:20]!r}")
        rest = rest[1:].lstrip()


def _one_use(rest: str) -> ToolUse:
    use, rest = _use(rest)
    if rest:
        raise ScriptError(f"text after the arguments: {rest[:20]!r}")
    return use


def _kind(rest: str, known: set[str], what: str) -> tuple[str, dict[str, Any]]:
    use, rest = _use(rest)
    if use.name not in known:
        raise ScriptError(f"unknown {what} {use.name!r}; there are {', '.join(sorted(known))}")
    if rest:
        raise ScriptError(f"text after the arguments: {rest[:20]!r}")
    return use.name, use.args


def _exec(rest: str) -> Step:
    return Exec(*_kind(rest, EXEC_KINDS, "exec"))


def _query(rest: str) -> Step:
    return Query(*_kind(rest, QUERY_KINDS, "query"))


def _number(word: str, most: float, what: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise ScriptError(f"{what} must be a number, not {word!r}") from None
    if not 0 <= value <= most:
        raise ScriptError(f"{what} must be between 0 and {most:.0f}")
    return value


def _stream(rest: str) -> Step:
    words = rest.split()
    if len(words) not in (2, 3):
        raise ScriptError("stream takes N BYTES [MS]")
    delay = _number(words[2], MAX_DELAY_MS, "MS") if len(words) == 3 else 0.0
    return ScriptStream(
        int(_number(words[0], MAX_DELTAS, "N")), int(_number(words[1], MAX_DELTA_CHARS, "BYTES")), delay
    )


def _fail(rest: str) -> Step:
    code, _, when = rest.partition(" ")
    if code not in FAILURES:
        raise ScriptError(f"unknown failure {code!r}; there are {', '.join(FAILURES)}")
    match when.strip():
        case "":
            return Fail(code)
        case "before":
            return Fail(code, "before")
        case "after":
            return Fail(code, "after")
        case other:
            raise ScriptError(f"fail takes before or after, not {other!r}")


def _times(rest: str) -> int:
    return int(_number(rest, MAX_DELTAS, "N")) if rest else 1


def _ponder(rest: str) -> Step:
    delay, _, by = rest.partition(" ")
    match by.strip() or "tokens":
        case "tokens":
            return Ponder(_delay(delay))
        case "blobs":
            return Ponder(_delay(delay), "blobs")
        case other:
            raise ScriptError(f"ponder takes tokens or blobs, not {other!r}")


def _delay(rest: str) -> float:
    return _number(rest, MAX_DELAY_MS, "MS")


_WORDS: Final[dict[str, Callable[[str], Step]]] = {
    "say": _say,
    "think": _think,
    "call": _call,
    "loop": lambda rest: Loop(_one_use(rest)),
    "probe": lambda rest: Probe(_one_use(rest)),
    "exec": _exec,
    "query": _query,
    "result": lambda _: Result(),
    "recall": lambda _: Recall(),
    "instructions": lambda _: Instructions(),
    "ponder": _ponder,
    "stream": _stream,
    "fail": _fail,
    "drop": lambda rest: Drop(_times(rest)),
    "leave": lambda rest: Leave(_times(rest)),
    "hang": lambda _: Hang(),
    "stall": lambda rest: Stall(_times(rest)),
    "abandon": lambda rest: Abandon(_times(rest)),
    "mute": lambda _: Mute(),
    "wait": lambda rest: Wait(_delay(rest)),
}
