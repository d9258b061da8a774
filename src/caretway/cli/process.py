"""The process around a command: uvloop, SIGINT and SIGTERM, a second Ctrl-C (stops at once but ends child processes)
and a third, exit codes after signals, the log's format, garbage collection, a port in use.

Imports asyncio late, because `caretway --help` and `caretway config` do not need it.
"""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from ..observe.redact import Redactor
from .terminal import Style, style_for, terminal_width

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")

GC_THRESHOLDS: Final = (10_000, 20, 20)
"""Thresholds of the garbage collector: Python's defaults of 700, 10, 10 cause a collection for every request and a full
one for every hundred."""
RESTART: Final = signal.SIGUSR1
"""Makes `caretway serve` restart in the same process, with the same flags."""
INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code that shells expect after Ctrl-C."""
HASTE_S: Final = 2.0
"""The time limit of an immediate stop, which ends child processes and writes unsaved conversations."""


@dataclass(slots=True, eq=False)
class CommandFailed(Exception):
    """Ends a command with one line and no traceback."""

    message: str
    hint: str = ""
    exit_code: int = 1

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def open_missing_streams() -> None:
    """Opens the null device for missing standard streams (`>&-`, some supervisors). Otherwise the next file or socket
    would take a stream's number, and uvloop would end the process."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is the missing stream's
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, mode))


def buffer_streams() -> None:
    """Restores buffering if PYTHONUNBUFFERED, which images often set, has removed it. Without a buffer Python silently
    drops the rest of a write that a signal interrupts."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            more = {"encoding": stream.encoding, "errors": stream.errors, "closefd": False}
            setattr(sys, name, os.fdopen(stream.fileno(), "w", buffering=1, **more))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs on uvloop if installed, otherwise on asyncio's own loop."""
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
    """Tunes the garbage collector after setup. Existing objects are frozen and never scanned again, because they live
    as long as the process (100 of 70,000 are garbage). Requests leave few cycles, so collections can be rare."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def end_now(number: signal.Signals) -> None:
    """Exits without cleanup, with the exit code that shells expect after this signal."""
    os._exit(128 + number)


async def stop_signal(
    again: Callable[[signal.Signals], None] = end_now, also: Iterable[signal.Signals] = ()
) -> signal.Signals:
    """Waits for SIGINT, SIGTERM or a signal of `also`, and returns it. `again` is called for each later signal."""
    import asyncio

    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: signal.Signals) -> None:
        if arrived.done():
            again(number)
        else:
            arrived.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, *also):
        loop.add_signal_handler(number, note, number)
    return await arrived


class Haste:
    """Handles further signals while the current task shuts down. The next signal cancels the task, which then stops
    waiting for answers but still ends its child processes. One more signal, or `limit_s`, ends the process."""

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
        last_resort = threading.Timer(self._limit, self._end, (number,))  # a busy or closed loop has no timers
        last_resort.daemon = True
        last_resort.start()
        # Deferred: both signals may have come at once, before the task begins to close.
        self._loop.call_soon(self._task.cancel)


def exit_code(stopped_by: signal.Signals | None) -> int:
    """The exit code: interrupted after Ctrl-C, success after a stop by a service manager."""
    return INTERRUPTED if stopped_by is signal.SIGINT else 0


def log_to_stderr(level: str, secrets: Iterable[str] = (), form: str = "text", file: Path | None = None) -> None:
    """Logs redacted lines to stderr, and to `file` if given. Libraries put headers into their messages."""
    from .log_lines import JsonFormatter, LineFormatter, LineHandler, NotGivenUp, NotTwice

    handler = LineHandler(sys.stderr)
    width = shown_width(sys.stderr)
    redactor = Redactor(secrets)
    handler.setFormatter(
        JsonFormatter(redactor) if form == "json" else LineFormatter(redactor, style_for(sys.stderr), width)
    )
    handler.addFilter(NotTwice())
    handlers: list[logging.Handler] = [handler]
    if file is not None:
        from .log_file import log_file

        handlers.append(log_file(file))
        handlers[-1].setFormatter(JsonFormatter(redactor) if form == "json" else LineFormatter(redactor, Style(), 0))
        handlers[-1].addFilter(NotTwice())
    for one in handlers:
        one.addFilter(NotGivenUp())
    logging.basicConfig(level=level.upper(), handlers=handlers)
    # Lines do not show the caller, the thread and the process, so logging need not look them up.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.getLogger("hpack").setLevel(logging.WARNING)  # it logs every header of each frame
    if level != "debug":
        for name in ("mcp", "httpx", "httpx2"):  # their lines contain full addresses
            logging.getLogger(name).setLevel(logging.CRITICAL)


def say(lines: Iterable[str]) -> None:
    """Prints and flushes, because the reader of a pipe waits for these lines."""
    print("\n".join(lines), flush=True)


def tell(lines: Iterable[str]) -> None:
    """Prints sentences, folded between words on a terminal, so that links and paths stay whole."""
    say(folded_between_words(line, shown_width(sys.stdout)) for line in lines)


def remark(lines: Iterable[str]) -> None:
    """Prints lines on standard error with the prefix `caretway:`."""
    for line in lines:
        print(folded_between_words(f"caretway: {line}", shown_width(sys.stderr)), file=sys.stderr, flush=True)


def confirmed(question: str, without_question: str) -> bool:
    """Asks a question and returns whether the answer is yes; Enter is no. `without_question`: the command to type where
    there is no terminal to ask."""
    if not sys.stdin.isatty():
        raise CommandFailed("there is no terminal to ask", f"type: {without_question}", 2)
    # A running event loop's handler would only record Ctrl-C, and the terminal would still be read.
    of_the_loop = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(f"{question} [y/N] ", end="", flush=True)
        line = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, of_the_loop)
    if not line:
        print(flush=True)  # after Ctrl-D the shell continues on a line of its own
    return line.strip().lower() in ("y", "yes")


def typed_or_piped(ask: Callable[[str], str], question: str, stdin: TextIO) -> str:
    """Reads one line: from a terminal by `ask`, empty at EOF, otherwise the first line of a pipe."""
    if not stdin.isatty():
        return stdin.readline().strip()
    try:
        return ask(question).strip()
    except EOFError:
        print(file=sys.stderr, flush=True)  # the shell continues on a line of its own
        return ""


def shown_width(stream: TextIO) -> int:
    """The width of the stream's terminal; 0 if the stream is no terminal and lines may have any length."""
    return terminal_width(os.get_terminal_size(stream.fileno()).columns) if stream.isatty() else 0


def folded_between_words(line: str, width: int) -> str:
    if not 0 < width < len(line):
        return line
    return fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def listening_failed(failure: OSError, host: str, port: int, command: str, owner: str = "") -> CommandFailed:
    """The reason why the gateway could not listen, and the remedy. `owner`: the program on the port, if known."""
    if failure.filename is not None:
        return CommandFailed(f"cannot use {failure.filename}: {failure.strerror}")
    if failure.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65535 else 0
        whose = f" by {owner}" if owner else ""
        return CommandFailed(f"port {port} on {host} is already in use{whose}", f"try: {command} --port {other}")
    if failure.errno in (errno.EACCES, errno.EPERM):
        return CommandFailed(f"no permission to listen on {host} port {port}", f"try: {command} --port 0")
    if failure.errno == errno.EADDRNOTAVAIL or isinstance(failure, socket.gaierror):
        return CommandFailed(f"{host} is not an address of this machine", f"try: {command} --host 127.0.0.1")
    return CommandFailed(f"cannot listen on {host} port {port}: {failure.strerror or failure}")


# ---- readiness

# Tells the service manager that the gateway is ready or stopping (sd_notify): a datagram to the socket in
# NOTIFY_SOCKET. Does nothing without that variable.

log = logging.getLogger(__name__)


def notify(address: str, *lines: str) -> None:
    """Notifies the service manager. `address`: a path, or a name in the abstract namespace that begins with @."""
    if not address:
        return
    place = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as link:
            link.sendto("\n".join(lines).encode(), place)
    except OSError as failure:
        log.warning("the service manager cannot be notified (NOTIFY_SOCKET is %s): %s", address, failure)


# ---- hiding

# Hides this process's environment from the commands of local tools by making the process not dumpable. Linux only.
#
# A command inherits no secrets, but could read them in /proc/$PPID/environ. Other processes of the same user cannot
# read that file of a process that is not dumpable, nor trace it, and it leaves no core dump. Root still can.

_SET_DUMPABLE: Final = 4


def hide_from_children() -> bool:
    """Returns whether the process is hidden."""
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False  # libc has no prctl
