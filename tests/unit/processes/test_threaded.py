"""A program in a thread: its end, its bounds, and that stopping it is never too early. More in test_shell.py."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from caretway.processes.child import Command
from caretway.processes.threaded import Running, Stopped, in_own_thread

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX")


def shell(script: str, directory: Path, *, timeout_s: float = 20, output_bytes: int = 1000) -> Running:
    command = Command(("/bin/sh", "-c", script), str(directory), {"PATH": "/usr/bin:/bin"})
    return Running(command, timeout_s=timeout_s, output_bytes=output_bytes)


def test_its_end(tmp_path: Path) -> None:
    finished = shell("echo out; echo err >&2; exit 3", tmp_path).run()
    assert (finished.code, finished.signal, finished.timed_out) == (3, "", False)
    assert (finished.stdout.text(100), finished.stderr.text(100)) == ("out\n", "err\n")


def test_ends_by_signals_as_a_shell_tells_them(tmp_path: Path) -> None:
    ends = [shell(f"kill -{number} $$", tmp_path).run() for number in (9, 40)]
    assert [(one.code, one.signal) for one in ends] == [(137, "SIGKILL"), (168, "signal 40")]


def test_floods_on_both_pipes_are_kept_in_bounds(tmp_path: Path) -> None:
    flood = "head -c 5000000 /dev/zero"
    finished = shell(f"{flood} >&2 & {flood}; wait", tmp_path).run()
    assert (finished.stdout.total, finished.stderr.total) == (5_000_000, 5_000_000)
    assert (len(finished.stdout.kept()), len(finished.stderr.kept())) == (1000, 1000)


def test_too_late(tmp_path: Path) -> None:
    finished = shell("echo begun; sleep 600", tmp_path, timeout_s=0.1).run()
    assert finished.timed_out


def test_stopped_before_it_began(tmp_path: Path) -> None:
    running = shell("touch here", tmp_path)
    running.stop()
    with pytest.raises(Stopped):
        running.run()
    assert not (tmp_path / "here").exists()


def test_stopped_while_it_runs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    running = shell("echo yes >begun; sleep 600", tmp_path)

    def stop() -> None:
        assert (tmp_path / "begun").read_text() == "yes\n"
        running.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Stopped):
        running.run()
    stopper.join()
    running.stop()  # once more, when there is nothing left to stop


def test_what_cannot_be_started_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(FileNotFoundError):
        Running(Command(("/no/such/program",), str(tmp_path), {}), timeout_s=1, output_bytes=10).run()
    assert len(os.listdir("/dev/fd")) == before


async def test_cancelled_it_has_ended_before_its_caller_goes_on(tmp_path: Path) -> None:
    begun, stop, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        stop.wait()
        ended.set()

    task = asyncio.ensure_future(in_own_thread(work, stop.set, "a-thread"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
