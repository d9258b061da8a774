"""A child process in a process group of its own, its pipes on the event loop, and nothing left behind.

Started with `subprocess.Popen`, which is a vfork on Linux and costs the same however large this process is; uvloop's
own subprocesses fork, which copies its page tables. `os.posix_spawn` cannot change the directory, and a shell that does
it for the child costs more than Popen does and hides why a program did not start; docs/performance.md has the figures.
The leader is not reaped before its group is dead, so the group's number cannot be another's. POSIX only; the module can
be imported anywhere. What is run, and what its output means, is not known here.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ...core.errors import ErrorKind, GatewayError
from ...tasks import spawn

POSIX: Final = os.name == "posix"
TERM_GRACE_S: Final = 1.0
"""Between the polite signal and the other one."""
DRAIN_S: Final = 0.5
"""How long a pipe is read on after its program ended; only one who left the group can keep it open."""
STDERR_HEAD: Final = 8 * 1024
STDERR_TAIL: Final = 24 * 1024


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    """Negative for a signal, as `subprocess` has it."""
    stderr: str
    ours: bool
    """It was told to end."""


class Sink(Protocol):
    """Who listens to a child. Called on the event loop."""

    def data(self, data: bytes) -> None: ...

    def ended(self, exit_: Exit) -> None: ...


class _ReadEnd(asyncio.Protocol):
    def __init__(self, take: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._take = take
        self._lost = lost

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()


class _WriteEnd(asyncio.BaseProtocol):
    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()


class Child:
    """One running program. Made by `Nursery.start`."""

    def __init__(self, popen: "subprocess.Popen[bytes]", sink: Sink, over: Callable[["Child"], None]) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._sink = sink
        self._on_over = over
        self._loop = asyncio.get_running_loop()
        self._stderr = bytearray()
        self._stdout_pipe: Any = None
        self._stderr_pipe: Any = None
        self._stdin: asyncio.WriteTransport | None = None
        self._open_pipes = 2
        self._ours = False
        self._code: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._reported = False

    async def connect(self) -> None:
        popen, loop = self._popen, self._loop
        self._watch()
        self._stdout_pipe, _ = await loop.connect_read_pipe(
            lambda: _ReadEnd(self._sink.data, self._pipe_closed), popen.stdout
        )
        self._stderr_pipe, _ = await loop.connect_read_pipe(
            lambda: _ReadEnd(self._take_stderr, self._pipe_closed), popen.stderr
        )
        self._stdin, _ = await loop.connect_write_pipe(lambda: _WriteEnd(self._stdin_closed), popen.stdin)

    # ---- for the owner

    @property
    def over(self) -> bool:
        return self._over.done()

    @property
    def alive(self) -> bool:
        return self._code is None and not self._ours

    def write(self, data: bytes) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    def close_stdin(self) -> None:
        """After what was written has left."""
        if self._stdin is not None:
            self._stdin.close()

    def pause(self) -> None:
        if self._stdout_pipe is not None and not self._stdout_pipe.is_closing():
            self._stdout_pipe.pause_reading()

    def resume(self) -> None:
        if self._stdout_pipe is not None and not self._stdout_pipe.is_closing():
            self._stdout_pipe.resume_reading()

    def terminate(self) -> None:
        """Ask the whole group to end; insist after a while."""
        if self._ours or self._code is not None:
            return
        self._ours = True
        self.resume()  # a paused pipe never reports its end
        self._abort_stdin()
        _signal_group(self.pid, signal.SIGTERM)
        self._timer = self._loop.call_later(TERM_GRACE_S, _signal_group, self.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        self.terminate()
        await asyncio.shield(self._over)

    # ---- the child's end

    def _watch(self) -> None:
        """Have `_exited` called when the leader is dead, without reaping it."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                watch = os.pidfd_open(self.pid)
                self._loop.add_reader(watch, self._pidfd_ready, watch)
                return
        threading.Thread(target=self._wait, name="cursor-agent-exit", daemon=True).start()

    def _pidfd_ready(self, watch: int) -> None:
        self._loop.remove_reader(watch)
        os.close(watch)
        self._exited()

    def _wait(self) -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._popen.wait()  # macOS before Python 3.13
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._exited)

    def _exited(self) -> None:
        _signal_group(self.pid, signal.SIGKILL)
        self._code = self._popen.wait()
        if self._timer is not None:
            self._timer.cancel()
        self._abort_stdin()
        if self._open_pipes:
            self._timer = self._loop.call_later(DRAIN_S, self._give_pipes_up)
        else:
            self._report()

    def _abort_stdin(self) -> None:
        stdin, self._stdin = self._stdin, None
        if stdin is not None:
            stdin.abort()

    def _stdin_closed(self) -> None:
        self._stdin = None  # a closed transport of asyncio's cannot be aborted

    def _take_stderr(self, data: bytes) -> None:
        kept = self._stderr
        kept += data
        if len(kept) > STDERR_HEAD + STDERR_TAIL:
            del kept[STDERR_HEAD : len(kept) - STDERR_TAIL]

    def _pipe_closed(self) -> None:
        self._open_pipes -= 1
        if not self._open_pipes and self._code is not None:
            self._report()

    def _give_pipes_up(self) -> None:
        for pipe in (self._stdout_pipe, self._stderr_pipe):
            if pipe is not None:
                pipe.close()
        self._report()

    def _report(self) -> None:
        if self._reported:
            return
        self._reported = True
        if self._timer is not None:
            self._timer.cancel()
        assert self._code is not None
        self._on_over(self)
        self._over.set_result(None)
        self._sink.ended(Exit(self._code, self._stderr.decode("utf-8", "replace"), self._ours))


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; or, on macOS, only zombies are left
        os.killpg(group, number)


class Nursery:
    """Every child of one backend: none of them outlives it."""

    def __init__(self) -> None:
        self._children: set[Child] = set()
        self._closed = False
        self.started = 0

    @property
    def live(self) -> int:
        return len(self._children)

    async def start(self, command: Command, sink: Sink) -> Child:
        if self._closed:
            raise GatewayError(ErrorKind.CANCELLED, "The gateway is stopping.")
        if not POSIX:
            raise GatewayError(
                ErrorKind.UNSUPPORTED,
                "The cli backend needs a POSIX system.",
                hint="Use --backend agent or --backend sdk, or run Caretway inside WSL.",
            )
        try:
            popen = subprocess.Popen(  # noqa: S603, ASYNC220 - the user's own choice, no shell; about 1 ms
                command.argv,
                cwd=command.cwd,
                env=dict(command.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as failure:
            raise cannot_start(command, failure) from failure
        child = Child(popen, sink, self._children.discard)
        self._children.add(child)
        self.started += 1
        connecting = spawn(child.connect(), "cursor-agent-pipes")
        try:
            await asyncio.shield(connecting)
        except BaseException:
            with contextlib.suppress(Exception):
                await connecting
            await child.aclose()
            raise
        return child

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.gather(*(child.aclose() for child in list(self._children)))


def cannot_start(command: Command, failure: OSError) -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"cursor-agent cannot be started ({command.argv[0]}): {failure.strerror or failure}.",
        hint="Install it with `curl https://cursor.com/install -fsS | bash`, or set CURSOR_AGENT_BIN.",
        code="cli_not_found",
    )


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    stdout: str
    stderr: str


class _Collector:
    def __init__(self, limit: int, seen: Callable[[str], None] | None) -> None:
        self._limit = limit
        self._seen = seen
        self.stdout = bytearray()
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def data(self, data: bytes) -> None:
        self.stdout += data[: self._limit - len(self.stdout)]
        if self._seen is not None:
            self._seen(self.stdout.decode("utf-8", "replace"))

    def ended(self, exit_: Exit) -> None:
        if not self.exit.done():
            self.exit.set_result(exit_)


async def run_once(
    nursery: Nursery,
    command: Command,
    *,
    timeout: float,
    limit: int = 4 * 2**20,
    seen: Callable[[str], None] | None = None,
) -> Output:
    """Run a program to its end with no input. Raises TimeoutError, with the program dead. `seen` gets all output so far
    each time there is more."""
    collector = _Collector(limit, seen)
    child = await nursery.start(command, collector)
    child.close_stdin()
    try:
        async with asyncio.timeout(timeout):
            exit_ = await collector.exit
    finally:
        await child.aclose()
    return Output(exit_.code, collector.stdout.decode("utf-8", "replace"), exit_.stderr)
