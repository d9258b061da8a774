"""A stage for every backend: `<think>` or `<thinking>` at the very beginning of an answer becomes reasoning; tags after
the first visible word stay text.

Behind the first visible word the stage has nothing more to do.
"""

from typing import Final

from ...core.events import TERMINAL, Event, ReasoningDelta, TextDelta, ToolCallStarted, TurnEnded
from ...core.request import TurnRequest
from ...core.turn import Stage
from .parser import Parser, Piece, TextPiece, ThinkingPiece
from .thinking import unclosed

_MAYBE: Final = frozenset(("", "<", " ", "\n", "\r", "\t"))
"""How a text begins that may begin with a tag."""
_FLUSHES: Final = (ToolCallStarted, *TERMINAL)


def think_tags(_: TurnRequest) -> Stage:
    return ThinkTags()


class ThinkTags:
    """Remembered: the parser, once the text begins with what may be a tag."""

    spent = False
    _parser: Parser | None = None

    def feed(self, event: Event) -> list[Event]:
        parser = self._parser
        if type(event) is TextDelta:
            if parser is None:
                if event.text[:1] not in _MAYBE:
                    self.spent = True
                    return [event]
                self._parser = parser = Parser()
            told = _events(parser.feed(event.text))
            self.spent = parser.plain
            return told
        if parser is not None and isinstance(event, _FLUSHES):
            told = _events(parser.finish())
            return [*told, unclosed(), event] if parser.unclosed and type(event) is TurnEnded else [*told, event]
        return [event]


def _events(pieces: list[Piece]) -> list[Event]:
    told: list[Event] = []
    for piece in pieces:
        match piece:
            case TextPiece(text=text):
                told.append(TextDelta(text))
            case ThinkingPiece(text=text):
                told.append(ReasoningDelta(text))
            case _:
                pass  # without a trigger there are no calls
    return told
