"""Ends a response whose run passes a budget of its own: with the text so far and the reason `length`; never in the
middle of a tool call, and not when the client has calls to answer.

It measures what is written as it comes, by an estimate. What it costs a delta is paid only where one run has a budget.
"""

from collections.abc import Callable
from typing import Final

from ..core.estimate import tokens
from ..core.events import (
    Event,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TurnEnded,
    TurnStarted,
)
from ..core.request import TurnRequest
from ..core.turn import Stage

CHECK_CHARS: Final = 64
"""How much is written between two looks."""


def run_limit(request: TurnRequest) -> Stage | None:
    """Only where a run of this request has a budget of its own."""
    return request.charge.stage(request) if request.charge is not None else None


Passed = Callable[[int, int], bool]
"""(tokens that this response has read, and written) -> whether its run has passed a limit."""


class RunLimitStage:
    spent = False

    def __init__(self, passed: Passed) -> None:
        self._passed = passed
        self._read = 0
        self._chars = 0
        self._next_look = 0
        self._calls = False

    def feed(self, event: Event) -> list[Event]:
        match event:
            case TurnStarted(context_tokens=context):
                self._read = context or 0
            case TextDelta(text=text) | ReasoningDelta(text=text):
                self._chars += len(text)
                if self._chars >= self._next_look and not self._calls:
                    self._next_look = self._chars + CHECK_CHARS
                    if self._passed(self._read, tokens(self._chars)):
                        return [event, TurnEnded(StopReason.LENGTH)]
            case ToolCallStarted():
                self._calls = True
            case ToolCallDelta(arguments=arguments):
                self._chars += len(arguments)
            case _:
                pass
        return [event]
