"""A turn that asks for the same local tool again and again."""

from caretway.backends.builtin_tools import execs
from caretway.backends.builtin_tools.decisions import Decision, EndTurn, Refuse, RunHere
from caretway.backends.builtin_tools.local.repeats import GuardedTools
from caretway.cursor.wire.messages import pb
from caretway.sessions.loop_guard.live import GuardSettings, LiveGuard
from caretway.sessions.loop_guard.rule import NoProgress


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
