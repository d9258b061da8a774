"""A RunHandler that writes down what it hears and lets a test wait for it, and runs that every transport must carry."""

import asyncio
from collections.abc import Callable

from caretway.core.errors import GatewayError
from caretway.cursor.transport.ports import NewRun, RunHandler, Transport
from caretway.cursor.wire.envelope import End

PATIENCE_S = 20.0


class Listener:
    def __init__(self, react: Callable[[bytes], None] | None = None) -> None:
        self.reads: list[int] = []
        """How many frames came in each call."""
        self.frames: list[bytes] = []
        self.bytes = 0
        self.closings: list[GatewayError | None] = []
        self.react = react
        self._news = asyncio.Event()

    def on_messages(self, frames: list[bytes]) -> None:
        assert not self.closings
        self.reads.append(len(frames))
        self.frames.extend(frames)
        self.bytes += sum(len(frame) for frame in frames)
        self._news.set()
        if self.react is not None:
            for frame in frames:
                self.react(frame)

    def on_closed(self, error: GatewayError | None) -> None:
        self.closings.append(error)
        self._news.set()

    @property
    def payloads(self) -> list[bytes]:
        return list(self.frames)

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                self._news.clear()
                await self._news.wait()

    async def heard(self, count: int) -> list[bytes]:
        await self.until(lambda: len(self.frames) >= count or bool(self.closings))
        return self.payloads

    async def ended(self) -> GatewayError | None:
        await self.until(lambda: bool(self.closings))
        await asyncio.sleep(0)  # a second closing would come in the same breath
        assert len(self.closings) == 1
        return self.closings[0]

    async def failed(self) -> GatewayError:
        error = await self.ended()
        assert error is not None
        return error


def _fits_the_port(listener: Listener) -> RunHandler:
    return listener


async def count_down(transport: Transport) -> Listener:
    """A run with a peer that gives numbers back: the next one is sent in the very callback that brought the last."""
    listener = Listener()
    run = await transport.open_run(NewRun("r", {}), listener)

    def answer(frame: bytes) -> None:
        if not isinstance(frame, End):
            run.send(b"%d" % (int(frame) - 1))

    listener.react = answer
    run.send(b"50")
    assert await listener.ended() is None
    assert listener.payloads[:2] == [b"50", b"49"]
    assert isinstance(listener.frames[-1], End)
    return listener


async def close_after_one(transport: Transport) -> Listener:
    """A run that heard one message, was closed twice, and was written to after that."""
    listener = Listener()
    run = await transport.open_run(NewRun("r", {}), listener)
    run.send(b"x")
    await listener.heard(1)
    run.close()
    run.close()
    run.send(b"into the void")
    return listener


async def soon(happened: Callable[[], bool]) -> None:
    """Wait for something that has no event of its own: the other end of a socket, mostly."""
    async with asyncio.timeout(PATIENCE_S):
        while not happened():  # the state is the peer's, and it has nothing to await
            await asyncio.sleep(0.002)
