"""Derived `<base>-thinking` models of text-only backends, and for every backend the stage that shows thinking, hides
it, or puts it into the text as `<think>` tags. An answer that ends inside a thinking tag is not hidden. Pure.

A derived model is its base model with the thinking rules in the prompt. It exists for base models that have no thinking
of their own.
"""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec.structs import replace

from ...core.events import (
    TERMINAL,
    Event,
    Note,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from ...core.request import TurnRequest
from ...core.turn import ModelInfo, Stage, StageFactory
from .parser import Parser, Piece, TextPiece, ThinkingPiece

SUFFIX: Final = "-thinking"

ThinkingMode = Literal["visible", "hide", "inline"]


def with_thinking(models: Sequence[ModelInfo]) -> list[ModelInfo]:
    """The models; each base model without its own thinking variant is followed by a derived one."""
    ids = [model.id for model in models]
    listed: list[ModelInfo] = []
    for model in models:
        listed.append(model)
        if not model.reasoning and SUFFIX not in model.id and not any(i.startswith(model.id + SUFFIX) for i in ids):
            listed.append(_derived(model))
    return listed


def _derived(model: ModelInfo) -> ModelInfo:
    return replace(
        model,
        id=model.id + SUFFIX,
        name=f"{model.name or model.id} (thinking)",
        aliases=tuple(alias + SUFFIX for alias in model.aliases),
        reasoning=True,
        stands_for=model.stands_for and model.stands_for + SUFFIX,
    )


def base_model(model: str, native: frozenset[str]) -> tuple[str, bool]:
    """(upstream's model id, whether the prompt asks for thinking). `native`: upstream's own model ids."""
    if model in native or not model.endswith(SUFFIX):
        return model, False
    return model.removesuffix(SUFFIX), True


def thinking(mode: ThinkingMode) -> StageFactory:
    """A stage that shows, hides or inlines the thinking of any backend."""

    def build(_: TurnRequest) -> Stage | None:
        match mode:
            case "hide":
                return HideThinking()
            case "inline":
                return InlineThinking()
            case _:
                return None

    return build


UNCLOSED: Final = "thinking"
"""The key of the note about a thinking tag that was never closed."""


def unclosed() -> Note:
    return Note(UNCLOSED, "the answer ended inside a thinking tag")


class HideThinking:
    """Hides thinking. Keeps the thinking since the last visible text, which is the answer if its tag never closes."""

    spent = False

    def __init__(self) -> None:
        self._hidden: list[str] = []

    def feed(self, event: Event) -> list[Event]:
        match event:
            case ReasoningDelta(text=text):
                self._hidden.append(text)
                return []
            case Note(key=key) if key == UNCLOSED:
                hidden, self._hidden = "".join(self._hidden), []
                return [TextDelta(hidden), event] if hidden else [event]
            case TextDelta() | ToolCallStarted():
                self._hidden.clear()
        return [event]


_ASIDE: Final = (Note, UsageReported, TurnStarted, ToolCallDelta)
"""Events that do not end thinking."""


class InlineThinking:
    """Shows thinking as text between <think> and </think>."""

    spent = False

    def __init__(self) -> None:
        self._open = False

    def feed(self, event: Event) -> list[Event]:
        match event:
            case ReasoningDelta(text=text):
                opening = "" if self._open else "<think>"
                self._open = True
                return [TextDelta(opening + text)]
            case _ if self._open and not isinstance(event, _ASIDE):
                self._open = False
                return [TextDelta("</think>\n\n"), event]
            case _:
                return [event]


# ---- A stage for every backend: `<think>` or `<thinking>` at the beginning of an answer becomes reasoning; tags after
# the first visible text stay text.
#
# After the first visible text the stage is spent.

_MAYBE: Final = frozenset(("", "<", " ", "\n", "\r", "\t"))
"""First characters of a text that may begin with a tag; empty for an empty text."""
_FLUSHES: Final = (ToolCallStarted, *TERMINAL)


def think_tags(_: TurnRequest) -> Stage:
    return ThinkTags()


class ThinkTags:
    """Turns leading tags into reasoning. Creates a parser only if the text may begin with a tag."""

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
            events = _events(parser.feed(event.text))
            self.spent = parser.plain
            return events
        if parser is not None and isinstance(event, _FLUSHES):
            events = _events(parser.finish())
            return [*events, unclosed(), event] if parser.unclosed and type(event) is TurnEnded else [*events, event]
        return [event]


def _events(pieces: list[Piece]) -> list[Event]:
    events: list[Event] = []
    for piece in pieces:
        match piece:
            case TextPiece(text=text):
                events.append(TextDelta(text))
            case ThinkingPiece(text=text):
                events.append(ReasoningDelta(text))
            case _:
                pass  # without a trigger there are no calls
    return events
