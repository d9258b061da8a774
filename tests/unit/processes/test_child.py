"""A child from its start to its end: where it runs, what it gets, what is left of it, and what its start costs us."""

import asyncio
import mmap
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from caretway.processes.child import Command, Exit
from caretway.processes.nursery import Nursery, run_once

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX")

PAGE = mmap.PAGESIZE
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
async def nursery() -> AsyncIterator[Nursery]:
    children = Nursery()
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


async def test_it_runs_in_its_directory_with_its_environment_alone(nursery: Nursery, tmp_path: Path) -> None:
    done = await run_once(nursery, shell("pwd -P; env | grep -v ^PWD= | grep -v ^_=", tmp_path), timeout=20)
    assert done.stdout.splitlines() == [str(tmp_path), "PATH=/usr/bin:/bin"]


async def test_its_three_pipes_and_its_status(nursery: Nursery, tmp_path: Path) -> None:
    listener = Listener()
    child = await nursery.start(shell("cat; echo trouble >&2; exit 3", tmp_path), listener)
    child.write(b"said ")
    child.write(b"and heard")
    child.close_stdin()
    assert await listener.exit == Exit(3, "trouble\n", ours=False)
    assert listener.heard == b"said and heard"


async def test_its_whole_group_ends_with_it(nursery: Nursery, tmp_path: Path) -> None:
    """Its own child holds the other end of a pipe, and only its death takes it away."""
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    listener = Listener()
    child = await nursery.start(shell("{ echo there; sleep 600; } >held & echo $!; wait", tmp_path), listener)
    await listener.spoke.wait()
    while _read(held) != b"there\n":
        await asyncio.sleep(0.01)
    assert os.getsid(child.pid) == os.getpgid(int(listener.heard)) == child.pid != os.getsid(0)
    await child.aclose()
    ended = await listener.exit
    assert (ended.code, ended.ours) == (-signal.SIGTERM, True)
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
async def test_it_inherits_nothing_but_its_pipes(nursery: Nursery, tmp_path: Path) -> None:
    """Not even what somebody else in this process has made inheritable."""
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        done = await run_once(nursery, shell("ls -l /proc/$$/fd", tmp_path), timeout=20)
    finally:
        os.close(leaked)
    opened = [line.partition(" -> ")[2] for line in done.stdout.splitlines() if " -> " in line]
    assert [place.partition(":")[0] for place in opened] == ["pipe", "pipe", "pipe"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Popen forks")
async def test_starting_it_does_not_copy_our_page_tables(nursery: Nursery, tmp_path: Path) -> None:
    """A fork marks every page of ours as shared, and writing to each costs a fault afterwards; a vfork does not."""
    pages = 4096
    with mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as ballast:
        ballast.madvise(mmap.MADV_NOHUGEPAGE)
        _touch(ballast)
        await run_once(nursery, shell("exit 0", tmp_path), timeout=20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        _touch(ballast)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages / 4


def _touch(memory: mmap.mmap) -> None:
    for at in range(0, len(memory), PAGE):
        memory[at] = memory[at] + 1
