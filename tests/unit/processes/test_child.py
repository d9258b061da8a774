"""A child from its start to its end: where it runs, what it gets, what is left of it, and what its start costs us."""

import asyncio
import mmap
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.processes.child import (
    STDERR_BYTES,
    CannotStart,
    Command,
    Exit,
    Group,
    HeadTail,
    Pipe,
    decoded,
    start,
    start_child,
)
from caretway.processes.child_group import ChildGroup, ChildGroupClosed, run_once
from caretway.processes.lines import LineReader, TooLong


@pytest.mark.parametrize("char", ["a", "ä", "€", "😀"])
def test_cuts_fall_between_characters(char: str) -> None:
    data = (char * 10).encode()
    for at in range(len(data) + 1):
        head = decoded(data[:at], cut_tail=True)
        tail = decoded(data[at:], cut_head=True)
        assert "\ufffd" not in head + tail
        assert 9 <= len(head) + len(tail) <= 10


def test_what_is_not_utf8_is_still_text() -> None:
    assert decoded(b"caf\xe9") == "caf\ufffd"


@pytest.mark.parametrize("chunk", [1, 3, 7, 64])
@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 25, 1000])
def test_head_and_tail(chunk: int, size: int) -> None:
    data = bytes(97 + at % 26 for at in range(size))
    kept = HeadTail(10)
    for at in range(0, size, chunk):
        kept.add(data[at : at + chunk])
    text = kept.text(10)
    if size <= 10:
        assert text == data.decode()
    else:
        assert text == f"{data[:5].decode()}\n[... {size - 10} bytes left out ...]\n{data[-5:].decode()}"
    assert kept.total == size


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30), st.integers(0, 30))
def test_no_more_is_kept_than_allowed(pieces: list[bytes], head: int, tail: int) -> None:
    kept = HeadTail(head + tail, head)
    for piece in pieces:
        kept.add(piece)
        assert len(kept._head) + len(kept._tail) <= head + 2 * tail
    whole = b"".join(pieces)
    assert kept.kept() == (whole if len(whole) <= head + tail else whole[:head] + whole[len(whole) - tail :])
    assert kept.total == len(whole)


def test_an_uneven_cut_shows_no_seam_but_its_mark() -> None:
    kept = HeadTail(8, head=2)
    kept.add(b"abcdefghijklmnopqrstuvwxyz")
    assert kept.text(8) == "ab\n[... 18 bytes left out ...]\nuvwxyz"
    assert kept.text(4) == "ab\n[... 22 bytes left out ...]\nyz"


ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def shell_of_group(script: str) -> Group:
    return start(("/bin/sh", "-c", script), cwd="/", environment=ENVIRONMENT, stdin=subprocess.DEVNULL)


def said(group: Group) -> str:
    assert group.leader.stdout is not None
    return group.leader.stdout.readline().decode().strip()


def close(group: Group) -> None:
    for pipe in (group.leader.stdout, group.leader.stderr):
        assert pipe is not None
        pipe.close()


def test_the_group_dies_before_its_leader_is_reaped() -> None:
    """A grandchild holds the output: nothing more comes of it, so it is dead when `reap` is back."""
    group = shell_of_group("{ echo child; exec sleep 600; } & exit 3")
    assert said(group) == "child"
    group.wait()
    os.kill(group.pid, 0)  # dead, and not reaped: the number is still its own
    assert group.reap() == 3
    with pytest.raises(ProcessLookupError):
        os.kill(group.pid, 0)
    assert said(group) == ""
    close(group)


def test_once_reaped_its_number_may_be_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    group = shell_of_group("exit 0")
    assert group.reap() in (0, -signal.SIGKILL)
    code = group.reap()
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("somebody was signalled"))
    group.signal(signal.SIGTERM)
    assert group.reap() == code
    close(group)


def test_somebody_else_reaped_it() -> None:
    """An owner that ignores SIGCHLD, for one. There is an end all the same."""
    group = shell_of_group("exit 3")
    os.waitpid(group.pid, 0)
    group.wait()
    assert group.reap() == 0  # as `subprocess` has it: the code is not known any more
    close(group)


def test_where_it_runs_and_what_it_gets(tmp_path: Path) -> None:
    group = start(
        ("/bin/sh", "-c", 'echo "$PWD $GIVEN $HOME-"'),
        cwd=str(tmp_path),
        environment=ENVIRONMENT | {"GIVEN": "this"},
        stdin=subprocess.DEVNULL,
    )
    assert said(group) == f"{tmp_path} this -"
    group.wait()
    assert group.reap() == 0
    close(group)


PAGE = mmap.PAGESIZE


@pytest.fixture
async def children() -> AsyncIterator[ChildGroup]:
    children = ChildGroup()
    yield children
    await children.aclose()
    assert children.live == 0


def shell(script: str, directory: Path) -> Command:
    return Command(("/bin/sh", "-c", script), str(directory), ENVIRONMENT)


class Listener:
    def __init__(self) -> None:
        self.heard = b""
        self.spoke = asyncio.Event()
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def data(self, data: bytes) -> None:
        self.heard += data
        self.spoke.set()

    def ended(self, exit_: Exit) -> None:
        self.exit.set_result(exit_)


async def test_it_runs_in_its_directory_with_its_environment_alone(children: ChildGroup, tmp_path: Path) -> None:
    done = await run_once(children, shell("pwd -P; env | grep -v ^PWD= | grep -v ^_=", tmp_path), timeout=20)
    assert done.stdout.splitlines() == [str(tmp_path), "PATH=/usr/bin:/bin"]


async def test_its_three_pipes_and_its_status(children: ChildGroup, tmp_path: Path) -> None:
    listener = Listener()
    child = await children.start(shell("cat; echo trouble >&2; exit 3", tmp_path), listener)
    child.write(b"said ")
    child.write(b"and heard")
    child.close_stdin()
    assert await listener.exit == Exit(3, "trouble\n")
    assert listener.heard == b"said and heard"


async def test_its_whole_group_ends_with_it(children: ChildGroup, tmp_path: Path) -> None:
    """Its own child holds the other end of a pipe, and only its death takes it away."""
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    listener = Listener()
    child = await children.start(shell("{ echo there; sleep 600; } >held & echo $!; wait", tmp_path), listener)
    await listener.spoke.wait()
    while _read(held) != b"there\n":
        await asyncio.sleep(0.01)
    assert os.getsid(child.pid) == os.getpgid(int(listener.heard)) == child.pid != os.getsid(0)
    await child.aclose()
    assert (await listener.exit).code == -signal.SIGTERM
    while _read(held) != b"":
        await asyncio.sleep(0.01)
    os.close(held)


def _read(pipe: int) -> bytes | None:
    """What is in it; nothing at all when nobody holds its other end; None when somebody does and is silent."""
    try:
        return os.read(pipe, 100)
    except BlockingIOError:
        return None


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_it_inherits_nothing_but_its_pipes(children: ChildGroup, tmp_path: Path) -> None:
    """Not even what somebody else in this process has made inheritable."""
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        done = await run_once(children, shell("ls -l /proc/$$/fd", tmp_path), timeout=20)
    finally:
        os.close(leaked)
    opened = [line.partition(" -> ")[2] for line in done.stdout.splitlines() if " -> " in line]
    assert [place.partition(":")[0] for place in opened] == ["pipe", "pipe", "pipe"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Popen forks")
async def test_starting_it_does_not_copy_our_page_tables(children: ChildGroup, tmp_path: Path) -> None:
    """A fork marks every page of ours as shared, and writing to each costs a fault afterwards; a vfork does not."""
    pages = 4096
    with mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as ballast:
        ballast.madvise(mmap.MADV_NOHUGEPAGE)
        _touch(ballast)
        await run_once(children, shell("exit 0", tmp_path), timeout=20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        _touch(ballast)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages / 4


def _touch(memory: mmap.mmap) -> None:
    for at in range(0, len(memory), PAGE):
        memory[at] = memory[at] + 1


# ---- bad ends


async def test_one_that_ignores_the_polite_signal_is_killed(children: ChildGroup, tmp_path: Path) -> None:
    """And so is its own child, which ignores it too."""
    listener = Listener()
    script = "trap '' TERM; sleep 600 & echo $!; while :; do wait; done"
    child = await start_child(shell(script, tmp_path), listener, grace=0.05)
    await listener.spoke.wait()
    inner = int(listener.heard)
    await child.aclose()
    assert ((await listener.exit).code, child.alive) == (-signal.SIGKILL, False)
    await dead(inner)


async def test_a_grandchild_that_holds_the_pipes_ends_with_its_group(children: ChildGroup, tmp_path: Path) -> None:
    done = await run_once(children, shell("sleep 600 & echo $!; exit 4", tmp_path), timeout=20)
    assert done.code == 4
    await dead(int(done.stdout))


async def test_one_that_left_the_group_and_holds_the_pipes_is_not_waited_for(
    children: ChildGroup, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "left")
    leave = "import os, time; os.setsid(); print(os.getpid(), file=open('left', 'w'), flush=True); time.sleep(600)"
    script = f'"{sys.executable}" -c "{leave}" & read pid <left; echo $pid'
    done = await run_once(children, shell(script, tmp_path), timeout=20)
    os.kill(int(done.stdout), signal.SIGKILL)  # it lives, and its number is all that came
    assert done.code == 0


async def test_a_flood_of_stderr_is_kept_in_bounds_and_does_not_stall_it(children: ChildGroup, tmp_path: Path) -> None:
    script = "echo first >&2; head -c 20000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo last >&2; echo out"
    done = await run_once(children, shell(script, tmp_path), timeout=60)
    assert done.stdout == "out\n"
    assert done.stderr.startswith("first\nxxx") and done.stderr.endswith("xxx\nlast\n")
    assert len(done.stderr) == STDERR_BYTES


async def test_more_output_than_is_wanted(children: ChildGroup, tmp_path: Path) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' x"
    done = await run_once(children, shell(script, tmp_path), timeout=60, limit=1000)
    assert (done.code, done.stdout) == (0, "x" * 1000)


async def test_an_endless_line_is_an_error_before_it_ends(children: ChildGroup, tmp_path: Path) -> None:
    reader = LineReader(100_000)
    refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Strict(Listener):
        def data(self, data: bytes) -> None:
            for line in reader.feed(data):
                if isinstance(line, TooLong):
                    refused.set_result(str(line))

    listener = Strict()
    child = await children.start(shell("cat /dev/zero", tmp_path), listener)
    assert await refused == "a line of more than 100000 bytes"
    await child.aclose()
    assert (await listener.exit).code == -signal.SIGTERM


async def test_one_that_dies_at_once_leaves_no_descriptor(children: ChildGroup, tmp_path: Path) -> None:
    await run_once(children, shell("exit 0", tmp_path), timeout=20)  # whatever the loop keeps, it has now
    before = descriptors()
    for _ in range(5):
        listener = Listener()
        child = await children.start(shell("echo no >&2; kill -9 $$", tmp_path), listener)
        child.write(b"x" * 1_000_000)  # more than a pipe takes
        assert await listener.exit == Exit(-signal.SIGKILL, "no\n")
        assert not child.alive
        child.write(b"nobody hears it")
        child.close_stdin()
        await child.aclose()
    while descriptors() > before:
        await asyncio.sleep(0.01)


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (("no-such-program", "x"), "/", "`no-such-program` cannot be started: No such file or directory"),
        (("/etc/passwd",), "/", "`/etc/passwd` cannot be started: Permission denied"),
        (("/bin/sh",), "/no/such/place", "`/bin/sh` cannot be started: No such file or directory: /no/such/place"),
        (("/bin/sh", "a\0b"), "/", "`/bin/sh` cannot be started: embedded null byte"),
    ],
)
async def test_what_cannot_be_started_is_named(argv: tuple[str, ...], cwd: str, reason: str) -> None:
    children = ChildGroup()
    before = descriptors()
    with pytest.raises(CannotStart) as told:
        await children.start(Command(argv, cwd, ENVIRONMENT), Listener())
    assert str(told.value) == reason
    assert (children.live, descriptors()) == (0, before)


async def test_a_closed_group_starts_nothing(tmp_path: Path) -> None:
    children = ChildGroup()
    await children.aclose()
    with pytest.raises(ChildGroupClosed):
        await children.start(shell("exit 0", tmp_path), Listener())


async def test_a_group_takes_all_its_children_with_it(children: ChildGroup, tmp_path: Path) -> None:
    listeners = [Listener(), Listener(), Listener()]
    for listener in listeners:
        await children.start(shell("echo; cat", tmp_path), listener)
        await listener.spoke.wait()
    assert children.live == 3
    await children.aclose()
    assert children.live == 0
    assert [(await listener.exit).code for listener in listeners] == [-signal.SIGTERM] * 3


# ---- cancelled, late, slow


async def test_cancelling_ends_the_group_before_it_returns(children: ChildGroup, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    running = asyncio.ensure_future(
        run_once(children, shell("sleep 600 & echo $! $$ >begun; wait", tmp_path), timeout=600)
    )
    pids = [int(pid) for pid in (await asyncio.to_thread((tmp_path / "begun").read_text)).split()]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert children.live == 0
    for pid in pids:
        await dead(pid)


async def test_cancelling_whoever_waits_leaves_the_child_alone(children: ChildGroup, tmp_path: Path) -> None:
    listener = Listener()
    child = await children.start(shell("cat; exit 5", tmp_path), listener)
    waiting = asyncio.ensure_future(child.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert child.alive
    child.close_stdin()
    assert (await child.wait()).code == 5


async def test_cancelling_the_start_leaves_nothing(children: ChildGroup, tmp_path: Path) -> None:
    starting = asyncio.ensure_future(children.start(shell("sleep 600", tmp_path), Listener()))
    await asyncio.sleep(0)
    assert children.live == 1
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert children.live == 0


async def test_too_late_is_a_timeout_with_the_program_dead(children: ChildGroup, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        await run_once(children, shell("sleep 600", tmp_path), timeout=0.05)
    assert children.live == 0


async def test_a_slow_reader_loses_nothing_when_the_program_ends_meanwhile(
    children: ChildGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the pipe waits for its reader, however long that takes: here longer than `DRAIN_S`."""
    monkeypatch.setattr("caretway.processes.child.DRAIN_S", 0.1)

    class Slow(Listener):
        def data(self, data: bytes) -> None:
            super().data(data)
            child.pause()

    listener = Slow()
    child = await children.start(shell("read go; echo begun; read go; head -c 60000 /dev/zero", tmp_path), listener)
    child.write(b"go\n")
    await listener.spoke.wait()
    child.write(b"go\n")
    while child.alive:
        await asyncio.sleep(0.01)
    while len(listener.heard) < 60_000:
        await asyncio.sleep(0.15)
        assert not listener.exit.done()
        listener.spoke.clear()
        child.resume()
        await listener.spoke.wait()
    child.resume()
    assert (await child.wait()).code == 0
    assert listener.heard == b"begun\n" + bytes(60_000)


async def test_one_that_is_told_to_end_need_not_be_resumed(children: ChildGroup, tmp_path: Path) -> None:
    listener = Listener()
    child = await children.start(shell("head -c 60000 /dev/zero", tmp_path), listener)
    child.pause()
    while child.alive:
        await asyncio.sleep(0.01)
    await child.aclose()
    assert await listener.exit == Exit(0, "")


async def test_closing_one_that_has_ended_kills_what_it_left_behind(
    children: ChildGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its background child holds the pipes and ignores the polite signal; nobody waits for `DRAIN_S` then."""
    monkeypatch.setattr("caretway.processes.child.DRAIN_S", 600)
    os.mkfifo(tmp_path / "ready")
    listener = Listener()
    script = "{ trap '' TERM; echo >ready; exec sleep 600; } & read up <ready; echo $!; exit 5"
    child = await children.start(shell(script, tmp_path), listener)
    while child.alive:
        await asyncio.sleep(0.01)
    assert not listener.exit.done()
    await child.aclose()
    assert (await listener.exit).code == 5
    await dead(int(listener.heard))


async def test_backpressure_on_its_input(children: ChildGroup, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    listener = Listener()
    child = await children.start(shell("read go <go; cat | wc -c", tmp_path), listener)
    child.write(b"x" * 1_000_000)
    assert not child.writable.is_set()
    await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
    await child.writable.wait()
    child.close_stdin()
    await child.wait()
    assert int(listener.heard) == 1_000_000


async def test_a_pipe_that_closes_early_is_told(children: ChildGroup, tmp_path: Path) -> None:
    told: list[Pipe] = []
    both = asyncio.Event()

    def closed(pipe: Pipe) -> None:
        told.append(pipe)
        if len(told) == 2:
            both.set()

    child = await start_child(shell("exec <&- >&-; sleep 600", tmp_path), Listener(), closed=closed)
    await both.wait()
    assert sorted(told) == ["stdin", "stdout"]
    assert child.alive
    await child.aclose()


async def test_without_pidfd_a_thread_waits(
    children: ChildGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS, and old kernels."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    done = await run_once(children, shell("echo out; exit 3", tmp_path), timeout=20)
    assert (done.code, done.stdout) == (3, "out\n")


async def dead(pid: int) -> None:
    while alive(pid):
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Not gone, and no zombie whose parent is not ours."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
