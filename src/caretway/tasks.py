"""`spawn`: background tasks whose failures are logged and that are not garbage collected. `aside`: work that would
block the event loop, one at a time in a thread.

aside(): runs pure work that would block the event loop, in one shared thread. Python switches threads between bytecode
steps and not within one, so a single step that takes long (a decoder on a large text) still has to be cut up.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
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
