"""Translates cursor-agent's `stream-json` lines into events: reports repeated text once, fails if the program resumed
another chat, skips long tool lines, and counts or estimates usage. No I/O.

Input: lines, then the end of the process. Output: events, of which exactly one is terminal. The fields identify new
text: a delta has `timestamp_ms` and no `model_call_id`; every other line repeats a segment (the text between two tool
calls), and only adds what the deltas left out. Texts are compared only for builds that send no `timestamp_ms`.
The `result` line holds the whole text and settles the remaining doubt.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    AgentActivity,
    Event,
    ReasoningDelta,
    RunUsage,
    StopReason,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    Usage,
    UsageReported,
)
from ...core.request import ToolCall
from ...core.tally import Tally, tokens
from ...processes.lines import Line, TooLong
from ...sessions.loop_guard import EndLoop, GuardSettings, LiveGuard, LiveVerdict, Tell, result_words
from .faults import Circumstances, classify, is_known

# ---- Calls that cursor-agent runs itself: uniform names, titles, ids that every API takes, how a setting shows them
# (hidden, reasoning, tool calls), what the loop guard compares; and the text of a plan. Pure.
#
# A client never runs these calls. Builds name the tools differently (`shellToolCall`, `BashToolCall`).

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
"""Lower-case key without its suffix -> displayed name, where they differ."""
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
    """The call's output without parts that differ each time; empty before the call ends."""

    @property
    def essence(self) -> str:
        """The arguments as sorted JSON without the call's id: equal for equivalent calls."""
        return msgspec.json.encode(_without_id(self.arguments), order="sorted").decode()


def read_call(record: Mapping[str, Any]) -> OwnCall:
    """Read a `tool_call` record. Missing fields are left empty."""
    payload = record.get("tool_call")
    name, arguments, result = _named(payload) if isinstance(payload, dict) else ("tool", {}, None)
    call_id = record.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        inner = arguments.get("toolCallId")
        call_id = inner if isinstance(inner, str) else ""
    return OwnCall(call_id, name, arguments, title(name, arguments), result_words(result))


def _named(payload: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], object]:
    """(name, arguments, result). Other keys, such as `description`, may accompany the key that names the tool."""
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
    """The events that report a call which the agent runs itself. `number` makes the call's id unique."""
    match showing:
        case "hidden":
            return [AgentActivity(call.title)]
        case "reasoning":
            return [AgentActivity(call.title), ReasoningDelta(f"\n[cursor-agent ran {call.title}]\n")]
        case "tool_calls":
            arguments = msgspec.json.encode(call.arguments).decode()
            return [AgentActivity(call.title, ToolCall(safe_id(call.id, number), call.name, arguments))]


def plan_text(arguments: Mapping[str, Any]) -> str:
    """A plan for the user, as paragraphs of the answer: no other record holds its text."""
    paragraphs = [part for key in ("name", "overview", "plan") if isinstance(part := arguments.get(key), str) and part]
    return "\n\n".join(["", *paragraphs, ""]) if paragraphs else ""


def warning_events(message: str, showing: Showing) -> list[Event]:
    """The loop guard's warning as events for the client: in print mode it cannot reach the model."""
    activity: list[Event] = [AgentActivity(message)]
    return [*activity, ReasoningDelta(f"\n{message}\n")] if showing == "reasoning" else activity


def safe_id(call_id: str, number: int) -> str:
    """An id that every dialect accepts and that cannot be mistaken for a ticket's id."""
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", call_id) or "call"
    return f"own_{number}_{safe}"[:ID_CHARS]


PLAN_QUERY: Final = "createPlanRequestQuery"
NOISE_LINES: Final = 64
NOISE_CHARS: Final = 2000
_HARMLESS_IN: Final = (b'"type":"tool_call"', b'"type":"user"', b'"type": "tool_call"', b'"type": "user"')


class _Growing:
    """A text in pieces, which are joined only for a line that is long enough to repeat them."""

    def __init__(self) -> None:
        self.chars = 0
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self.chars += len(piece)
        self._pieces.append(piece)

    def rest(self, line: str) -> str | None:
        """The rest of `line` after this text; None if the line does not begin with this text."""
        if len(line) < self.chars:
            return None
        self._pieces = ["".join(self._pieces)]
        return line[self.chars :] if line.startswith(self._pieces[0]) else None


class PrintTranslator:
    def __init__(
        self,
        *,
        showing: Showing,
        at: Circumstances,
        resuming: str = "",
        guard: LiveGuard | None = None,
        prompt: str = "",
    ) -> None:
        self.session_id = ""
        self.misheard = False
        """The program received only the beginning of the prompt, so its answer is not used."""
        self._prompt = prompt.strip()
        self.over = False
        """The terminal event was returned."""
        self.succeeded = False
        self._showing: Showing = showing
        self._at = at
        self._guard = guard or LiveGuard(GuardSettings(), time.monotonic)
        self._resuming = resuming
        self._noise: list[str] = []
        self._started = False
        self._whole = False
        """The last record held a whole segment: no text is missing if the output ends here."""
        self._said = _Growing()
        self._segment = _Growing()
        self._last_segment = _Growing()
        self._deltas = 0
        """Lines in this segment whose fields mark new text."""
        self._partial = False
        """This turn had lines whose fields mark new text."""
        self.records = 0
        """The number of lines that were records: signs of life."""
        self._loose = 0
        """Lines in this segment that were forwarded although their fields do not mark new text."""
        self._held = ""
        """A line that either repeats its segment or is new text that equals it by chance."""
        self._calls: dict[str, None] = {}
        self._open_calls: set[str] = set()
        self._thought = _Growing()
        self._thought_chars = 0
        self._plan_reported = False

    @property
    def tool_open(self) -> bool:
        """Whether the agent is running its own tool, which makes silence normal."""
        return bool(self._open_calls)

    def feed(self, line: Line) -> list[Event]:
        if self.over or self.misheard:
            return []
        if isinstance(line, TooLong):
            return self._too_long(line)
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            record = None
        if not isinstance(record, dict):
            if len(self._noise) < NOISE_LINES:
                self._noise.append(line.decode("utf-8", "replace")[:NOISE_CHARS])
            return []
        self.records += 1
        read = _READERS.get(_text(record.get("type")))
        events = read(self, record) if read is not None else []
        return self._begun(events)

    def finish(self, exit_code: int, stderr: str) -> list[Event]:
        """The terminal events after the process has exited."""
        if self.over:
            return []
        if self.misheard:
            return self._failed(GatewayError(ErrorKind.UPSTREAM_DOWN, "cursor-agent got only a part of the prompt."))
        said = "\n".join([stderr, *self._noise])
        if exit_code == 0 and self._whole and not stderr.strip() and not is_known(said):
            return self._ended_quietly()
        self.over = True
        return [TurnFailed(classify(said, replace(self._at, exit_code=exit_code)))]

    def _ended_quietly(self) -> list[Event]:
        """A good end without a result line: the forwarded text is the answer; a held line most likely repeats it.
        The chat is not continued."""
        spoken = self._said.chars + self._thought_chars
        usage = run_usage(None, len(self._calls), self._at.prompt_chars, spoken)
        self.over = True
        return [UsageReported(usage), TurnEnded(StopReason.END)]

    # ---- records

    def _begun(self, events: list[Event]) -> list[Event]:
        if events and not self._started and not isinstance(events[0], TurnFailed):
            self._started = True
            return [TurnStarted(), *events]
        return events

    def _system(self, record: Mapping[str, Any]) -> list[Event]:
        if record.get("subtype") != "init" or self._started:
            return []
        self.session_id = _text(record.get("session_id"))
        if self._resuming and self.session_id != self._resuming:
            # For an unknown id the program silently starts another chat, which has no history.
            return self._failed(
                GatewayError(ErrorKind.TURN_GONE, "cursor-agent started another chat than the one asked for.")
            )
        self._started = True
        return [TurnStarted()]

    def _user(self, record: Mapping[str, Any]) -> list[Event]:
        """Compare the repeated prompt with the prompt that was sent: after a broken pipe the program has received only
        its beginning."""
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        heard = "".join(_text(part.get("text")) for part in parts).strip()
        self.misheard = bool(parts) and len(heard) < len(self._prompt) and self._prompt.startswith(heard)
        self._prompt = ""
        return []

    def _thinking(self, record: Mapping[str, Any]) -> list[Event]:
        self._whole = False
        text = _text(record.get("text"))
        if record.get("subtype") == "completed":
            self._thought = _Growing()
            return []
        if self._thought.chars > 1 and (rest := self._thought.rest(text)):
            text = rest  # some builds repeat the earlier text
        self._thought.add(text)
        self._thought_chars += len(text)
        return [ReasoningDelta(text)] if text else []

    def _assistant(self, record: Mapping[str, Any]) -> list[Event]:
        thoughts, text = _content(record)
        events: list[Event] = [ReasoningDelta(thoughts)] if thoughts and not self._thought.chars else []
        if not text:
            return events
        repeats = record.get("model_call_id") is not None
        self._whole = repeats or record.get("timestamp_ms") is None
        if not self._whole:
            self._deltas += 1
            self._partial = True
            return events + self._say(text)
        if self._deltas:
            # The deltas held this text, except perhaps its end. The last line of some builds repeats all segments.
            rest = None if repeats else self._said.rest(text)
            events += self._say((self._segment.rest(text) if rest is None else rest) or "")
            self._close_segment()
            return events
        if self._partial:
            return events + self._repeated(text)
        if self._loose and not repeats:
            return events + self._untimed(text)
        rest = self._segment.rest(text)
        events += self._say(text if rest is None else rest)
        self._loose += 1
        if repeats:
            self._close_segment()
        return events

    def _repeated(self, text: str) -> list[Event]:
        """In a turn with deltas, a segment's line without deltas: it repeats earlier text, or brings a lost segment."""
        rest = self._said.rest(text)
        if "" in (rest, self._last_segment.rest(text)):
            return []
        events = self._say(text if rest is None else rest)
        self._close_segment()
        return events

    def _untimed(self, text: str) -> list[Event]:
        """For a build without `timestamp_ms`: a line that equals its whole segment most likely repeats it."""
        events = self._release()
        rest = self._segment.rest(text)
        if rest == "":
            self._held = text
            return events
        if rest is not None and self._segment.chars > 1:  # a build whose lines grow, or a last line
            return events + self._say(rest)
        self._loose += 1
        return events + self._say(text)

    def _release(self) -> list[Event]:
        """Forward the held line: more text follows it, so it was new text."""
        held, self._held = self._held, ""
        return self._say(held)

    def _say(self, text: str) -> list[Event]:
        if not text:
            return []
        self._segment.add(text)
        self._said.add(text)
        return [TextDelta(text)]

    def _close_segment(self) -> None:
        if self._segment.chars:
            self._last_segment, self._segment = self._segment, _Growing()
        self._deltas, self._loose, self._held = 0, 0, ""

    def _tool_call(self, record: Mapping[str, Any]) -> list[Event]:
        call, events = read_call(record), list[Event]()
        subtype = record.get("subtype")
        if subtype is not None:  # a build without subtypes sends one line per call, which may be the last one
            self._whole = False
        if subtype == "completed":
            self._open_calls.discard(call.id)
        else:
            self._close_segment()
            if subtype is not None:
                self._open_calls.add(call.id)
        if call.id not in self._calls:
            self._calls[call.id] = None
            events = shown(call, self._showing, len(self._calls))
            events += self._planned(call.arguments) if call.name == PLAN else []
            events += self._judged(self._guard.began(call.name, call.essence))
        if subtype == "completed" and not self.over:
            events += self._judged(self._guard.ended(call.name, call.essence, call.result))
        return events

    def _judged(self, verdict: LiveVerdict) -> list[Event]:
        """Apply the loop guard's verdict. The program takes no input while it runs, so a loop ends the turn."""
        match verdict:
            case Tell(message=message):
                return warning_events(message, self._showing)
            case EndLoop(error=error):
                return self._failed(error)
            case _:
                return []

    def _interaction(self, record: Mapping[str, Any]) -> list[Event]:
        """The program asks for permission. Its input is closed, so it continues as if permission was denied."""
        if record.get("subtype") != "request":
            return []
        kind, query = _text(record.get("query_type")), record.get("query")
        if kind == PLAN_QUERY and isinstance(query, dict):
            inside = query.get(kind)
            arguments = inside.get("args") if isinstance(inside, dict) else None
            return self._planned(arguments if isinstance(arguments, dict) else {})
        return [AgentActivity(f"declined: {kind or 'a question'}")]

    def _planned(self, arguments: Mapping[str, Any]) -> list[Event]:
        """Report a plan once, from its call or from the question whether it is accepted; `result` does not hold it."""
        text = "" if self._plan_reported else plan_text(arguments)
        self._plan_reported = self._plan_reported or bool(text)
        return [TextDelta(text)] if text else []

    def _result(self, record: Mapping[str, Any]) -> list[Event]:
        if record.get("is_error") is True or record.get("subtype") not in ("success", None):
            return self._failed(classify(_error_text(record), self._at))
        # The result adds held text, and text that earlier lines left out.
        events = self._say(self._said.rest(_text(record.get("result"))) or "")
        self.session_id = _text(record.get("session_id")) or self.session_id
        spoken = self._said.chars + self._thought_chars
        usage = run_usage(read_usage(record.get("usage")), len(self._calls), self._at.prompt_chars, spoken)
        self.over = self.succeeded = True
        return [*events, UsageReported(usage), TurnEnded(StopReason.END)]

    def _failed(self, error: GatewayError) -> list[Event]:
        self.over = True
        return [TurnFailed(error)]

    def _too_long(self, line: TooLong) -> list[Event]:
        """Skip a line that is too long if it holds a tool's output; fail the turn if it may hold answer text."""
        if any(mark in line.head for mark in _HARMLESS_IN):
            return []
        return self._failed(
            GatewayError(
                ErrorKind.UPSTREAM_PROTOCOL,
                f"cursor-agent wrote {line}.",
                hint="Ask for less at a time.",
            )
        )


_READERS: Final[Mapping[str, Callable[[PrintTranslator, Mapping[str, Any]], list[Event]]]] = {
    "system": PrintTranslator._system,
    "user": PrintTranslator._user,
    "thinking": PrintTranslator._thinking,
    "assistant": PrintTranslator._assistant,
    "tool_call": PrintTranslator._tool_call,
    "interaction_query": PrintTranslator._interaction,
    "result": PrintTranslator._result,
}
"""Record type -> method. Other types (`retry`, `connection`, types of newer builds) are only signs of life."""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _content(record: Mapping[str, Any]) -> tuple[str, str]:
    """(thinking, text) of an assistant record, in its nested or its flat form."""
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else record.get("text")
    if isinstance(content, str):
        return "", content
    thoughts, texts = [], []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict):
            if part.get("type") == "thinking":
                thoughts.append(_text(part.get("thinking")) or _text(part.get("text")))
            else:
                texts.append(_text(part.get("text")))
    return "".join(thoughts), "".join(texts)


def _error_text(record: Mapping[str, Any]) -> str:
    error = record.get("error")
    if isinstance(error, dict):
        return " ".join(filter(None, (_text(error.get("code")), _text(error.get("message")))))
    return _text(error) or _text(record.get("result"))


def run_usage(total: RunUsage | None, own_calls: int, prompt_chars: int, spoken_chars: int) -> Usage:
    """The run's usage, or an estimate if the program reported none. Reported usage covers all model calls of the run:
    if cursor-agent ran its own tools, the context size is the average over the calls, marked as an estimate."""
    tally = Tally(tokens(prompt_chars), spoken_chars=spoken_chars)
    for _ in range(own_calls):
        tally.calling()
        tally.answered()
    return tally.ended(total)


def read_usage(value: object) -> RunUsage | None:
    """The program's usage. Its `inputTokens` excludes cached input; `RunUsage` includes it."""
    if not isinstance(value, dict):
        return None

    def count(key: str) -> int | None:
        number = value.get(key)
        return number if isinstance(number, int) and not isinstance(number, bool) and number >= 0 else None

    fresh, read, written = count("inputTokens"), count("cacheReadTokens"), count("cacheWriteTokens")
    if fresh is None and count("outputTokens") is None:
        return None
    total = None if fresh is None else fresh + (read or 0) + (written or 0)
    return RunUsage(total, count("outputTokens"), read, written)
