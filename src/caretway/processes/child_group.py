"""All children of one owner, ended with it. Runs a program to its end: timeout, kept output, exit code as in a shell
(128 + n for signal n). Pipes and kills are in `child.py`."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .child import Child, ChildSink, Command, Exit, HeadTail, Pipe, decoded, start_child

PATIENCE_S: Final = 2.0
"""Seconds that `run_to_end` gives a command between SIGTERM and SIGKILL."""


class ChildGroupClosed(Exception):
    """The group is closed and starts no more children."""


class ChildGroup:
    """All children of one owner; none outlives it."""

    def __init__(self) -> None:
        self._children: set[Child] = set()
        self._closed = False

    @property
    def live(self) -> int:
        return len(self._children)

    async def start(self, command: Command, sink: ChildSink, closed: Callable[[Pipe], None] | None = None) -> Child:
        """Start a child. `closed` is called for each closed pipe. Raises CannotStart, or ChildGroupClosed after
        `aclose`."""
        if self._closed:
            raise ChildGroupClosed
        return await start_child(command, sink, closed=closed, among=self._children)

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.gather(*(child.aclose() for child in list(self._children)))


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    stdout: str
    stderr: str


class _Collector:
    """A sink that keeps the output up to a limit."""

    def __init__(self, kept: HeadTail) -> None:
        self.data = kept.add

    def ended(self, exit_: Exit) -> None: ...


async def run_once(
    children: ChildGroup, command: Command, *, data: bytes = b"", timeout: float | None, limit: int = 4 * 2**20
) -> Output:
    """Run a program to its end with `data` as input, keeping `limit` bytes of its output. Raises TimeoutError. The
    program is always dead afterwards."""
    stdout = HeadTail(limit, head=limit)
    child = await children.start(command, _Collector(stdout))
    try:
        child.write(data)
        child.close_stdin()
        async with asyncio.timeout(timeout):
            exit_ = await child.wait()
    finally:
        await child.aclose()
    return Output(exit_.code, decoded(stdout.kept()), exit_.stderr)


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    """As a shell reports it: 128 + N for signal N."""
    signal: str
    stdout: HeadTail
    stderr: HeadTail
    seconds: float
    timed_out: bool


async def run_to_end(command: Command, *, timeout_s: float, output_bytes: int) -> Finished:
    """Run a command that may take long and print much. The beginning and end of its output are kept, even after a
    timeout. Raises CannotStart."""
    stdout, stderr = HeadTail(output_bytes), HeadTail(output_bytes)
    began = asyncio.get_running_loop().time()
    child = await start_child(command, _Collector(stdout), stdin=subprocess.DEVNULL, stderr=stderr, grace=PATIENCE_S)
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            await child.wait()
    except TimeoutError:
        timed_out = child.alive  # not one that has ended and only its output is awaited
    finally:
        await child.aclose()
    assert child.exited_at is not None
    seconds = timeout_s if timed_out else child.exited_at - began
    return Finished(*_shell_status((await child.wait()).code), stdout, stderr, seconds, timed_out)


def _shell_status(code: int) -> tuple[int, str]:
    if code >= 0:
        return code, ""
    try:
        return 128 - code, signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        return 128 - code, f"signal {-code}"
