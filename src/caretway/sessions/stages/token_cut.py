"""`max_tokens` as a local cut: where an answer ends, by our own count of four characters a token, and upstream with it.
Only where the setting `max_tokens` says `cut`; otherwise the wish is named as ignored.

Cursor has no such field. Thinking and text count, because they do for OpenAI and Anthropic; a call is never cut. In:
events. Out: the same, until the count is reached; then `TurnEnded` with the reason `length`, and nothing more.
Remembered: how many characters are left.
"""

from typing import Final

from msgspec.structs import replace

from ...core.estimate import CHARS_PER_TOKEN
from ...core.events import Event, ReasoningDelta, StopReason, TextDelta, ToolCallReady, ToolCallStarted, TurnEnded
from ...core.request import TurnRequest
from ...core.turn import Stage

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
