"""All children of one owner, so that none of them outlives it; and a program run to its end for a short answer."""

import asyncio
from dataclasses import dataclass

from .child import Child, Command, Exit, Sink, start_child


class NurseryClosed(Exception):
    """Nothing is started any more."""


class Nursery:
    """Every child of one owner: none of them outlives it."""

    def __init__(self) -> None:
        self._children: set[Child] = set()
        self._closed = False

    @property
    def live(self) -> int:
        return len(self._children)

    async def start(self, command: Command, sink: Sink) -> Child:
        """Raises CannotStart, and NurseryClosed after `aclose`."""
        if self._closed:
            raise NurseryClosed
        return await start_child(command, sink, among=self._children)

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.gather(*(child.aclose() for child in list(self._children)))


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    stdout: str
    stderr: str


class _Collector:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.stdout = bytearray()

    def data(self, data: bytes) -> None:
        self.stdout += data[: self._limit - len(self.stdout)]

    def ended(self, exit_: Exit) -> None:
        """Whoever started it waits for it."""


async def run_once(nursery: Nursery, command: Command, *, timeout: float, limit: int = 4 * 2**20) -> Output:
    """Run a program to its end with no input; `limit` bytes of its output are kept. Raises TimeoutError. However this
    ends, the program is dead then."""
    collector = _Collector(limit)
    child = await nursery.start(command, collector)
    child.close_stdin()
    try:
        async with asyncio.timeout(timeout):
            exit_ = await child.wait()
    finally:
        await child.aclose()
    return Output(exit_.code, collector.stdout.decode("utf-8", "replace"), exit_.stderr)
