"""A call's arguments, however they are told before it is asked for: the exec's win, and nothing is taken back."""

from typing import Any

import pytest

from caretway.backends.agent.arguments import grown, sure
from caretway.core.events import ToolCallDelta, ToolCallReady

from .stories import Story, mcp, partial

BROKEN = "\ufffd"
WRITE = {"path": "/ä.txt", "content": "é", "n": 3}
TOLD = '{"path": "/ä.txt", "content": "é", "n": 3}'


@pytest.mark.parametrize(
    ("pieces", "arguments", "wanted"),
    [
        pytest.param([TOLD[:9], TOLD[:20], TOLD], WRITE, TOLD, id="all of it each time"),
        pytest.param([TOLD[:9], TOLD[9:20], TOLD[20:]], WRITE, TOLD, id="what is new"),
        pytest.param([TOLD[:9], TOLD[9:20], TOLD], WRITE, TOLD, id="first what is new, then all of it"),
        pytest.param([TOLD[:20], TOLD[:20], TOLD, TOLD], WRITE, TOLD, id="the same again"),
        pytest.param([TOLD[:20]], WRITE, TOLD[:20] + 'content":"é","n":3}', id="no end, and keys that are not sorted"),
        pytest.param([TOLD[:11] + BROKEN, TOLD[:20], TOLD[:31] + BROKEN, TOLD], WRITE, TOLD, id="half a character"),
        pytest.param(
            ['{"path": "/', BROKEN, BROKEN + '.txt"}'], {"path": "/ä.txt"}, '{"path": "/ä.txt"}', id="spoiled for good"
        ),
        pytest.param(
            ['{"path": "p"', '{"path": "p"}'],
            {"path": "p", "content": "c"},
            '{"path": "p","content":"c"}',
            id="the exec says more",
        ),
        pytest.param(['{"n": 1}'], {"n": 2}, '{"n": 1}', id="the exec says something else"),
        pytest.param(['{"n": 1}', '{"n": 2}'], {"n": 2}, '{"n": 1}', id="told otherwise later"),
        pytest.param(['{"s": "{}', '{"}'], {"s": "{}{"}, '{"s": "{}{"}', id="braces in a text"),
    ],
)
def test_what_the_client_is_asked_to_run(pieces: list[str], arguments: dict[str, Any], wanted: str) -> None:
    story = Story("a")
    story.hear(*[partial("c1", "a", piece) for piece in pieces], mcp(1, "c1", "a", **arguments))
    events = story.events()
    assert events[-1] == ToolCallReady("c1", "a", wanted)
    assert "".join(event.arguments for event in events if isinstance(event, ToolCallDelta)) == wanted


@pytest.mark.parametrize(
    ("before", "piece", "after"),
    [
        ("", '{"a"', '{"a"'),
        ('{"a"', '{"a":1', '{"a":1'),
        ('{"a"', ":1", '{"a":1'),
        ('{"a"', "", '{"a"'),
        ('{"a":"' + BROKEN, '{"a":"é', '{"a":"é'),
        ('{"a":"' + BROKEN, 'x"', '{"a":"' + BROKEN + 'x"'),
        ('{"a":1}', '{"a":2}', '{"a":2}'),
        ('{"a":"{}', '{"}', '{"a":"{}{"}'),
    ],
)
def test_how_a_text_grows(before: str, piece: str, after: str) -> None:
    assert grown(before, piece) == after


@pytest.mark.parametrize(
    ("draft", "shown"),
    [
        ('{"a":1', '{"a":1'),
        ('{"a":1}', '{"a":1'),
        ('{"a":1}\n', '{"a":1'),
        ('{"a":{}}', '{"a":{}'),
        ('{"a":"x' + BROKEN + 'y"}', '{"a":"x'),
        ("{}", "{"),
    ],
)
def test_what_of_a_text_can_be_shown(draft: str, shown: str) -> None:
    assert sure(draft) == shown
