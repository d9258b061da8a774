"""How long a parked turn waits for tool results, and which one is evicted first when too many are parked: a single
forced call (structured output) waits a minute and goes first. Pure.

Structured output is often asked for as one forced call: the call itself is the answer, and its client does not come
back. Such a turn is kept for a minute, for those who do, and never at the cost of an agent's loop.
"""

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from ..core.request import ToolResult, TurnRequest, last_answer

ONE_CALL_S: Final = 60.0
"""Most clients that go on after a forced call do so within seconds; a later one is replayed."""


def wants_one_call(request: TurnRequest) -> bool:
    """One certain call was demanded, and it is the first step: nothing says that there will be another."""
    choice = request.tool_choice
    if choice.mode != "named" and not (choice.mode == "required" and len(request.tools) == 1):
        return False
    news = request.messages[last_answer(request.messages) :]
    return not any(isinstance(part, ToolResult) for message in news for part in message.parts)


def patience(request: TurnRequest, longest: float) -> float:
    """Seconds for which a turn waits for the results of its calls."""
    return min(ONE_CALL_S, longest) if wants_one_call(request) else longest


class Waiting(Protocol):
    @property
    def request(self) -> TurnRequest: ...


T = TypeVar("T", bound=Waiting)


def first_to_go(parked: Iterable[T]) -> T:
    """`parked`: at least one, oldest first."""
    turns = list(parked)
    return next((turn for turn in turns if wants_one_call(turn.request)), turns[0])
