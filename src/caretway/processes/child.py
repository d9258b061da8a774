"""A child process on the event loop: stdout and stdin with backpressure, SIGTERM then SIGKILL to its process group.

The beginning and the end of its stderr are kept. A slow sink loses no output, even if the program ends meanwhile. When
the program ends, the rest of its group gets SIGTERM; after `DRAIN_S` the group is killed, and after `DRAIN_S` more the
pipes that are still open are closed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from .tasks import spawn

# ---- Starts a program in its own session and process group (vfork, explicit environment), signals the whole group, and
# reaps the leader last, so that its process id is not reused. Blocking; standard library only.


def start(
    argv: Sequence[str],
    *,
    cwd: str | None,
    environment: Mapping[str, str],
    stdin: int = subprocess.PIPE,
) -> "Group":
    """Start the program with this environment and only the three standard descriptors. Raises OSError or ValueError."""
    leader = subprocess.Popen(  # noqa: S603 - what is run is the caller's choice; no shell
        argv,
        cwd=cwd,
        env=dict(environment),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    return Group(leader)


class Group:
    """A running program, the leader of its group. Made by `start`."""

    def __init__(self, leader: "subprocess.Popen[bytes]") -> None:
        self.leader = leader
        self.pid = leader.pid
        self._reaped = False

    def signal(self, number: int) -> None:
        """Signal the whole group; does nothing once the leader is reaped."""
        if not self._reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; on macOS: only zombies are left
                os.killpg(self.pid, number)

    def wait(self) -> None:
        """Block until the leader has ended."""
        if not hasattr(os, "waitid"):
            self.leader.wait()  # macOS before Python 3.13
            return
        with contextlib.suppress(ChildProcessError):  # already reaped
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def reap(self) -> int:
        """Kill the rest of the group. Returns the leader's exit code, negative for a signal. May be called again."""
        self.signal(signal.SIGKILL)
        code = self.leader.wait()
        self._reaped = True
        return code


# ---- Keeps the beginning and the end of a command's output, with a mark for the bytes left out; decodes UTF-8 that was
# cut inside a character. Pure.


def decoded(data: bytes, *, cut_head: bool = False, cut_tail: bool = False) -> str:
    """Decode bytes that may begin or end inside a character. Invalid UTF-8 becomes replacement characters."""
    if cut_head:
        at = 0
        while at < min(3, len(data)) and data[at] & 0xC0 == 0x80:
            at += 1
        data = data[at:]
    if cut_tail:
        for back in range(1, min(4, len(data) + 1)):
            lead = data[-back]
            if lead & 0xC0 != 0x80:
                if lead >= 0xC0 and back < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4):
                    data = data[:-back]
                break
    return data.decode("utf-8", "replace")


class HeadTail:
    """Keeps `limit` bytes: `head` bytes of the beginning (by default half), and the rest from the end."""

    __slots__ = ("_head", "_head_room", "_tail", "_tail_room", "total")

    def __init__(self, limit: int, head: int | None = None) -> None:
        self._head_room = (limit + 1) // 2 if head is None else head
        self._tail_room = limit - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_room:  # not on every chunk: moving bytes costs
            del self._tail[: len(self._tail) - self._tail_room]

    def kept(self) -> bytes:
        """The beginning and the end, joined; nothing shows where bytes are left out."""
        return bytes(self._head + self._tail[max(0, len(self._tail) - self._tail_room) :])

    def text(self, room: int) -> str:
        """The kept text in at most `room` bytes, with a mark if bytes are left out."""
        kept = self.kept()
        room = min(room, len(kept))
        if self.total == room:
            return decoded(kept)
        first = min(len(self._head), room // 2)
        head = decoded(kept[:first], cut_tail=True)
        tail = decoded(kept[len(kept) - (room - first) :], cut_head=True)
        return f"{head}\n[... {self.total - room} bytes left out ...]\n{tail}"


TERM_GRACE_S: Final = 1.0
"""Seconds between SIGTERM and SIGKILL."""
DRAIN_S: Final = 0.5
"""Seconds to read the pipes after the program ended, and again after its group was killed. Later only a process that
left the group can hold them open."""
STDERR_BYTES: Final = 32 * 1024
STDERR_HEAD: Final = 8 * 1024


class Command(Struct, frozen=True):
    argv: Sequence[str]
    cwd: str | None
    """None: the directory of this process."""
    environment: Mapping[str, str]
    """The whole environment: nothing is inherited."""


class Exit(Struct, frozen=True):
    code: int
    """Negative for a signal, as in `subprocess`."""
    stderr: str


class CannotStart(Exception):
    """The program could not be started. The message names the program and the reason."""

    def __init__(self, command: Command, failure: OSError | ValueError) -> None:
        self.program = command.argv[0]
        reason = getattr(failure, "strerror", None) or str(failure)
        blamed = getattr(failure, "filename", None)
        self.reason = f"{reason}: {blamed}" if blamed is not None and blamed == command.cwd else reason
        self.cause = failure
        super().__init__(f"`{self.program}` cannot be started: {self.reason}")


class ChildSink(Protocol):
    """Receives a child's output. Called on the event loop, possibly before `start_child` has returned."""

    def data(self, data: bytes) -> None: ...

    def ended(self, exit_: Exit) -> None: ...


Pipe = Literal["stdin", "stdout"]


class _ReadEnd(asyncio.Protocol):
    def __init__(self, take: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._take = take
        self._lost = lost

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()


class _WriteEnd(asyncio.BaseProtocol):
    def __init__(self, writable: asyncio.Event, lost: Callable[[], None]) -> None:
        self._writable = writable
        self._lost = lost

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._lost()


class Child:
    """One running program. Made by `start_child`."""

    def __init__(
        self,
        group: Group,
        sink: ChildSink,
        stderr: HeadTail,
        closed: Callable[[Pipe], None] | None,
        grace: float,
        among: "set[Child]",
    ) -> None:
        self.pid = group.pid
        self.writable = asyncio.Event()
        """Set while its input accepts more (backpressure), and when it is closed."""
        self.writable.set()
        self.exited_at: float | None = None
        """When the program ended, by the loop's clock. Its pipes and its group may last longer."""
        self._group = group
        self._sink = sink
        self._on_closed = closed
        self._grace = grace
        self._among = among
        self._loop = asyncio.get_running_loop()
        self._stderr = stderr
        self._stdout_pipe: Any = None
        self._stderr_pipe: Any = None
        self._stdin: asyncio.WriteTransport | None = None
        self._open_pipes = 2
        self._paused = False
        self._closing = False
        self._ours = False
        self._killed = False
        self._timer: asyncio.TimerHandle | None = None
        self._drain_s = DRAIN_S
        self._over: asyncio.Future[Exit] = self._loop.create_future()

    async def connect(self) -> None:
        leader, loop = self._group.leader, self._loop
        self._watch()
        self._stdout_pipe, _ = await loop.connect_read_pipe(
            lambda: _ReadEnd(self._sink.data, partial(self._pipe_closed, "stdout")), leader.stdout
        )
        self._stderr_pipe, _ = await loop.connect_read_pipe(
            lambda: _ReadEnd(self._stderr.add, self._pipe_closed), leader.stderr
        )
        if leader.stdin is not None:
            self._stdin, _ = await loop.connect_write_pipe(
                lambda: _WriteEnd(self.writable, self._stdin_closed), leader.stdin
            )
        if not self.alive:  # it died at once
            self._abort_stdin()

    # ---- for the owner

    @property
    def over(self) -> bool:
        """Whether the end was reported to the sink."""
        return self._over.done()

    @property
    def alive(self) -> bool:
        return self.exited_at is None and not self._ours

    @property
    def stderr(self) -> str:
        """Its stderr so far: the beginning and the end."""
        return self._stderr.kept().decode("utf-8", "replace")

    def write(self, data: bytes) -> None:
        """Buffer data until the pipe accepts it. Before large writes wait for `writable`."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    def close_stdin(self) -> None:
        """Close its input, after the buffered data was sent."""
        if self._stdin is not None:
            self._stdin.close()

    def pause(self) -> None:
        """Stop reading its output until `resume`. After `terminate` it is read anyway."""
        if self._paused or self._closing or self._stdout_pipe is None or self._stdout_pipe.is_closing():
            return
        self._paused = True
        self._stdout_pipe.pause_reading()
        if self.exited_at is not None and self._timer is not None:
            # output in the pipe stays until the reader resumes
            self._drain_s = max(0.0, self._timer.when() - self._loop.time())
            self._timer.cancel()

    def resume(self) -> None:
        if not self._paused:
            return
        self._paused = False
        if not self._stdout_pipe.is_closing():
            self._stdout_pipe.resume_reading()
        if self.exited_at is not None:
            self._drain()

    def terminate(self) -> None:
        """SIGTERM to the whole group, SIGKILL after a grace period, or at once if the program itself has ended."""
        self._closing = True
        self.resume()  # a paused pipe never reports its end
        if self.exited_at is not None:
            self._kill()
        elif not self._ours:
            self._ours = True
            self._abort_stdin()
            self._group.signal(signal.SIGTERM)
            self._timer = self._loop.call_later(self._grace, self._group.signal, signal.SIGKILL)

    def kill(self) -> None:
        """End the whole group at once."""
        self.terminate()
        self._group.signal(signal.SIGKILL)

    async def wait(self) -> Exit:
        """Wait for its end. Cancelling the wait does not affect the child."""
        return await asyncio.shield(self._over)

    async def aclose(self) -> None:
        self.terminate()
        await self.wait()

    # ---- the child's end

    def _watch(self) -> None:
        """Call `_on_exit` when the leader is dead, without reaping it."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                watch = os.pidfd_open(self.pid)
                self._loop.add_reader(watch, self._pidfd_ready, watch)
                return
        threading.Thread(target=self._wait, name="child-exit", daemon=True).start()

    def _pidfd_ready(self, watch: int) -> None:
        self._loop.remove_reader(watch)
        os.close(watch)
        self._on_exit()

    def _wait(self) -> None:
        self._group.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        self.exited_at = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
        self._group.signal(signal.SIGTERM)  # to the processes that the leader left behind
        self._abort_stdin()
        if not self._paused:
            self._drain()

    def _drain(self) -> None:
        """Read the rest of a dead program's pipes, then finish."""
        if not self._open_pipes:
            self._report()
            return
        act = self._give_pipes_up if self._killed else self._kill
        self._timer = self._loop.call_later(self._drain_s, act)

    def _kill(self) -> None:
        """Kill the processes that the leader left behind: they hold its pipes."""
        if self._killed or self._over.done():
            return
        self._killed = True
        self._group.reap()
        if self._timer is not None:
            self._timer.cancel()
        self._drain_s = DRAIN_S
        self._drain()

    def _give_pipes_up(self) -> None:
        for pipe in (self._stdout_pipe, self._stderr_pipe):
            if pipe is not None:
                pipe.close()
        self._report()

    def _abort_stdin(self) -> None:
        stdin, self._stdin = self._stdin, None
        # asyncio's own transport breaks when it is aborted after it has closed
        if stdin is not None and (not stdin.is_closing() or stdin.get_write_buffer_size()):
            stdin.abort()

    def _stdin_closed(self) -> None:
        self._stdin = None
        if self._on_closed is not None:
            self._on_closed("stdin")

    def _pipe_closed(self, pipe: Pipe | None = None) -> None:
        self._open_pipes -= 1
        if pipe is not None and self._on_closed is not None:
            self._on_closed(pipe)
        if not self._open_pipes and self.exited_at is not None:
            self._report()

    def _report(self) -> None:
        if self._over.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._among.discard(self)
        exit_ = Exit(self._group.reap(), self.stderr)
        self._over.set_result(exit_)
        self._sink.ended(exit_)


async def start_child(
    command: Command,
    sink: ChildSink,
    *,
    stdin: int = subprocess.PIPE,
    stderr: HeadTail | None = None,
    closed: Callable[[Pipe], None] | None = None,
    grace: float = TERM_GRACE_S,
    among: set[Child] | None = None,
) -> Child:
    """Start a child. `closed` is called when a pipe closes; `among` contains the child while it runs. Raises
    CannotStart. A cancelled start leaves no child behind."""
    try:
        group = start(command.argv, cwd=command.cwd, environment=command.environment, stdin=stdin)
    except (OSError, ValueError) as failure:
        raise CannotStart(command, failure) from failure
    among = set() if among is None else among
    child = Child(group, sink, stderr or HeadTail(STDERR_BYTES, STDERR_HEAD), closed, grace, among)
    among.add(child)
    connecting = spawn(child.connect(), "child-pipes")
    try:
        await asyncio.shield(connecting)
    except BaseException:
        with contextlib.suppress(Exception):  # the pending exception or cancellation says more
            await connecting
        await child.aclose()
        raise
    return child
