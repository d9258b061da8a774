"""`spawn`: background tasks whose failures are logged and that are not garbage collected. `aside`: pure work that would
block the event loop, one at a time in a shared thread. `LoopThread`: an event loop for a program without one.

Python switches threads between bytecode steps, not within one, so a long single step (a decoder on a large text) must
still be split.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import Any, Final, Generic, ParamSpec, TypeVar

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


# ---- Runs work, or a coroutine on a separate loop, in a thread of its own; cancelling the caller stops the work and
# waits for its end. For work that takes minutes, which would fill the loop's thread pool, or keeps its thread busy,
# which would delay the event loop.

T = TypeVar("T")


class Stopped(Exception):
    """The work was stopped from outside."""


async def in_own_thread(work: Callable[[], T], stop: Callable[[], None], name: str) -> T:
    """Run `work` in its own thread. On cancellation call `stop()` and wait for `work`, so that it does not outlive the
    caller."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(lambda future: future.cancelled() or future.exception())  # the caller may be gone

    def succeed(result: T) -> None:
        if not done.cancelled():
            done.set_result(result)

    def fail(failure: BaseException) -> None:
        if not done.cancelled():
            done.set_exception(failure)

    def body() -> None:
        try:
            settle = partial(succeed, work())
        except BaseException as failure:  # passed to the caller
            settle = partial(fail, failure)
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter
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
    """Run a coroutine on its own event loop in its own thread."""
    running = _OwnLoop(work)
    return await in_own_thread(running.run, running.stop, name)


class _OwnLoop(Generic[T]):
    """`run` blocks its thread; `stop` may be called from any thread, at any time, repeatedly."""

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
