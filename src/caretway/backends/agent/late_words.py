"""Words that the model says after a response has ended with calls: kept for the next response, at most 1 MiB. Pure."""

from collections.abc import Sequence
from typing import Final

from ...core.event_buffer import weight
from ...core.events import Event, ReasoningDelta, TextDelta

MAX_LATE_BYTES: Final = 1024 * 1024


class LateWords:
    __slots__ = ("_bytes", "_events")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._bytes = 0

    def keep(self, events: Sequence[Event]) -> bool:
        """False: it is more than is kept."""
        self._events += events
        self._bytes += sum(map(weight, events))
        return self._bytes <= MAX_LATE_BYTES

    def take(self) -> tuple[Sequence[Event], int]:
        """The events, and how many characters they have."""
        events, self._events, self._bytes = self._events, [], 0
        return events, sum(len(event.text) for event in events if isinstance(event, TextDelta | ReasoningDelta))
