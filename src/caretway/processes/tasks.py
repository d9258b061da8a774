"""`spawn`: background tasks whose failures are logged and that are not garbage collected. `aside`: work that would
block the event loop, one at a time in a thread. `LoopThread`: an event loop for a program that has none.

aside(): runs pure work that would block the event loop, in one shared thread. Python switches threads between bytecode
steps and not within one, so a single step that takes long (a decoder on a large text) still has to be cut up.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any, Final, ParamSpec, TypeVar

log = logging.getLogger(__name__)

Given = ParamSpec("Given")
Result = TypeVar("Result")

_RUNNING: Final[set[asyncio.Task[Any]]] = set()  # asyncio holds tasks weakly; this is the strong reference

_ASIDE: Final = ThreadPoolExecutor(1, "aside")
"""One thread: large requests wait for each other, and the event loop gets the rest of the time."""


async def aside(work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """The result of `work`, which must share no state while it runs. If it is cancelled before its turn, it never
    starts."""
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
    """Runs coroutines in an event loop of its own, in a thread that does not keep the process alive."""

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
        """Waits for the result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
