"""A turn that asks for the same local tool again and again."""

from caretway.builtin_tools.decisions import Refuse, RunHere
from caretway.builtin_tools.local.repeats import guarded
from caretway.wire.messages import pb


def read(number: int, path: str = "a") -> pb.ExecServerMessage:
    args = pb.ReadArgs(path=path, tool_call_id=f"call-{number}")
    return pb.ExecServerMessage(id=number, exec_id=str(number), read_args=args)


def shell(number: int, command: str) -> pb.ExecServerMessage:
    return pb.ExecServerMessage(id=number, shell_args=pb.ShellArgs(command=command, tool_call_id=str(number)))


def test_the_same_read_is_refused_in_the_end() -> None:
    decide = guarded(lambda _: RunHere(), 1)
    outcomes = [decide(read(number)) for number in range(7)]
    assert outcomes[:6] == [RunHere()] * 6
    assert isinstance(outcomes[6], Refuse)
    assert "7 times" in outcomes[6].reason


def test_other_paths_are_other_requests_and_changes_start_anew() -> None:
    decide = guarded(lambda _: RunHere(), 1)
    for number in range(30):
        assert decide(read(number, f"file-{number}")) == RunHere()
    for number in range(30):
        assert decide(read(100 + number)) == RunHere()
        assert decide(shell(200 + number, f"touch {number}")) == RunHere()


def test_zero_switches_it_off() -> None:
    decide = guarded(lambda _: RunHere(), 0)
    assert all(decide(read(number)) == RunHere() for number in range(100))
