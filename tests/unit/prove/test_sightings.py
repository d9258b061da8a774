"""Moments of a run -> facts. Each story is a list of moments, as `watching` notes them."""

from typing import Any

import pytest

from caretway.prove import watching
from caretway.prove.watching import Moment


def m(ms: int, what: Any, name: str = "", text: str = "", *figures: int) -> Moment:
    return Moment(ms, what, name, text, figures)


OK = m(90, "end")
ENDED = m(80, "ended", "", "", 40, 5, 30, 0)


@pytest.mark.parametrize(
    ("moments", "outcome", "code"),
    [
        ([m(1, "text"), ENDED, OK], "right", ""),
        ([ENDED, OK], "empty", ""),
        ([m(5, "end", "", "resource_exhausted")], "refused", "resource_exhausted"),
        ([m(5, "end", "BAD_MODEL_NAME", "not_found")], "refused", "not_found bad_model_name"),
        ([m(5, "end", "", "Whatever: <b>"), m(6, "end")], "refused", ""),
        ([m(1, "tokens")], "failed", ""),
        ([], "failed", ""),
    ],
)
def test_outcomes(moments: list[Moment], outcome: str, code: str) -> None:
    assert watching.outcome(moments) == outcome
    assert watching.code(moments) == code


def test_the_end_is_told_or_not() -> None:
    assert watching.ends([m(1, "text"), ENDED, OK]) == {"end_told": True}
    assert watching.ends([m(1, "text"), ENDED]) == {"end_told": False}
    assert watching.ends([m(1, "text"), OK]) == {"end_told": False}


@pytest.mark.parametrize(
    ("moments", "facts"),
    [
        ([m(1, "checkpoint", "", "", 9, 0), m(1, "text")], {"early_checkpoint": True, "first_window_zero": True}),
        ([m(1, "text"), m(1, "checkpoint", "", "", 9, 200)], {"early_checkpoint": False, "first_window_zero": False}),
        ([m(1, "thought"), m(2, "checkpoint", "", "", 9, 0)], {"early_checkpoint": False, "first_window_zero": True}),
        ([m(1, "text")], {}),
    ],
)
def test_first_checkpoints(moments: list[Moment], facts: dict[str, Any]) -> None:
    assert watching.first_checkpoint(moments) == facts


def test_usage() -> None:
    found = {"input_tokens": 40, "output_tokens": 5, "usage_told": True, "cache_in_input": True, "cache_absurd": False}
    assert watching.usage([ENDED]) == found
    assert watching.usage([m(1, "ended", "", "", 40, 5, 30, 20)]) == found | {"cache_in_input": False}
    assert watching.usage([m(1, "ended", "", "", 40, 5, 9000, 0)]) == found | {"cache_absurd": True}
    assert watching.usage([m(0, "checkpoint", "", "", 9000, 0), m(1, "ended", "", "", 40, 5, 9000, 0)]) == found | {
        "cache_in_input": False
    }
    assert watching.usage([m(1, "ended", "", "", 0, 0, 0, 0)])["usage_told"] is False
    assert watching.usage([]) == {}
    assert watching.preamble([ENDED]) == {"preamble_spared": True}
    assert watching.preamble([m(1, "ended", "", "", 12_040, 5, 0, 0)]) == {"preamble_spared": False}


@pytest.mark.parametrize(
    ("found", "facts"),
    [
        (['{"k', '{"key', '{"key": 1}'], {"argument_text": "all so far"}),
        (['{"k', "ey", '": 1}'], {"argument_text": "pieces"}),
        (['{"key": 1}'], {}),
        (["", '{"key": 1}'], {}),
    ],
)
def test_arguments(found: list[str], facts: dict[str, Any]) -> None:
    assert watching.arguments([m(1, "partial", "a", text) for text in found]) == facts


def test_ids() -> None:
    long = "call-" + "x" * 40 + "\nfc_" + "y" * 40
    assert watching.call_ids([m(1, "started", long, long), m(2, "exec", "", long)]) == {
        "long_ids": True,
        "two_ids": False,
    }
    assert watching.call_ids([m(1, "started", "env", "a"), m(2, "exec", "", "a")]) == {
        "long_ids": False,
        "two_ids": True,
    }
    assert watching.call_ids([m(2, "exec", "", "a")]) == {"long_ids": False}
    assert watching.call_ids([]) == {}


def test_a_checkpoint_between_a_call_and_its_result() -> None:
    early = m(1, "checkpoint", "", "", 9, 0)
    call, later, result = m(10, "exec", "", "a"), m(130, "checkpoint", "", "", 9, 9), m(200, "result")
    assert watching.checkpoint_after_call([early, call, later, result]) == {"checkpoint_after_call_ms": 120}
    assert watching.checkpoint_after_call([early, call, result, later]) == {"checkpoint_after_call_ms": -1}
    assert watching.checkpoint_after_call([early]) == {}


def started(ms: int, name: str) -> list[Moment]:
    return [m(ms, "started", name, name), m(ms, "exec", "", name)]


def test_steps() -> None:
    apart = [
        *started(0, "a"),
        m(100, "tokens"),
        *started(300, "b"),
        m(400, "tokens"),
        *started(900, "c"),
        m(950, "result"),
    ]
    assert watching.step(apart, 3) == {
        "calls_listed": False,
        "asked_in_turn": False,
        "gaps_ms": (300, 600),
        "tokens_in_gaps": True,
    }
    silent = [moment for moment in apart if moment.what != "tokens"]
    assert watching.step(silent, 3)["tokens_in_gaps"] is False
    at_once = [*started(0, "a"), *started(1, "b"), m(1, "listed", "", "", 2)]
    assert watching.step(at_once, 2) == {"calls_listed": True, "asked_in_turn": False, "gaps_ms": (1,)}
    in_turn = [m(0, "started", "a", "a"), m(0, "started", "b", "b"), m(1, "exec", "", "a"), m(9, "result")]
    assert watching.step([*in_turn, m(10, "exec", "", "b")], 2)["asked_in_turn"] is True
    own_steps = [*started(0, "a"), m(5, "result"), *started(10, "b")]
    assert watching.step(own_steps, 2) == {"calls_listed": False, "asked_in_turn": False}
    assert watching.step(started(0, "a"), 2) == {}
