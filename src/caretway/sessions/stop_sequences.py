"""Stop sequences, also when they are split across chunks: what may be the beginning of one is held back, the first
complete one ends the answer and upstream. Not inside reasoning, tool arguments or an open call.

In: events. Out: the same, until a sequence is complete; then the text before it, `TurnEnded`, and nothing more.
Remembered: for each sequence, how much of it the text ends with. The longest of these prefixes is held back, and needs
no buffer of its own. Only text is searched, not reasoning and not tool arguments.

The sequence that is complete first wins (of two at the same place, the longer one), so the result does not depend on
how upstream cut the text into pieces. Each character is read once per sequence, and a sequence that has not begun is
searched for with `str.find`.
"""

from typing import Final

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
from ..core.request import TurnRequest
from ..core.tally import CHARS_PER_TOKEN
from ..core.turn import Stage

# ---- `max_tokens` as a local cut: where an answer ends, by our own count of four characters a token, and upstream with
# it. Only where the setting `max_tokens` says `cut`; otherwise the wish is named as ignored.
#
# Cursor has no such field. Thinking and text count, because they do for OpenAI and Anthropic; a call is never cut. In:
# events. Out: the same, until the count is reached; then `TurnEnded` with the reason `length`, and nothing more.
# Remembered: how many characters are left.

NAMES: Final = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""What the APIs call it."""


def honour_max_tokens(request: TurnRequest) -> TurnRequest:
    """The wish is granted, and so not named as ignored."""
    if request.max_output is None or NAMES.isdisjoint(request.ignored):
        return request
    return replace(request, ignored=tuple(name for name in request.ignored if name not in NAMES))


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
                    return [event]  # the turn cannot end inside a call; nothing is held here, the call flushed it
                return self._text(text)
            case ReasoningDelta() | TurnStarted() | UsageReported() | Note():
                return [event]  # not part of the text's order: held text need not come before it
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
