"""Which calls only look, and which steps bring nothing new."""

import pytest

from caretway.core.request import Message, Role, Text, ToolCall, ToolResult
from caretway.sessions.loop_guard.history import Correct, LoopGuard, Ok, Stop
from caretway.sessions.loop_guard.wander import Wander, only_looks

LOOKS = [
    ("read", "{}", True),
    ("mcp__files__Read_File", "{}", True),
    ("Grep", "{}", True),
    ("write", "{}", False),
    ("edit", "{}", False),
    ("task", "{}", False),
    ("bash", '{"command": "cat a | grep b && ls -la"}', True),
    ("bash", '{"command": "git log --oneline; git status"}', True),
    ("bash", '{"command": "sed -n 1,20p a"}', True),
    ("bash", '{"command": "sed -i s/a/b/ a"}', False),
    ("bash", '{"command": "cat a > b"}', False),
    ("bash", '{"command": "cat a 2>/dev/null"}', True),
    ("bash", '{"command": "cat a 2>&1"}', True),
    ("bash", '{"command": "find . -name a -delete"}', False),
    ("bash", '{"command": "find . -name a"}', True),
    ("bash", '{"command": "git checkout main"}', False),
    ("bash", '{"command": "make test"}', False),
    ("bash", '{"command": "echo $(rm a)"}', False),
    ("shell", '{"command": ["bash", "-lc", "ls"]}', True),
    ("shell", '{"command": ["rm", "a"]}', False),
    ("bash", "{}", False),
    ("bash", "no json", False),
]


@pytest.mark.parametrize(("tool", "arguments", "looks"), LOOKS)
def test_what_only_looks(tool: str, arguments: str, looks: bool) -> None:
    assert only_looks(tool, arguments) is looks


def test_a_part_of_what_was_seen_is_nothing_new() -> None:
    wander = Wander()
    wander.step(["one\ntwo\nthree"], looks=True)
    for part in ("two\nthree", "one", "  two  ", "three\n\none"):
        wander.step([part], looks=True)
    assert wander.steps == 4
    wander.step(["three\nfour"], looks=True)
    assert wander.steps == 0


def wandering(steps: int, tool: str = "read", size: int = 10) -> list[Message]:
    """A client's history: so many looks at four files, after each of them was seen once."""
    history = [Message(Role.USER, (Text("fix it"),))]
    for n in range(steps + 4):
        file = n % 4
        history += [
            Message(Role.ASSISTANT, (ToolCall(f"c{n}", tool, f'{{"path": "{file}", "n": {n // 4}}}'),)),
            Message(Role.TOOL, (ToolResult(f"c{n}", (Text(f"text of {file} " * size),)),)),
        ]
    return history


def test_a_client_that_wanders_is_told_and_stopped_where_that_is_set() -> None:
    warns, stops, off = (LoopGuard(no_progress=rule) for rule in ("warn", "stop", "off"))
    assert warns.verdict(wandering(39)) == Ok()
    told = warns.verdict(wandering(40))
    assert isinstance(told, Correct) and told.call_ids == ("c43",) and "the last 40 steps only looked" in told.message
    assert warns.verdict(wandering(45)) == Ok(), "not at every step"
    assert isinstance(warns.verdict(wandering(100)), Correct)
    ended = stops.verdict(wandering(80))
    assert isinstance(ended, Stop) and ended.error.code == "no_progress"
    assert off.verdict(wandering(100)) == Ok()


def test_what_costs_more_is_noticed_sooner() -> None:
    assert isinstance(LoopGuard().verdict(wandering(20, size=1000)), Correct)


def test_whoever_acts_or_is_spoken_to_is_not_lost() -> None:
    assert LoopGuard().verdict(wandering(100, tool="edit")) == Ok()
    spoken = [*wandering(60), Message(Role.USER, (Text("go on"),)), *wandering(30)[1:]]
    assert LoopGuard().verdict(spoken) == Ok()
