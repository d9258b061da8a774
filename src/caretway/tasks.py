"""spawn(): the one way to start a background task. It keeps the reference and reports failures; asyncio does not.

aside(): pure work that would hold up everybody's streams, in one thread for all of it. A thread gives way between two
steps of Python and not within one: a step that takes long (a decoder on a large text) has to be cut up all the same.
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
"""One: large requests wait for each other, and leave the rest of the interpreter's time to everybody else."""


async def aside(work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """The result of `work`, which shares nothing with anybody while it runs. Cancelled in time, it is never begun."""
    return await asyncio.get_running_loop().run_in_executor(_ASIDE, lambda: work(*given, **named))


def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _RUNNING.add(task)
    task.add_done_callback(_finished)
    return task


def _finished(task: asyncio.Task[Any]) -> None:
    _RUNNING.discard(task)
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("background task %s failed: %s", task.get_name(), failure, exc_info=failure)
