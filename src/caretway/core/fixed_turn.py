"""A turn whose events are all known when it begins: a failure before the start, or an answer that is sent once more."""

from collections.abc import Sequence

from .errors import ErrorKind, GatewayError
from .event_buffer import EventBuffer
from .events import Event, TurnFailed
from .request import Text, ToolResult
from .turn import Snapshot


class FixedTurn:
    __slots__ = ("_buffer", "listen", "take")

    def __init__(self, events: list[Event]) -> None:
        self._buffer = EventBuffer(0)
        self._buffer.put(events)
        self.listen, self.take = self._buffer.listen, self._buffer.take

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "There is no turn to give results to.")

    def snapshot(self) -> Snapshot | None:
        return None

    def close(self) -> None:
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()


def failed_turn(error: GatewayError) -> FixedTurn:
    """A turn that failed before it could begin."""
    return FixedTurn([TurnFailed(error)])
