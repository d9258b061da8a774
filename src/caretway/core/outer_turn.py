"""The frame of a turn around another one (text protocol, MCP bridge): takes the inner turn's events only while its own
buffer has room (backpressure), and hands an exception to its reader.

`_digest` runs in the callback that brought the events. While this turn's own buffer is full nothing is taken from the
inner turn, whose buffer then holds upstream back. Knows nothing of what is made of the events, nor of results.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from .event_buffer import EventBuffer
from .events import Event
from .turn import Snapshot, Turn

AHEAD_BYTES: Final = 64 * 1024
"""How far it reads ahead of its reader. The inner turn has a buffer of its own behind that."""


class OuterTurn(ABC):
    def __init__(self, inner: Turn) -> None:
        """The creator calls `_follow` when it is ready to digest."""
        self._inner = inner
        self._closed = False
        self._buffer = EventBuffer(AHEAD_BYTES, on_drained=self._hear_soon)
        self.listen, self.take = self._buffer.listen, self._buffer.take

    @property
    @abstractmethod
    def _listens(self) -> bool:
        """The inner turn's events are wanted. When they are wanted again, `_hear` is called."""

    @abstractmethod
    def _digest(self, batch: list[Event]) -> list[Event]:
        """What the reader gets of the inner turn's events. The batch may be empty."""

    def snapshot(self) -> Snapshot | None:
        return self._inner.snapshot()

    def close(self) -> None:
        self._closed = True
        self._inner.close()
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()
        await self._inner.aclose()

    def _follow(self, inner: Turn) -> None:
        self._inner = inner
        inner.listen(self._hear)
        self._hear()

    def _hear(self) -> None:
        """Something can be taken from the inner turn, and this one has room for it."""
        if self._closed or self._buffer.full or not self._listens:
            return
        try:
            events = self._digest(self._inner.take())
        except Exception as failure:  # whatever it is, it is for the reader: the inner turn's callback cannot handle it
            self._buffer.close(failure)
            return
        self._buffer.put(events)

    def _hear_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._hear)
