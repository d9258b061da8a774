"""A turn whose upstream speaks text only: it listens to the inner turn, and its reader makes events of the words.

All of that happens in the callback that brought the words. Only a correction is a task: a wrong call is told to the
model when upstream keeps its conversation, and shown as text otherwise. While this turn's own buffer is full nothing is
taken from the inner turn, whose buffer then holds upstream back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ..core.errors import ErrorKind, GatewayError
from ..core.event_buffer import EventBuffer
from ..core.events import TERMINAL
from ..core.request import Text, ToolResult
from ..core.turn import Snapshot, Turn
from ..tasks import spawn
from .parser import BadCall
from .reader import TextReader

Correct = Callable[[Snapshot, str, Sequence[BadCall]], Awaitable[Turn]]
"""(the conversation so far, what the model said, its wrong calls) -> the turn that goes on."""
AHEAD_BYTES: Final = 64 * 1024
"""How far this turn reads ahead of its reader. The inner turn has a buffer of its own behind that."""


class TextTurn:
    def __init__(self, inner: Turn, reader: TextReader, correct: Correct) -> None:
        self._inner = inner
        self._reader = reader
        self._correct = correct
        self._buffer = EventBuffer(AHEAD_BYTES, on_drained=self._hear_soon)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self._correcting: asyncio.Task[None] | None = None
        self._closed = False
        self._follow(inner)

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "A turn over text has ended with its calls.")

    def snapshot(self) -> Snapshot | None:
        """None after calls: upstream's memory may hold less, or more, than the calls that were made."""
        return None if self._reader.calls else self._inner.snapshot()

    def close(self) -> None:
        self._closed = True
        self._inner.close()
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()
        await self._inner.aclose()

    # ---- the inner turn

    def _follow(self, inner: Turn) -> None:
        self._inner = inner
        inner.listen(self._hear)
        self._hear()

    def _hear_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._hear)

    def _hear(self) -> None:
        """Something can be taken from the inner turn, and this one has room for it."""
        reader = self._reader
        if self._closed or self._buffer.full or self._correcting is not None or reader.over:
            return
        try:
            batch = self._inner.take()
            events = reader.feed(batch)
            if reader.ended is not None:
                kept = self._inner.snapshot()
                if kept is None:
                    events += reader.give_up()
                else:
                    self._correcting = spawn(self._corrected(kept), "correct-text-calls")
            elif reader.over and not isinstance(batch[-1], TERMINAL):
                self._inner.close()  # at the first word behind its calls
        except Exception as failure:
            self._buffer.close(failure)
            return
        self._buffer.put(events)

    async def _corrected(self, kept: Snapshot) -> None:
        reader = self._reader
        try:
            await self._inner.aclose()
            following = await self._correct(kept, reader.said, reader.wrong)
        except Exception as failure:
            self._buffer.close(failure)
            return
        if self._closed:
            await following.aclose()
            return
        reader.corrected()
        self._correcting = None
        self._follow(following)
