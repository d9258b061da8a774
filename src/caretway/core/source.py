"""Between the two ways of reading events: being told of them (`core.turn.Source`), and waiting for them.

`receive` waits on any source. `Pulled` makes a source of whoever has only an `async receive`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..tasks import spawn
from .events import TERMINAL, Event
from .turn import Source


async def receive(source: Source) -> list[Event]:
    """At least one event, as soon as there is one."""
    while not (events := source.take()):
        told = asyncio.Event()
        source.listen(told.set)
        await told.wait()
    return events


class Pulled(ABC):
    """For turns that await their events: a task of ours waits, and whoever listens is told when it is done.

    One batch is fetched ahead. After a terminal event nothing is fetched until somebody asks again.
    """

    _pulling: asyncio.Task[list[Event] | Exception] | None = None
    _ready: Callable[[], None] | None = None

    @abstractmethod
    async def receive(self) -> list[Event]: ...

    @abstractmethod
    async def aclose(self) -> None: ...

    def close(self) -> None:
        spawn(self.aclose(), "close-turn")

    def listen(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        if self._pulling is None:
            self._pull()

    def take(self) -> list[Event]:
        pulling = self._pulling
        if pulling is None:
            self._pull()
            return []
        if not pulling.done():
            return []
        self._pulling = None
        outcome = pulling.result()
        if isinstance(outcome, Exception):
            raise outcome
        if not isinstance(outcome[-1], TERMINAL):
            self._pull()
        return outcome

    def _pull(self) -> None:
        self._pulling = asyncio.get_running_loop().create_task(self._outcome(), name="pull-events")
        self._pulling.add_done_callback(self._pulled)

    async def _outcome(self) -> list[Event] | Exception:
        """A failure is kept for whoever takes next; nobody may, and that is no news for the log."""
        try:
            return await self.receive()
        except Exception as failure:
            return failure

    def _pulled(self, pulling: asyncio.Task[list[Event] | Exception]) -> None:
        if pulling.cancelled():  # the loop is being closed
            self._pulling = None
        elif self._ready is not None:
            self._ready()
