"""A call's arguments, however they are told before it is asked for: the exec's win, and nothing is taken back."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.agent.arguments import completion, grown, sure
from caretway.core.events import ToolCallDelta, ToolCallReady

from .stories import Story, mcp, partial

TEXTS = st.text(max_size=8) | st.sampled_from(['say "no"', "a\\b\n\t\x01", "é😀ä", "/tmp/ä😀.txt", "�"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.sampled_from([0.5, -1.25, 3.14159]) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def in_another_order(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        names = list(value)
        order.shuffle(names)
        return {name: in_another_order(value[name], order) for name in names}
    return [in_another_order(inner, order) for inner in value] if isinstance(value, list) else value


@given(OBJECTS, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([None, 1]))
def test_a_text_that_is_cut_anywhere_can_be_completed(
    value: dict[str, Any], order: random.Random, ascii_only: bool, indent: int | None
) -> None:
    spelled = json.dumps(in_another_order(value, order), ensure_ascii=ascii_only, indent=indent)
    for cut in range(len(spelled) + 1):
        rest = completion(spelled[:cut], value)
        assert rest is not None, spelled[:cut]
        assert json.loads(spelled[:cut] + rest) == value


@pytest.mark.parametrize(
    ("begun", "value", "rest"),
    [
        ('{"b":1,', {"a": 2, "b": 1}, '"a":2}'),
        ('{"b":1', {"a": 2, "b": 1}, ',"a":2}'),
        ('{"b":1', {"b": 12}, "2}"),
        ('{"b":1.0', {"b": 1}, "}"),
        ('{"b": 12345678901234567890', {"b": 1.2345678901234567e19}, "}"),
        ('{"a":"x\\', {"a": "x\ny"}, 'ny"}'),
        ('{"a":"x\\u00E', {"a": "xé"}, '9"}'),
        ('{"a":"x\\ud83d', {"a": "x😀"}, '\\ude00"}'),
        ('{"a":"x\\/', {"a": "x/y"}, 'y"}'),
        ("", {"a": [1]}, '{"a":[1]}'),
        ('{"a":[1,', {"a": [1, 2]}, "2]}"),
        ('{"a":[', {"a": []}, "]}"),
        ('{"a":1} ', {"a": 1}, ""),
    ],
)
def test_how_it_goes_on(begun: str, value: Any, rest: str) -> None:
    assert completion(begun, value) == rest


@pytest.mark.parametrize(
    ("begun", "value"),
    [
        ('{"a":2', {"a": 1}),
        ('{"a":tr', {"a": 1}),
        ('{"a":true', {"a": 1}),
        ('{"a":"y', {"a": "x"}),
        ('{"a":"x"', {"a": "xy"}),
        ('{"a":"x\\', {"a": "x"}),
        ('{"a":"x\\x', {"a": "xx"}),
        ('{"a":1e+', {"a": 1e16}),
        ('{"b', {"a": 1}),
        ('{"b"', {"a": 1}),
        ('{"a":1,', {"a": 1}),
        ('{"a":1}', {"a": 1, "b": 2}),
        ('{"a":1}{', {"a": 1}),
        ('{"a":[1,2', {"a": [1]}),
        ('{"a" 1', {"a": 1}),
        ("[", {"a": 1}),
        ("{x", {"a": 1}),
        ('{"a":"\x01', {"a": "\x01"}),
        ('{"a":' + "[" * 5000, {"a": []}),
    ],
)
def test_the_beginning_of_something_else(begun: str, value: Any) -> None:
    assert completion(begun, value) is None


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
