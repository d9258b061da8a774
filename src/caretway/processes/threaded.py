"""A program run to its end in a thread of its own: bounded output, a time limit, and nothing left behind.

Outside the event loop, so that a flood of output holds nobody up, and outside the loop's shared thread pool, because it
may take minutes. The thread watches the pipes, the child's end and a wake-up pipe in one selector; so it can always be
stopped, also when a grandchild keeps the pipes open. POSIX only; the module can be imported anywhere.
"""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from .child import Command
from .group import Group, start
from .head_tail import HeadTail

TERM_GRACE_S: Final = 2.0
"""Between the polite signal and the other one."""
DRAIN_S: Final = 0.5
"""How long the output of left-over background children is waited for once they were told to end."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    """As a shell reports it: 128 + N for signal N."""
    signal: str
    stdout: HeadTail
    stderr: HeadTail
    seconds: float
    timed_out: bool


class Stopped(Exception):
    """The command was stopped from outside."""


class Running:
    """One command. `run` blocks in its thread; `stop` may be called from anywhere, at any time, more than once."""

    def __init__(self, command: Command, *, timeout_s: float, output_bytes: int) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._output_bytes = output_bytes
        self._lock = threading.Lock()
        self._wake_up: int | None = None
        self._stopped = self._exited = False

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._wake_up is not None:
                os.write(self._wake_up, b"!")

    def run(self) -> Finished:
        wake, wake_up = os.pipe()
        with self._lock:
            self._wake_up = wake_up
        try:
            if self._stopped:
                raise Stopped
            return self._run(wake)
        finally:
            with self._lock:
                self._wake_up = None
                os.close(wake)
                os.close(wake_up)

    def _run(self, wake: int) -> Finished:
        command = self._command
        began = time.monotonic()
        group = start(command.argv, cwd=command.cwd, environment=command.environment, stdin=subprocess.DEVNULL)
        stdout, stderr = group.leader.stdout, group.leader.stderr
        assert stdout is not None
        assert stderr is not None
        watcher = threading.Thread(target=self._watch, args=(group,), name="child-exit", daemon=True)
        pump = _Pump(stdout.fileno(), stderr.fileno(), wake, self._output_bytes)
        try:
            watcher.start()
            in_time = pump.until(lambda: self._exited or self._stopped, began + self._timeout_s)
            seconds = time.monotonic() - began
            group.signal(signal.SIGTERM)
            pump.until(lambda: self._exited, time.monotonic() + TERM_GRACE_S)
            pump.until(pump.at_end, time.monotonic() + DRAIN_S)
        finally:
            group.signal(signal.SIGKILL)
            pump.until(pump.at_end, time.monotonic() + DRAIN_S)  # only one who left the group can keep a pipe open now
            pump.close()
            stdout.close()
            stderr.close()
            watcher.join()
            code = group.reap()
        if self._stopped:
            raise Stopped
        return Finished(*_exit(code), pump.stdout, pump.stderr, seconds, timed_out=not in_time)

    def _watch(self, group: Group) -> None:
        group.wait()
        self._exited = True
        self._wake()


class _Pump:
    """Both pipes and the wake-up pipe in one selector."""

    def __init__(self, stdout: int, stderr: int, wake: int, limit: int) -> None:
        self.stdout = HeadTail(limit)
        self.stderr = HeadTail(limit)
        self._wake = wake
        self._sinks = {stdout: self.stdout, stderr: self.stderr}
        self._selector = selectors.DefaultSelector()
        for fd in (stdout, stderr, wake):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ)

    def at_end(self) -> bool:
        return not self._sinks

    def until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Read until the condition holds (True) or the time is up (False)."""
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self._selector.select(left):
                self._take(key.fd)
        return True

    def _take(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if fd == self._wake:
            return
        if data:
            self._sinks[fd].add(data)
        else:
            self._selector.unregister(fd)
            del self._sinks[fd]

    def close(self) -> None:
        self._selector.close()


def _exit(code: int) -> tuple[int, str]:
    if code >= 0:
        return code, ""
    try:
        return 128 - code, signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        return 128 - code, f"signal {-code}"


async def in_own_thread(work: Callable[[], T], stop: Callable[[], None], name: str) -> T:
    """Run `work` in a thread of its own. When cancelled: `stop()`, and `work` is waited for, so that nothing of it
    outlives the caller."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(lambda future: future.cancelled() or future.exception())  # nobody may be left to ask

    def settle(result: T | None, failure: BaseException | None) -> None:
        if done.cancelled():
            return
        if failure is not None:
            done.set_exception(failure)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only when T has None in it

    def body() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as raised:  # handed to the one who waits
            failure = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=body, name=name, daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop()
        with contextlib.suppress(Exception):
            await asyncio.shield(done)
        raise
