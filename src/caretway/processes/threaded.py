"""Runs work, or a coroutine with a loop of its own, in a separate thread; cancelling the caller stops it and waits for
its end, so nothing outlives the caller.

For work that may take minutes or keep its thread busy: the first would fill the loop's shared thread pool, and the
second would delay the event loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from .tasks import spawn

T = TypeVar("T")


class Stopped(Exception):
    """The work was stopped from outside."""


async def in_own_thread(work: Callable[[], T], stop: Callable[[], None], name: str) -> T:
    """Run `work` in a thread of its own. When cancelled, call `stop()` and wait for `work`, so nothing of it outlives
    the caller."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(lambda future: future.cancelled() or future.exception())  # nobody may be left to ask

    def succeed(result: T) -> None:
        if not done.cancelled():
            done.set_result(result)

    def fail(failure: BaseException) -> None:
        if not done.cancelled():
            done.set_exception(failure)

    def body() -> None:
        try:
            settle = partial(succeed, work())
        except BaseException as failure:  # handed to the one who waits
            settle = partial(fail, failure)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=body, name=name, daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop()
        with contextlib.suppress(Exception):  # work that was stopped may fail: the caller only needs its end
            await asyncio.shield(done)
        raise


async def in_own_loop(work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
    """Run a coroutine on an event loop in a thread of its own."""
    running = _OwnLoop(work)
    return await in_own_thread(running.run, running.stop, name)


class _OwnLoop(Generic[T]):
    """`run` blocks in its thread; `stop` may be called from anywhere, at any time, more than once."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._cancel: Callable[[], object] = lambda: None
        self._stopped = False

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._cancel()

    def run(self) -> T:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(self._main())

    async def _main(self) -> T:
        loop = asyncio.get_running_loop()
        task: asyncio.Task[T] = spawn(self._work(), "in-own-loop")
        with self._lock:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._stopped:
                self._cancel()
        try:
            return await task
        except asyncio.CancelledError:
            raise Stopped from None
        finally:
            with self._lock:
                self._cancel = lambda: None  # the loop is about to close
