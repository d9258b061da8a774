"""shell: output, ends, limits, and that nothing survives. Real processes."""

import asyncio
import os
import select
import time
from pathlib import Path
from typing import Any

import pytest

from caretway.backends.builtin_tools.local import shell
from caretway.backends.builtin_tools.local import tools as local_tools
from caretway.cursor.wire.messages import pb
from unit.backends.builtin_tools.local.asking import SYSTEM, answers, ask, tools


def ended(pid: int, within_s: float = 5.0) -> bool:
    """A killed process closes its pipes a moment before it is gone; and somebody else's zombie is gone enough."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], within_s)[0])
    finally:
        os.close(fd)


async def run(place: Path, command: str, *, timeout: int = 0, **changed: Any) -> tuple[str, Any]:
    return await ask(tools(place, **changed), "shell", command=command, timeout=timeout)


async def test_success(tmp_path: Path) -> None:
    which, value = await run(tmp_path, "echo out; echo err >&2; pwd")
    assert which == "success"
    assert (value.stdout, value.stderr, value.exit_code) == (f"out\n{tmp_path}\n", "err\n", 0)
    assert value.command == "echo out; echo err >&2; pwd"


async def test_failure(tmp_path: Path) -> None:
    which, value = await run(tmp_path, "echo plain; exit 3")
    assert (which, value.exit_code, value.stdout) == ("failure", 3, "plain\n")
    which, value = await run(tmp_path, "kill -9 $$")
    assert (which, value.exit_code, value.signal) == ("failure", 137, "SIGKILL")


async def test_working_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").write_text("")
    for asked in ("sub", f"{tmp_path}/sub", "sub/../sub"):
        _, value = await ask(tools(tmp_path), "shell", command="pwd; echo $PWD", working_directory=asked)
        assert value.stdout == f"{tmp_path}/sub\n" * 2
    for asked in ("missing", "file"):
        assert (await ask(tools(tmp_path), "shell", command="pwd", working_directory=asked))[0] == "spawn_error"


async def test_stream(tmp_path: Path) -> None:
    args = {"command": "echo out; echo err >&2; exit 2"}
    events = [reply.shell_stream for reply in await answers(tools(tmp_path), "shell_stream_args", args)]
    assert [event.WhichOneof("event") for event in events] == ["start", "stdout", "stderr", "exit"]
    assert (events[1].stdout.data, events[2].stderr.data) == ("out\n", "err\n")
    assert (events[3].exit.code, events[3].exit.cwd, events[3].exit.aborted) == (2, str(tmp_path), False)


async def test_stream_refuses_and_times_out(tmp_path: Path) -> None:
    args: dict[str, Any] = {"command": "pwd", "working_directory": ".."}
    (reply,) = await answers(tools(tmp_path), "shell_stream_args", args)
    assert reply.shell_stream.WhichOneof("event") == "rejected"
    args = {"command": "echo begun; sleep 60", "timeout": 300}
    replies = await answers(tools(tmp_path), "shell_stream_args", args)
    assert replies[1].shell_stream.stdout.data == "begun\n"
    assert "0.3 seconds" in replies[2].shell_stream.stderr.data
    assert replies[-1].shell_stream.exit.aborted


async def test_there_is_no_input(tmp_path: Path) -> None:
    which, value = await run(tmp_path, "cat; read x || echo nothing")
    assert (which, value.stdout) == ("success", "nothing\n")


async def test_a_nul_byte(tmp_path: Path) -> None:
    which, value = await run(tmp_path, "echo \0")
    assert which == "spawn_error"
    assert "NUL" in value.error


async def test_secrets_are_not_handed_on(tmp_path: Path) -> None:
    secrets = [
        "CURSOR_API_KEY",
        "CARETWAY_KEY",
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "aws_secret_access_key",
        "DB_PASSWORD",
    ]
    environment = SYSTEM | {"KEPT": "yes", "SHELL": "/usr/bin/fish"} | dict.fromkeys(secrets, "hunter2")
    _, value = await run(tmp_path, "env", environment=environment)
    assert "hunter2" not in value.stdout
    assert "KEPT=yes" in value.stdout
    assert "TERM=dumb" in value.stdout


async def test_output_is_capped_with_head_and_tail(tmp_path: Path) -> None:
    which, value = await run(
        tmp_path, "echo first; yes | head -c 3000000; echo last; echo wrong >&2", output_bytes=1000
    )
    assert which == "success"
    assert value.stdout.startswith("first\ny\n")
    assert value.stdout.endswith("y\nlast\n")
    assert "bytes left out" in value.stdout
    assert value.stderr == "wrong\n"
    assert len(value.stdout) < 1100


async def test_endless_output_is_bounded_by_time(tmp_path: Path) -> None:
    which, value = await run(tmp_path, "yes", timeout=300)
    assert (which, value.timeout_ms) == ("timeout", 300)


async def test_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    which, value = await run(tmp_path, "sleep 600 & echo $! >pids; echo $$ >>pids; wait", shell_timeout_s=0.5)
    assert (which, value.timeout_ms) == ("timeout", 500)
    assert all(ended(int(pid)) for pid in (tmp_path / "pids").read_text().split())


async def test_one_that_ignores_the_polite_signal(tmp_path: Path) -> None:
    began = time.monotonic()
    which, _ = await run(tmp_path, "trap '' TERM; echo $$ >pid; while :; do sleep 0.2; done", timeout=300)
    assert which == "timeout"
    assert ended(int((tmp_path / "pid").read_text()))
    assert time.monotonic() - began < 60


async def test_the_model_may_ask_for_less_time_not_for_more() -> None:
    assert shell.time_limit(pb.ShellArgs(timeout=5000), 120) == 5
    assert shell.time_limit(pb.ShellArgs(timeout=500_000), 120) == 120
    assert shell.time_limit(pb.ShellArgs(timeout=5000, hard_timeout=1000), 120) == 1
    assert shell.time_limit(pb.ShellArgs(timeout=-1), 120) == 120


async def test_background_children_neither_hold_nor_survive(tmp_path: Path) -> None:
    began = time.monotonic()
    which, value = await run(tmp_path, "sleep 600 & echo $! >pid; echo done")
    assert (which, value.stdout) == ("success", "done\n")
    assert time.monotonic() - began < 60
    assert ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "leaving",
    [
        "setsid sh -c 'echo $$ >pid; exec sleep 600' &",
        "setsid sh -c 'setsid sh -c \"echo \\$\\$ >pid; exec sleep 600\" & exit' &",
        "setsid sh -c 'trap \"\" TERM HUP; echo $$ >pid; while true; do sleep 1; done' >/dev/null 2>&1 </dev/null &",
    ],
    ids=["session of its own", "daemon", "deaf"],
)
async def test_one_that_left_the_group_neither_holds_the_answer_nor_survives(tmp_path: Path, leaving: str) -> None:
    began = time.monotonic()
    which, value = await run(tmp_path, f"{leaving} while ! [ -s pid ]; do sleep 0.05; done; echo done")
    assert (which, value.stdout) == ("success", "done\n")
    assert time.monotonic() - began < 60
    assert ended(int((tmp_path / "pid").read_text()))


async def test_only_what_a_command_started_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    local = tools(tmp_path)
    waiting = asyncio.ensure_future(ask(local, "shell", command="setsid cat go & wait; echo still here"))
    assert (await ask(local, "shell", command="setsid sleep 60 & echo done"))[1].stdout == "done\n"
    assert not waiting.done()
    await asyncio.to_thread((tmp_path / "go").write_text, "word ")
    assert (await waiting)[1].stdout == "word still here\n"


async def test_so_many_run_at_once_and_no_more(tmp_path: Path) -> None:
    local = tools(tmp_path)
    command = "n=$(ls running | wc -l); touch running/$$; echo $n; sleep 0.2; rm running/$$"
    (tmp_path / "running").mkdir()
    results = await asyncio.gather(*(ask(local, "shell", command=command) for _ in range(local_tools.AT_ONCE * 2)))
    assert max(int(value.stdout) for _, value in results) < local_tools.AT_ONCE


async def test_one_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    which, value = await run(tmp_path, "exec >&- 2>&-; sleep 0.3; exit 4")
    assert (which, value.exit_code) == ("failure", 4)


async def test_cancelling_ends_the_group_before_it_returns(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    command = "sleep 600 & echo $! $$ >begun; wait"
    task = asyncio.ensure_future(run(tmp_path, command))
    pids = (await asyncio.to_thread((tmp_path / "begun").read_text)).split()
    assert not any(ended(int(pid), 0) for pid in pids)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pids) == 2
    assert all(ended(int(pid)) for pid in pids)


async def test_several_at_once_do_not_block_the_loop(tmp_path: Path) -> None:
    """They meet in the middle: each waits for the others, so they can only end when all of them run."""
    for number in range(4):
        os.mkfifo(tmp_path / f"f{number}")
    local = tools(tmp_path)
    commands = [f"echo {n} >f{n} & cat f{(n + 1) % 4}; wait" for n in range(4)]
    results = await asyncio.gather(*(ask(local, "shell", command=command) for command in commands))
    assert [value.stdout for _, value in results] == ["1\n", "2\n", "3\n", "0\n"]


def test_which_shell(tmp_path: Path) -> None:
    assert shell.shell_program({"SHELL": "/bin/sh"}) == "/bin/sh"
    assert shell.shell_program({"SHELL": "/usr/bin/fish"}) in ("/bin/bash", "/usr/bin/bash", "/bin/sh")
    assert shell.shell_program({"SHELL": str(tmp_path / "bash")}) in ("/bin/bash", "/usr/bin/bash", "/bin/sh")
