"""JSON answers (`response_format`, `output_config`): `with_instructions` adds the instruction for the model to a
request. The stage removes a Markdown code fence around the whole answer and adds a `Note` that says whether the answer
is valid JSON and matches its schema. It never repairs or withholds an answer.
Input: events. Output: the same events without the fence, with a note before `TurnEnded`. State: a possible fence (less
than a kilobyte), and the text so far up to a limit, because a schema needs the whole text.
"""

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..core.events import (
    Event,
    Note,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from ..core.json_bounds import crowded
from ..core.request import Message, OutputFormat, Role, Text, TurnRequest, leading
from ..core.tally import CHARS_PER_TOKEN
from ..core.turn import Stage
from ..schemas.check import SchemaChecker
from ..schemas.run import Unreadable

# ---- Stop sequences, also split across chunks: text that may begin a sequence is held back, and the first complete
# sequence ends the answer and upstream. Reasoning, tool arguments and text during an open call are not searched.
#
# Input: events. Output: the same events, until a sequence is complete; then the text before it, `TurnEnded`, and
# nothing more. State: for each sequence, the length of its prefix that the text ends with. The longest of these
# prefixes is held back and needs no buffer.
#
# The first complete sequence wins (of two that end at the same place, the longer), so the result does not depend on the
# chunks. Each character is read once per sequence, and `str.find` searches for a sequence that has not begun.

# ---- `max_tokens` as a local cut: ends the answer and upstream by the gateway's own count of four characters a token.
# Only if the setting `max_tokens` is `cut`; otherwise the parameter is reported as ignored.
#
# Cursor has no such field. Thinking and text count, as with OpenAI and Anthropic; a call is never cut. Input: events.
# Output: the same events, until the count is reached; then `TurnEnded` with the reason `length`, and nothing more.
# State: the number of characters left.

NAMES: Final = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""The names of the parameter in the APIs."""


def honour_max_tokens(request: TurnRequest) -> TurnRequest:
    """The request without `max_tokens` among the ignored fields."""
    if request.max_output is None or NAMES.isdisjoint(request.ignored):
        return request
    return replace(request, ignored=tuple(name for name in request.ignored if name not in NAMES))


_OF_WEB_SEARCH: Final = ("tools.web_search", "web_search_options")


def honour_web_search(request: TurnRequest) -> TurnRequest:
    """The request without its offer of a web search among the ignored fields."""
    if not request.web_search:
        return request
    return replace(request, ignored=tuple(name for name in request.ignored if not name.startswith(_OF_WEB_SEARCH)))


def token_cut(request: TurnRequest) -> Stage | None:
    return None if request.max_output is None else TokenCut(request.max_output)


class TokenCut:
    spent = False

    def __init__(self, tokens: int) -> None:
        self._left = max(1, tokens) * CHARS_PER_TOKEN
        self._open_calls = 0
        self._over = False

    def feed(self, event: Event) -> list[Event]:
        if self._over:
            return []
        match event:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                return self._count(event, text)
            case ToolCallStarted():
                self._open_calls += 1
            case ToolCallReady():
                self._open_calls = max(0, self._open_calls - 1)
            case _:
                pass
        return [event]

    def _count(self, event: TextDelta | ReasoningDelta, text: str) -> list[Event]:
        self._left -= len(text)
        if self._left >= 0 or self._open_calls:
            return [event]  # the turn cannot end inside a call
        self._over = True
        kept = text[: len(text) + self._left]
        ended = TurnEnded(StopReason.LENGTH)
        return [type(event)(kept), ended] if kept else [ended]


def stop_sequences(request: TurnRequest) -> Stage | None:
    sequences = tuple(sequence for sequence in request.stop if sequence)
    return StopSequences(sequences) if sequences else None


class StopSequences:
    spent = False

    def __init__(self, sequences: tuple[str, ...]) -> None:
        self._matchers = [_Matcher(sequence) for sequence in sequences]
        self._open_calls = 0
        self._over = False

    def feed(self, event: Event) -> list[Event]:
        if self._over:
            return []
        match event:
            case TextDelta(text=text):
                if self._open_calls:
                    return [event]  # the turn cannot end inside a call, whose start flushed held text
                return self._text(text)
            case ReasoningDelta() | TurnStarted() | UsageReported() | Note():
                return [event]  # independent of the text: may overtake held text
            case ToolCallStarted():
                self._open_calls += 1
            case ToolCallReady():
                self._open_calls = max(0, self._open_calls - 1)
            case _:
                pass
        return [*self._flush(), event]

    def _text(self, text: str) -> list[Event]:
        held = max(self._matchers, key=_matched)
        before = held.matched
        end, winner = len(text) + 1, None
        for matcher in self._matchers:
            match_end = matcher.feed(text, min(end, len(text)))
            if match_end and (match_end < end or winner is None or len(matcher.sequence) > len(winner.sequence)):
                end, winner = match_end, matcher
        if winner is not None:
            self._over = True
            stopped = TurnEnded(StopReason.STOP_SEQUENCE, winner.sequence)
            return [*_piece(held, before, text, before + end - len(winner.sequence)), stopped]
        return _piece(held, before, text, before + len(text) - max(m.matched for m in self._matchers))

    def _flush(self) -> list[Event]:
        held = max(self._matchers, key=_matched)
        out: list[Event] = [TextDelta(held.sequence[: held.matched])] if held.matched else []
        for matcher in self._matchers:
            matcher.matched = 0
        return out


class _Matcher:
    """Knuth, Morris and Pratt, resumable: how many characters of `sequence` the text so far ends with."""

    __slots__ = ("_fallback", "matched", "sequence")

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence
        self.matched = 0
        self._fallback = _fallbacks(sequence)

    def feed(self, text: str, limit: int) -> int:
        """The end of a complete stop sequence in `text[:limit]`; 0 if there is none."""
        sequence, fallback, matched = self.sequence, self._fallback, self.matched
        size, first, at = len(sequence), sequence[0], 0
        while at < limit:
            if not matched:
                at = text.find(first, at, limit)
                if at < 0:
                    break
            else:
                character = text[at]
                while matched and character != sequence[matched]:
                    matched = fallback[matched - 1]
                if character != sequence[matched]:
                    at += 1
                    continue
            matched += 1
            at += 1
            if matched == size:
                return at
        self.matched = matched
        return 0


def _fallbacks(sequence: str) -> list[int]:
    """For each prefix of the sequence: the length of its longest proper suffix that is a prefix, too."""
    table = [0] * len(sequence)
    length = 0
    for at in range(1, len(sequence)):
        while length and sequence[at] != sequence[length]:
            length = table[length - 1]
        if sequence[at] == sequence[length]:
            length += 1
        table[at] = length
    return table


def _matched(matcher: _Matcher) -> int:
    return matcher.matched


def _piece(held: _Matcher, before: int, text: str, size: int) -> list[Event]:
    """The first `size` characters of held text + text. The held text is a prefix of the sequence."""
    if size <= 0:
        return []
    piece = held.sequence[: min(before, size)] + text[: max(0, size - before)]
    return [TextDelta(piece)]


NOTE_KEY: Final = "response_format"
MAX_CHECKED: Final = 1024 * 1024
"""Characters. A longer answer is passed on unchecked; no current model writes one."""
_MAX_DETAIL: Final = 300

# The patterns bound their counts, so the held text is bounded too, for any chunks.
_OPENING: Final = re.compile(r"\s{0,200}```[A-Za-z0-9_+.-]{0,40}[ \t]{0,40}\r?\n")
_MAYBE_OPENING: Final = re.compile(r"\s{0,200}(?:`{0,2}|```[A-Za-z0-9_+.-]{0,40}[ \t]{0,40}\r?)")
_CLOSING: Final = re.compile(r"(?:\r?\n)?```\s{0,200}")
_MAYBE_CLOSING: Final = re.compile(r"(?<!`)(?:(?:\r?\n)?(?:`{1,2}|```\s{0,200})|\r?\n|\r)\Z")
"""Every prefix of a closing fence; only such a prefix is held back."""


def with_instructions(request: TurnRequest) -> TurnRequest:
    """The request with an instruction about the format after the client's own system messages. Not at the end, because
    the last message must stay the message to answer, and this place is the same in every turn.
    """
    if request.output_format is None:
        return request
    words = Message(Role.SYSTEM, (Text(instructions(request.output_format)),))
    place = leading(request.messages)
    return replace(request, messages=(*request.messages[:place], words, *request.messages[place:]))


def instructions(wanted: OutputFormat) -> str:
    only = (
        "Your final answer must be JSON and nothing else: no sentence before or after it, no Markdown code fence. "
        "You may call tools before it as usual."
    )
    if wanted.schema is None:
        return f"{only}\nIt must be one JSON object."
    name = f" ({wanted.name})" if wanted.name else ""
    return f"{only}\nIt must be valid against this JSON schema{name}:\n{msgspec.json.encode(wanted.schema).decode()}"


def output_format(request: TurnRequest) -> Stage | None:
    return None if request.output_format is None else OutputFormatStage(request.output_format)


class _At(Enum):
    START = auto()
    """So far only white space and perhaps the beginning of a fence."""
    FENCED = auto()
    PLAIN = auto()


class OutputFormatStage:
    spent = False

    def __init__(self, wanted: OutputFormat) -> None:
        self._wanted = wanted
        self._at = _At.START
        self._held = ""
        self._last = ""
        """The last character that was passed on: a closing fence must not follow another backtick."""
        self._text: list[str] = []
        self._size = 0
        self._called = False

    def feed(self, event: Event) -> list[Event]:
        match event:
            case TextDelta(text=text):
                return self._emit(self._unwrap(text))
            case ReasoningDelta() | TurnStarted() | UsageReported() | Note():
                return [event]  # independent of the text: may overtake held text
            case TurnEnded(reason=reason):
                return [*self._emit(self._close()), *self._note(reason), event]
            case ToolCallStarted():
                self._called = True
            case _:
                pass
        return [*self._emit(self._close()), event]

    def _unwrap(self, text: str) -> str:
        if self._at is _At.PLAIN:
            return text
        text = self._held + text
        self._held = ""
        if self._at is _At.START:
            if _MAYBE_OPENING.fullmatch(text):
                self._held = text
                return ""
            opening = _OPENING.match(text)
            if opening is None:
                self._at = _At.PLAIN
                return text
            self._at = _At.FENCED
            text = text[opening.end() :]
        return self._hold_closing(text)

    def _hold_closing(self, text: str) -> str:
        seen = self._last + text
        closing = _MAYBE_CLOSING.search(seen, len(self._last))
        if closing is not None:
            self._held = closing.group()
            text = text[: len(text) - len(self._held)]
        self._last = text[-1:] or self._last
        return text

    def _close(self) -> str:
        """The held text at the end of the text or before a call; empty if it is the closing fence."""
        held, self._held = self._held, ""
        fenced, self._at = self._at is _At.FENCED, _At.PLAIN
        return "" if fenced and _CLOSING.fullmatch(held) else held

    def _emit(self, text: str) -> list[Event]:
        if not text:
            return []
        self._size += len(text)
        if self._size <= MAX_CHECKED:
            self._text.append(text)
        else:
            self._text.clear()
        return [TextDelta(text)]

    def _note(self, reason: StopReason) -> list[Event]:
        if reason is StopReason.REFUSAL or (self._called and not self._size):
            return []  # there is no answer to check
        if self._size > MAX_CHECKED:
            return [Note(NOTE_KEY, f"not checked: the answer is longer than {MAX_CHECKED} characters")]
        return [Note(NOTE_KEY, verdict("".join(self._text), self._wanted))]


def verdict(text: str, wanted: OutputFormat) -> str:
    """`valid`, the problem, or the reason why the text was not checked."""
    if crowded(text):
        return "not checked: the answer holds too many values"
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return f"not valid JSON: {_short(error)}"
    if wanted.schema is not None:
        return _against(wanted.schema, value)
    return "valid" if isinstance(value, dict) else "not a JSON object: it is valid JSON of another type"


def _against(schema: Mapping[str, object], value: Any) -> str:
    checker = SchemaChecker(schema)
    try:
        problem = checker.first(value)
        patterns, inverts = checker.patterns, checker.inverts
    except Unreadable as failure:
        return f"schema not checked: {_short(failure)}"
    if problem is None:
        return "valid, its regular expressions not checked" if patterns else "valid"
    if patterns and inverts:
        return "schema not checked: it decides by regular expressions"
    return f"does not match the schema: {problem.json_path}: {_short(problem.message)}"


def _short(reason: object) -> str:
    words = " ".join(str(reason).split()) or type(reason).__name__
    return words if len(words) <= _MAX_DETAIL else words[:_MAX_DETAIL] + "…"
