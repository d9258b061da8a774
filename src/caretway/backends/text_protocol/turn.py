"""A turn over a text-only backend: stops the inner turn at the first word after its calls, starts a correction where
upstream keeps the conversation; no snapshot after calls.

All of that happens in the callback that brought the words (`core/outer_turn.py`). Only a correction is a task.
"""

from collections.abc import Awaitable, Callable, Sequence

from ...core.errors import ErrorKind, GatewayError
from ...core.events import TERMINAL, Event
from ...core.outer_turn import OuterTurn
from ...core.request import Text, ToolResult
from ...core.turn import Snapshot, Turn
from ...processes.tasks import spawn
from .parser import BadCall
from .reader import TextReader

Correct = Callable[[Snapshot, str, Sequence[BadCall]], Awaitable[Turn]]
"""(the conversation so far, what the model said, its wrong calls) -> the turn that goes on."""


class TextTurn(OuterTurn):
    def __init__(self, inner: Turn, reader: TextReader, correct: Correct) -> None:
        super().__init__(inner)
        self._reader = reader
        self._correct = correct
        self._follow(inner)

    parks = False

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "A turn over text has ended with its calls.")

    def snapshot(self) -> Snapshot | None:
        """None after calls: upstream's memory may hold less, or more, than the calls that were made."""
        return None if self._reader.calls else self._inner.snapshot()

    # ---- the inner turn

    @property
    def _listens(self) -> bool:
        return self._reader.listens

    def _digest(self, batch: list[Event]) -> list[Event]:
        reader = self._reader
        events = reader.feed(batch)
        if reader.ended is not None:
            kept = self._inner.snapshot()
            if kept is None:
                events += reader.give_up()
            else:
                spawn(self._corrected(kept), "correct-text-calls")
        elif reader.over and not isinstance(batch[-1], TERMINAL):
            self._inner.close()  # at the first word behind its calls
        return events

    async def _corrected(self, kept: Snapshot) -> None:
        reader = self._reader
        try:
            await self._inner.aclose()
            following = await self._correct(kept, reader.said, reader.wrong)
        except Exception as failure:  # whatever it is: the reader waits for an answer, and nobody waits for this task
            self._buffer.close(failure)
            return
        if self._closed:
            await following.aclose()
            return
        reader.corrected()
        self._follow(following)
