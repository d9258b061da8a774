"""The script language: one table of lines and the steps they mean."""

from typing import Any

import pytest

from caretway_sim.script import (
    EXEC_KINDS,
    Drop,
    Exec,
    Fail,
    Hang,
    Loop,
    Mute,
    Query,
    Recall,
    Result,
    Say,
    ScriptCall,
    ScriptStream,
    Step,
    Think,
    ToolUse,
    Wait,
    has_script,
    parse,
)

CASES: list[tuple[str, tuple[Step, ...]]] = [
    ("sim: say hello world", (Say("hello world"),)),
    ("  \tsim: say indented", (Say("indented"),)),
    ("sim:say no space", (Say("no space"),)),
    (r"sim: say one\ntwo", (Say("one\ntwo"),)),
    ("sim: say trailing   \r\nsim: result", (Say("trailing"), Result())),
    ("sim: say", (Say(""),)),
    ("sim: think hmm", (Think("hmm"),)),
    ("words\nsim: say a\nmore words\nsim: say b\n", (Say("a"), Say("b"))),
    ("a sim: say in mid-line", ()),
    ("", ()),
    ("sim: call ping", (ScriptCall((ToolUse("ping", {}),)),)),
    ('sim: call add {"a": 2, "b": {"c": [1, "}"]}}', (ScriptCall((ToolUse("add", {"a": 2, "b": {"c": [1, "}"]}}),)),)),
    (
        'sim: call a {"x": "& b {}"} & b {"y": 1}',
        (ScriptCall((ToolUse("a", {"x": "& b {}"}), ToolUse("b", {"y": 1}))),),
    ),
    ("sim: call a & b", (ScriptCall((ToolUse("a", {}), ToolUse("b", {}))),)),
    ('sim: loop again {"n": 1}', (Loop(ToolUse("again", {"n": 1})),)),
    ('sim: exec read {"path": "/x"}', (Exec("read", {"path": "/x"}),)),
    ("sim: exec unknown", (Exec("unknown", {}),)),
    ('sim: query web_search {"search_term": "x"}', (Query("web_search", {"search_term": "x"}),)),
    ("sim: result\nsim: recall", (Result(), Recall())),
    ("sim: stream 10 20", (ScriptStream(10, 20),)),
    ("sim: stream 10 20 2.5", (ScriptStream(10, 20, 2.5),)),
    ("sim: fail overflow", (Fail("overflow"),)),
    ("sim: fail overflow before", (Fail("overflow", "before"),)),
    ("sim: fail internal after", (Fail("internal", "after"),)),
    ("sim: drop\nsim: drop 3", (Drop(1), Drop(3))),
    ("sim: hang\nsim: mute\nsim: wait 15", (Hang(), Mute(), Wait(15.0))),
]


@pytest.mark.parametrize(("text", "steps"), CASES)
def test_lines_become_steps(text: str, steps: tuple[Step, ...]) -> None:
    assert parse(text) == steps
    assert has_script(text) is bool(steps)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("sim: dance", "dance"),
        ("sim:", "unknown word"),
        ("sim: call", "tool name"),
        ("sim: call a {", "JSON"),
        ("sim: call a {} b", "'&'"),
        ("sim: exec swim {}", "swim"),
        ("sim: query swim", "swim"),
        ("sim: stream 1", "N BYTES"),
        ("sim: stream x 1", "'x'"),
        ("sim: stream 99999999 1", "between"),
        ("sim: fail gently", "gently"),
        ("sim: fail internal during", "during"),
        ("sim: drop often", "often"),
        ("sim: loop a {} b", "after the arguments"),
    ],
)
def test_a_line_that_cannot_be_read_is_said(line: str, names: str) -> None:
    (step,) = parse(line)
    assert isinstance(step, Say)
    assert step.text.startswith("[sim: ")
    assert names in step.text


@pytest.mark.parametrize("size", [0, 1, 5, 47, 48, 49, 1000])
def test_stream_deltas_have_their_size_and_differ(size: int) -> None:
    step = ScriptStream(20, size)
    deltas = [step.delta(index) for index in range(step.count)]
    assert {len(delta) for delta in deltas} == {size}
    if size > 3:
        assert len(set(deltas)) == step.count


def test_every_exec_kind_can_be_asked_for() -> None:
    args: dict[str, Any] = {}
    assert [parse(f"sim: exec {kind}") for kind in sorted(EXEC_KINDS)] == [(Exec(k, args),) for k in sorted(EXEC_KINDS)]
