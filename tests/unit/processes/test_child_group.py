"""Programs run to their end: what is kept of them, how their end is told, and when their time is up."""

import os
from pathlib import Path

import pytest

from caretway.processes.child import CannotStart, Command
from caretway.processes.child_group import Finished, run_to_end


async def shell(script: str, directory: Path, *, timeout_s: float = 20) -> Finished:
    command = Command(("/bin/sh", "-c", script), str(directory), {"PATH": "/usr/bin:/bin"})
    return await run_to_end(command, timeout_s=timeout_s, output_bytes=1000)


async def test_its_end(tmp_path: Path) -> None:
    finished = await shell("cat; echo out; echo err >&2; exit 3", tmp_path)
    assert (finished.code, finished.signal, finished.timed_out) == (3, "", False)
    assert (finished.stdout.text(100), finished.stderr.text(100)) == ("out\n", "err\n")


async def test_ends_by_signals_as_a_shell_tells_them(tmp_path: Path) -> None:
    ends = [await shell(f"kill -{number} $$", tmp_path) for number in (9, 40)]
    assert [(one.code, one.signal) for one in ends] == [(137, "SIGKILL"), (168, "signal 40")]


async def test_floods_on_both_pipes_are_kept_in_bounds(tmp_path: Path) -> None:
    flood = "head -c 5000000 /dev/zero"
    finished = await shell(f"{flood} >&2 & {flood}; wait", tmp_path)
    assert (finished.stdout.total, finished.stderr.total) == (5_000_000, 5_000_000)
    assert (len(finished.stdout.kept()), len(finished.stderr.kept())) == (1000, 1000)


async def test_too_late(tmp_path: Path) -> None:
    finished = await shell("sleep 600", tmp_path, timeout_s=0.1)
    assert (finished.timed_out, finished.seconds) == (True, 0.1)


async def test_what_it_leaves_behind_is_asked_to_end_and_heard(tmp_path: Path) -> None:
    """A background child gets the polite signal when the command is over, and may say its last word."""
    script = "{ trap 'echo bye; exit' TERM; echo ready >ready; while :; do sleep 0.01; done; } & read up <ready"
    os.mkfifo(tmp_path / "ready")
    finished = await shell(script, tmp_path)
    assert (finished.code, finished.stdout.text(100)) == (0, "bye\n")


async def test_what_cannot_be_started_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(CannotStart) as told:
        await run_to_end(Command(("/no/such/program",), str(tmp_path), {}), timeout_s=1, output_bytes=10)
    assert isinstance(told.value.cause, FileNotFoundError)
    assert len(os.listdir("/dev/fd")) == before
