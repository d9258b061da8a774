"""A script as steps, and as the lines of a prompt that mean the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.testing import Script
from caretway_sim.script import FAILURES, Say, ScriptCall, Think, ToolUse, parse

TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\\\x85")).map(str.strip)
VALUES = st.dictionaries(TEXTS, st.integers() | TEXTS | st.booleans(), max_size=3)
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
WORDS = st.one_of(
    st.tuples(st.sampled_from(["say", "think"]), st.tuples(TEXTS)),
    st.tuples(st.sampled_from(["call", "loop"]), st.tuples(NAMES, VALUES)),
    st.tuples(st.just("calls"), st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=3).map(tuple)),
    st.tuples(st.sampled_from(["result", "recall", "instructions", "hang", "mute"]), st.just(())),
    st.tuples(st.sampled_from(["drop", "leave"]), st.tuples(st.integers(0, 9))),
    st.tuples(st.just("wait"), st.tuples(st.integers(0, 1000))),
    st.tuples(st.just("stream"), st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))),
    st.tuples(st.just("fail"), st.tuples(st.sampled_from(FAILURES), st.sampled_from(["here", "before", "after"]))),
)


def built(words: list[tuple[str, tuple[Any, ...]]]) -> Script:
    script = Script()
    for name, arguments in words:
        script = getattr(script, name)(*arguments)
    return script


@given(st.lists(WORDS, max_size=6))
def test_a_printed_script_is_the_same_script(words: list[tuple[str, tuple[Any, ...]]]) -> None:
    script = built(words)
    assert parse(str(script)) == script.steps


def test_words_give_steps_in_order() -> None:
    script = Script().think("hm").call("weather", {"unit": "C"}, city="Paris").say("one\ntwo")
    use = ToolUse("weather", {"unit": "C", "city": "Paris"})
    assert script.steps == (Think("hm"), ScriptCall((use,)), Say("one\ntwo"))
    assert str(script).splitlines()[-1] == "sim: say one\\ntwo"


def test_an_unknown_failure_is_named() -> None:
    with pytest.raises(ValueError, match="no failure 'rate_limited'; there are unauthenticated, usage_limit"):
        Script().fail("rate_limited")
