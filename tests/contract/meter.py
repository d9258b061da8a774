"""How long the gateway's event loop is held: the thread's CPU time of each of its callbacks, not the clock's.

For tests that play something hostile and ask for the longest callback. Whoever else takes part (the simulated Cursor,
the client) has to live elsewhere: `simulated_elsewhere` starts a simulator in a process of its own. What the gateway
does aside is measured too: a thread gives way between two steps, so there the longest single call into C counts.
"""

import asyncio
import gc
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from caretway.cli.process import GC_THRESHOLDS
from caretway.processes.tasks import aside


@dataclass(slots=True)
class Longest:
    seconds: float = 0.0
    where: str = ""

    def __str__(self) -> str:
        return f"{self.seconds * 1000:6.1f} ms in {self.where or 'nothing'}"


class Meter:
    """`async with Meter() as meter: ...; meter.take()`"""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_loop = Longest()
        self._aside = Longest()
        self._depth = 0
        self._since = 0.0
        """When the interpreter went into C, on the thread that works aside; 0: it is not there."""

    def take(self) -> tuple[Longest, Longest]:
        """The longest callback, and the longest step of the work aside, since the last time."""
        found = self._on_loop, self._aside
        self._on_loop, self._aside = Longest(), Longest()
        return found

    async def __aenter__(self) -> Self:
        run = self._run_as_it_was = asyncio.Handle._run
        loop, clock = self._loop, time.thread_time

        def measured(handle: Any) -> None:
            if handle._loop is not loop:
                run(handle)
                return
            callback, began = handle._callback, clock()
            run(handle)
            if (took := clock() - began) > self._on_loop.seconds:
                self._on_loop = Longest(took, _name(callback))

        asyncio.Handle._run = measured  # type: ignore[method-assign,assignment]  # the loop runs every callback through it
        await aside(sys.setprofile, self._profile)
        return self

    async def __aexit__(self, *exc: object) -> None:
        asyncio.Handle._run = self._run_as_it_was  # type: ignore[method-assign]  # put back
        await aside(sys.setprofile, None)

    def _profile(self, where: FrameType, event: str, what: Any) -> None:
        """Between two events the interpreter was in C if it went there, or came back there from a generator."""
        now = time.thread_time()
        if self._since and now - self._since > self._aside.seconds:
            self._aside = Longest(now - self._since, f"{where.f_code.co_qualname} line {where.f_lineno} ({event})")
        if event == "c_call":
            self._depth += 1
        elif event in ("c_return", "c_exception"):
            self._depth -= 1
        self._since = now if event == "c_call" or (event == "return" and self._depth > 0) else 0.0


def _name(callback: Any) -> str:
    """A task's step, or the callback of a socket or a timer."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"a step of {task.get_coro()!r}"[:160]
    return repr(callback)[:160]


@contextmanager
def memory_as_served() -> Iterator[None]:
    """The collector as `caretway serve` sets it: what the test run has loaded is not the gateway's."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@asynccontextmanager
async def simulated_elsewhere() -> AsyncIterator[int]:
    """A simulator in a process of its own: its port. Its profile is `classic`, which takes what `live` would refuse for
    its size: the gateway has to cope with all of it."""
    command = [sys.executable, "-m", "caretway", "simulate", "--port", "0", "--profile", "classic"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise AssertionError("the simulator did not start")
        yield int(found.group(1))
    finally:
        process.terminate()
        await process.wait()
