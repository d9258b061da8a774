"""A group seen by somebody who may block: its leader's end, its reaping, and signals that reach nobody else."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from caretway.processes.group import Group, start

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def shell(script: str) -> Group:
    return start(("/bin/sh", "-c", script), cwd="/", environment=ENVIRONMENT, stdin=subprocess.DEVNULL)


def said(group: Group) -> str:
    assert group.leader.stdout is not None
    return group.leader.stdout.readline().decode().strip()


def close(group: Group) -> None:
    for pipe in (group.leader.stdout, group.leader.stderr):
        assert pipe is not None
        pipe.close()


def test_one_that_goes_when_it_is_asked() -> None:
    group = shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")
    assert said(group) == "ready"
    assert not group.ends_within(0)
    assert group.end(grace=20) == 7
    close(group)


def test_one_that_does_not() -> None:
    group = shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    assert said(group) == "ready"
    assert group.end(grace=0.05) == -signal.SIGKILL
    close(group)


def test_the_group_dies_before_its_leader_is_reaped() -> None:
    """A grandchild holds the output: nothing more comes of it, so it is dead when `reap` is back."""
    group = shell("{ echo child; exec sleep 600; } & exit 3")
    assert said(group) == "child"
    group.wait()
    assert group.ends_within(0)
    os.kill(group.pid, 0)  # dead, and not reaped: the number is still its own
    assert group.reap() == 3
    with pytest.raises(ProcessLookupError):
        os.kill(group.pid, 0)
    assert said(group) == ""
    close(group)


def test_once_reaped_its_number_may_be_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    group = shell("exit 0")
    assert group.reap() in (0, -signal.SIGKILL)
    code = group.end(grace=20)
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("somebody was signalled"))
    group.signal(signal.SIGTERM)
    assert (group.end(grace=20), group.ends_within(0)) == (code, True)
    close(group)


def test_somebody_else_reaped_it() -> None:
    """An owner that ignores SIGCHLD, for one. There is an end all the same."""
    group = shell("exit 3")
    os.waitpid(group.pid, 0)
    group.wait()
    assert group.ends_within(0)
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
