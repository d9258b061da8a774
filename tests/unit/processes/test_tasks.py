"""Work in a thread: its result, its failure, and that stopping it is never too early and never too late."""

import asyncio
import threading

import pytest

from caretway.processes.tasks import Stopped, _OwnLoop, in_own_loop, in_own_thread


async def test_results_and_failures_come_back() -> None:
    async def fine() -> int:
        await asyncio.sleep(0)
        return 7

    async def failing() -> int:
        raise LookupError("inside")

    assert await in_own_loop(fine, "a-thread") == 7
    with pytest.raises(LookupError, match="inside"):
        await in_own_loop(failing, "a-thread")
    assert await in_own_thread(threading.get_ident, lambda: None, "a-thread") != threading.get_ident()


async def test_cancelled_it_has_ended_before_its_caller_goes_on() -> None:
    begun, stop, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        stop.wait()
        ended.set()

    task = asyncio.ensure_future(in_own_thread(work, stop.set, "a-thread"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_cancelled_a_coroutine_is_cancelled_over_there() -> None:
    begun, cleaned = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.set()

    task = asyncio.ensure_future(in_own_loop(work, "a-thread"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


def test_stopped_before_it_began_and_after_it_ended() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def short() -> int:
        return 3

    early = _OwnLoop(forever)
    early.stop()
    with pytest.raises(Stopped):
        early.run()
    late = _OwnLoop(short)
    assert late.run() == 3
    late.stop()
