"""`spawn`: background tasks whose failures are logged and that are not garbage collected. `aside`: pure work that would
block the event loop, one at a time in a shared thread. `LoopThread`: an event loop for a program without one.

Python switches threads between bytecode steps, not within one, so a long single step (a decoder on a large text) must
still be split.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any, Final, ParamSpec, TypeVar

# ---- A timer that is cheap to reset: moving its deadline later costs nothing, because the event loop's old timer stays
# and is reset only when it fires. A timer of the event loop costs as much as a small message, too much for an owner
# that alternates between busy and idle.


class DeadlineTimer:
    __slots__ = ("_callback", "_due", "_loop", "_rings_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callback: Callable[[], None] | None = None
        self._due = self._rings_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, delay: float, callback: Callable[[], None]) -> None:
        """Call `callback` once after `delay` seconds, instead of any earlier callback."""
        self._callback = callback
        self._due = self._loop.time() + delay
        if self._timer is None or self._rings_at > self._due:
            self._arm()

    def cancel(self) -> None:
        self._callback = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._due
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._rings_at < self._due:
            self._arm()
        elif self._callback is not None:
            callback, self._callback = self._callback, None
            callback()


log = logging.getLogger(__name__)

Given = ParamSpec("Given")
Result = TypeVar("Result")

_RUNNING: Final[set[asyncio.Task[Any]]] = set()  # asyncio holds tasks weakly; this is the strong reference

_ASIDE: Final = ThreadPoolExecutor(1, "aside")
"""One thread: large requests wait for each other and leave the rest of the time to the event loop."""


async def aside(work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """Return the result of `work`, which must share no state while it runs. Work that is cancelled before its turn
    never starts."""
    return await asyncio.get_running_loop().run_in_executor(_ASIDE, lambda: work(*given, **named))


def spawn(work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _RUNNING.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[Any]) -> None:
    _RUNNING.discard(task)
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("background task %s failed: %s", task.get_name(), failure, exc_info=failure)


class LoopThread:
    """Runs coroutines on its own event loop, in a thread that does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
