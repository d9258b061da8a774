"""The process around a command: event loop, signals, logging, and failures a user can do something about.

Imports asyncio only when called: `caretway --help` and `caretway config` do without.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..observe.redact import RedactingFormatter, Redactor

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")

_LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
GC_THRESHOLDS: Final = (10_000, 20, 20)
"""Python's own are 700, 10, 10: a collection for every request, and a full one every hundred."""
INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as shells expect it."""
HASTE_S: Final = 2.0
"""How long an end at once may take: programs that were started are ended, and what is known is written down."""


@dataclass(slots=True, eq=False)
class CommandFailed(Exception):
    """Ends a command with one line and no traceback."""

    message: str
    hint: str = ""
    exit_code: int = 1

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run on uvloop where it is installed, on asyncio's own loop otherwise."""
    import asyncio

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def settle_memory() -> None:
    """Called once everything is set up. What was made until now stays until the end, so the collector need not look at
    it again; and requests leave few cycles behind, so it need not look so often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def end_now(number: signal.Signals) -> None:
    """Without another word, and with the exit code that shells expect after this signal."""
    os._exit(128 + number)


async def stop_signal(again: Callable[[signal.Signals], None] = end_now) -> signal.Signals:
    """Wait for SIGINT or SIGTERM and say which it was. `again` is called for each one that comes after it."""
    import asyncio

    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        if arrived.done():
            again(number)
        else:
            arrived.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, note, number)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda got, _frame: loop.call_soon_threadsafe(note, signal.Signals(got)))
    return await arrived


class Haste:
    """What a further signal does to the task that made this and is closing something: it is cancelled, so that it waits
    for nobody any more and still leaves no program behind. One more signal, or too long a wait, ends the process."""

    def __init__(self, end: Callable[[signal.Signals], None] = end_now, limit_s: float = HASTE_S) -> None:
        import asyncio

        self._end = end
        self._limit = limit_s
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self.asked_by: signal.Signals | None = None

    def __call__(self, number: signal.Signals) -> None:
        if self.asked_by is not None or self._task is None:
            self._end(number)
            return
        self.asked_by = number
        last_resort = threading.Timer(self._limit, self._end, (number,))  # a loop that is busy or closed has no timers
        last_resort.daemon = True
        last_resort.start()
        # Not in this step: both signals may have come at once, and the task has still to begin with closing.
        self._loop.call_soon(self._task.cancel)


def exit_code(stopped_by: signal.Signals | None) -> int:
    """Ctrl-C is a user's interruption; being asked to stop by a service manager is success."""
    return INTERRUPTED if stopped_by is signal.SIGINT else 0


def log_to_stderr(level: str, secrets: Iterable[str] = ()) -> None:
    """Every line goes through the redactor, whoever wrote it: libraries put headers into their messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(_LOG_FORMAT, Redactor(secrets)))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # What no line of ours shows is not looked up for every line: the caller, the thread, the process.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.getLogger("hpack").setLevel(logging.WARNING)  # it writes every header, and does it for each frame
    if level != "debug":
        for name in ("mcp", "httpx", "httpx2"):  # what matters is told by our own lines; theirs have addresses in full
            logging.getLogger(name).setLevel(logging.CRITICAL)


def say(lines: Iterable[str]) -> None:
    """Print at once: whoever reads a pipe waits for these lines."""
    print("\n".join(lines), flush=True)


def remark(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"caretway: {line}", file=sys.stderr, flush=True)


def listening_failed(failure: OSError, host: str, port: int, command: str) -> CommandFailed:
    """Why the address could not be had, and what to type instead."""
    if failure.filename is not None:
        return CommandFailed(f"cannot use {failure.filename}: {failure.strerror}")
    if failure.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65535 else 0
        return CommandFailed(f"port {port} on {host} is already in use", f"try: {command} --port {other}")
    if failure.errno in (errno.EACCES, errno.EPERM):
        return CommandFailed(f"no permission to listen on {host} port {port}", f"try: {command} --port 0")
    if failure.errno == errno.EADDRNOTAVAIL or isinstance(failure, socket.gaierror):
        return CommandFailed(f"{host} is not an address of this machine", f"try: {command} --host 127.0.0.1")
    return CommandFailed(f"cannot listen on {host} port {port}: {failure.strerror or failure}")
