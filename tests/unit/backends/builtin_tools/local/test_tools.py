"""LocalTools: what runs in which mode, how it refuses, and that it never raises."""

from pathlib import Path

import pytest

from caretway.backends.builtin_tools import execs
from caretway.backends.builtin_tools.execs import Decision, EndTurn, Refuse, RunHere
from caretway.backends.builtin_tools.local import tools as module
from caretway.backends.builtin_tools.local.tools import GuardedTools, LocalTools, Mode
from caretway.cursor.wire.messages import pb
from caretway.sessions.loop_guard import GuardSettings, LiveGuard, NoProgress
from unit.backends.builtin_tools.local.asking import answers, ask, tools


class Jobs:
    """Reads give the text that stands in `texts`, and the number of their exec with it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.ran = 0

    async def run(self, exec_: pb.ExecServerMessage) -> list[bytes]:
        self.ran += 1
        path = exec_.read_args.path if exec_.HasField("read_args") else exec_.shell_args.command
        success = pb.ReadSuccess(path=path, content=self.texts.get(path, path))
        reply = pb.ExecClientMessage(id=exec_.id, read_result=pb.ReadResult(success=success))
        return [execs.answer(reply), execs.stream_close(exec_.id)]


def read(number: int, path: str = "a") -> pb.ExecServerMessage:
    args = pb.ReadArgs(path=path, tool_call_id=f"call-{number}")
    return pb.ExecServerMessage(id=number, exec_id=str(number), read_args=args)


def shell(number: int, command: str) -> pb.ExecServerMessage:
    return pb.ExecServerMessage(id=number, shell_args=pb.ShellArgs(command=command, tool_call_id=str(number)))


class Turn:
    def __init__(self, max_repeat: int = 1, no_progress: NoProgress = "stop") -> None:
        self.jobs = Jobs()
        guard = LiveGuard(GuardSettings(max_repeat, no_progress), lambda: 0.0)
        self.tools = GuardedTools(lambda _: RunHere(), self.jobs, guard)

    async def ask(self, exec_: pb.ExecServerMessage) -> Decision:
        decision = self.tools.decide(exec_)
        if isinstance(decision, RunHere):
            await self.tools.run(exec_)
        return decision


async def test_the_same_read_is_refused_once_and_then_ends_the_turn() -> None:
    turn = Turn()
    outcomes = [await turn.ask(read(number)) for number in range(8)]
    assert outcomes[:6] == [RunHere()] * 6
    assert isinstance(outcomes[6], Refuse)
    assert "7 times" in outcomes[6].reason
    assert isinstance(outcomes[7], EndTurn) and outcomes[7].error.code == "tool_loop_detected"
    assert turn.jobs.ran == 6


async def test_a_file_that_changes_is_read_as_often_as_it_does() -> None:
    turn = Turn()
    for number in range(100):
        turn.jobs.texts["a"] = str(number)
        assert await turn.ask(read(number)) == RunHere()


async def test_other_paths_are_other_requests_and_changes_start_anew() -> None:
    turn = Turn()
    for number in range(30):
        assert await turn.ask(read(number, f"file-{number}")) == RunHere()
    for number in range(30):
        assert await turn.ask(read(100 + number)) == RunHere()
        assert await turn.ask(shell(200 + number, f"touch {number}")) == RunHere()


async def test_looking_around_is_told_and_then_ends_the_turn() -> None:
    turn = Turn(20)
    outcomes = [await turn.ask(read(number, f"file-{number % 5}")) for number in range(100)]
    refused = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Refuse)]
    ended = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, EndTurn)]
    assert refused[0] == 45 and ended[0] == 5 + 80 + len(refused)


async def test_zero_and_off_switch_it_off() -> None:
    turn = Turn(0, "off")
    assert all([await turn.ask(read(number)) == RunHere() for number in range(100)])


READING = ["read_args", "redacted_read_args", "ls_args", "grep_args"]
CHANGING = ["write_args", "delete_args", "shell_args", "shell_stream_args"]
NEVER = [
    "fetch_args",
    "background_shell_spawn_args",
    "write_shell_stdin_args",
    "diagnostics_args",
    "list_mcp_resources_exec_args",
    "read_mcp_resource_exec_args",
    "mcp_state_exec_args",
]


def exec_of(kind: str) -> pb.ExecServerMessage:
    exec_ = pb.ExecServerMessage(id=7)
    getattr(exec_, kind).SetInParent()
    return exec_


@pytest.mark.parametrize("kind", READING)
@pytest.mark.parametrize("mode", ["read-only", "all"])
def test_reading_always_runs(tmp_path: Path, mode: Mode, kind: str) -> None:
    assert tools(tmp_path, mode).decide(exec_of(kind)) == RunHere()


@pytest.mark.parametrize("kind", CHANGING)
def test_changing_is_opt_in(tmp_path: Path, kind: str) -> None:
    decision = tools(tmp_path, "read-only").decide(exec_of(kind))
    assert isinstance(decision, Refuse)
    assert "`--local-tools all`" in decision.reason
    assert "read, ls, grep and glob" in decision.reason
    assert tools(tmp_path, "all").decide(exec_of(kind)) == RunHere()


@pytest.mark.parametrize("kind", NEVER)
def test_some_never_run(tmp_path: Path, kind: str) -> None:
    decision = tools(tmp_path, "all").decide(exec_of(kind))
    assert isinstance(decision, Refuse)
    assert "Available: read, ls, grep and glob, write, delete, shell." in decision.reason


def test_unknown_and_background(tmp_path: Path) -> None:
    assert isinstance(tools(tmp_path, "all").decide(pb.ExecServerMessage(id=7)), Refuse)
    for kind in ("shell_args", "shell_stream_args"):
        exec_ = exec_of(kind)
        getattr(exec_, kind).is_background = True
        decision = tools(tmp_path, "all").decide(exec_)
        assert isinstance(decision, Refuse)
        assert "background" in decision.reason


async def test_run_refuses_what_decide_refuses(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("kept")
    local = tools(tmp_path, "read-only")
    assert (await ask(local, "write", path="a", file_text="x"))[0] == "rejected"
    assert (await ask(local, "delete", path="a"))[0] == "rejected"
    assert (await ask(local, "shell", command="rm a"))[0] == "rejected"
    (reply,) = await answers(local, "shell_stream_args", {"command": "rm a"})
    assert reply.shell_stream.WhichOneof("event") == "rejected"
    assert (tmp_path / "a").read_text() == "kept"


def test_allowed_tools(tmp_path: Path) -> None:
    reading = "read_tool_call,ls_tool_call,grep_tool_call,glob_tool_call"
    assert tools(tmp_path, "read-only").allowed_tools == reading
    assert tools(tmp_path, "all").allowed_tools == f"{reading},shell_tool_call,edit_tool_call,delete_tool_call"


@pytest.mark.parametrize(
    ("kind", "broken", "which"),
    [
        ("read", "read", "error"),
        ("redacted_read", "read", "error"),
        ("ls", "ls", "error"),
        ("write", "write", "error"),
        ("delete", "delete", "error"),
    ],
)
async def test_a_bug_is_a_typed_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    broken: str,
    which: str,
) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, broken, bug)
    found, value = await ask(tools(tmp_path), kind, path="a")
    assert found == which
    assert "ZeroDivisionError" in value.error
    assert "a local tool failed" in caplog.text


async def test_bugs_in_processes_are_typed_answers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    local: LocalTools = tools(tmp_path)
    monkeypatch.setattr("caretway.backends.builtin_tools.local.grep.run_once", bug)
    monkeypatch.setattr("caretway.backends.builtin_tools.local.shell.run_to_end", bug)
    assert (await ask(local, "grep", pattern="x"))[0] == "error"
    assert (await ask(local, "shell", command="x"))[0] == "spawn_error"
    (reply,) = await answers(local, "shell_stream_args", {"command": "x"})
    assert reply.shell_stream.WhichOneof("event") == "rejected"


async def test_a_workspace_that_is_gone(tmp_path: Path) -> None:
    local = tools(tmp_path / "gone")
    assert (await ask(local, "read", path="a"))[0] == "file_not_found"
    assert (await ask(local, "write", path="a", file_text="x"))[0] == "error"
    assert (await ask(local, "ls", path=""))[0] == "error"
    assert (await ask(local, "grep", pattern="x"))[0] == "error"
    assert (await ask(local, "shell", command="true"))[0] == "spawn_error"


async def test_answers_say_how_long_it_took(tmp_path: Path) -> None:
    (reply,) = await answers(tools(tmp_path), "ls_args", {})
    assert reply.HasField("local_execution_time_ms")
