"""One timer for a whole stream: it interrupts a wait that takes too long, and nothing else."""

import asyncio

import pytest

from caretway.web.silence import SilenceWatch


async def wait(watch: SilenceWatch, event: asyncio.Event) -> str:
    watch.waiting = True
    try:
        await event.wait()
    except asyncio.CancelledError:
        if not watch.interrupted():
            raise
        return "silence"
    finally:
        watch.waiting = False
    return "heard"


async def test_a_wait_that_takes_too_long_is_interrupted_again_and_again() -> None:
    watch = SilenceWatch(0.01, end=asyncio.get_running_loop().time() + 60)
    try:
        assert [await wait(watch, asyncio.Event()) for _ in range(3)] == ["silence"] * 3
    finally:
        watch.stop()
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


async def test_the_end_interrupts_though_patience_would_last() -> None:
    watch = SilenceWatch(60, end=asyncio.get_running_loop().time() + 0.01)
    assert await wait(watch, asyncio.Event()) == "silence"
    watch.stop()


async def test_work_that_is_no_waiting_is_left_alone() -> None:
    watch = SilenceWatch(0.005, end=asyncio.get_running_loop().time() + 60)
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, done.set)
    await done.wait()  # not said to be waiting: several rings pass
    watch.stop()


async def test_cancelling_from_outside_is_still_that() -> None:
    async def reader() -> str:
        watch = SilenceWatch(60, end=asyncio.get_running_loop().time() + 60)
        try:
            return await wait(watch, asyncio.Event())
        finally:
            watch.stop()

    task = asyncio.create_task(reader())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_both_at_once_is_a_cancellation() -> None:
    begun = asyncio.Event()

    async def reader() -> str:
        loop = asyncio.get_running_loop()
        watch = SilenceWatch(0.0, end=loop.time() + 60)
        begun.set()
        try:
            return await wait(watch, asyncio.Event())
        finally:
            watch.stop()

    task = asyncio.create_task(reader())
    await begun.wait()
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
