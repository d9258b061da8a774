"""Facts -> verdicts, one table; and that no verdict is without words."""

from typing import Any

import pytest

from caretway.prove.cases import BY_NAME, CASES, NEEDS_TEXT, PRIVATE, cost, judged
from caretway.prove.facts import CaseVerdict

VERDICTS: list[tuple[str, dict[str, Any], str, str, str]] = [
    # case, facts, state, words, what helps
    ("model lists", {"base_models": 35, "thinking_details": 0}, "holds", "two lists", ""),
    ("model lists", {"base_models": 0, "thinking_details": 0}, "differs", "no list of base models", "caretway models"),
    ("model lists", {"base_models": 35, "thinking_details": 4}, "differs", "which models think", "Nothing to set"),
    ("list's type", {"list_type_status": 415}, "holds", "gets 415", ""),
    ("list's type", {"list_type_status": 200}, "differs", "answered 200, not 415", "Nothing to set"),
    ("run over HTTP/1.1", {"http1_run_status": 464}, "holds", "464", ""),
    ("run over HTTP/1.1", {"http1_run_status": 200}, "differs", "answered 200", "Nothing to set"),
    ("quota", {"quota": "told"}, "holds", "reported", ""),
    ("quota", {"quota": "refused"}, "differs", "refused", "dashboard"),
    ("quota", {"quota": "silent"}, "differs", "never answered", "Nothing to set"),
    ("text", {"text": "right"}, "holds", "a marker", ""),
    ("text", {"text": "other"}, "not tried", "other words", ""),
    ("text", {"text": "failed"}, "not tried", "cut", ""),
    ("text", {"text": "empty"}, "differs", "empty", "doctor"),
    ("text", {"text": "refused", "text_code": "not_found"}, "differs", "refused (not_found)", "doctor"),
    ("client version", {"text": "right"}, "holds", "is served", ""),
    ("client version", {"text": "refused", "text_code": "not_found"}, "holds", "is served", ""),
    (
        "client version",
        {"text": "refused", "text_code": "resource_exhausted"},
        "differs",
        "without a reason",
        "--other-version",
    ),
    (
        "client version",
        {"text": "refused", "text_code": "resource_exhausted", "other_version": "right"},
        "differs",
        "another is served",
        "--agent-client-version",
    ),
    (
        "client version",
        {"text": "refused", "text_code": "resource_exhausted", "other_version": "refused"},
        "differs",
        "every version",
        "doctor",
    ),
    (
        "client version",
        {"text": "refused", "text_code": "resource_exhausted", "other_version": "right", "shape_base": "right"},
        "differs",
        "another is served",
        "--agent-client-version",
    ),
    (
        "client version",
        {"text": "refused", "text_code": "resource_exhausted", "shape_details": "right"},
        "holds",
        "is served",
        "",
    ),
    ("proxy", {"proxy": "socks5h", "text": "right"}, "holds", "through the socks5h proxy", ""),
    ("proxy", {"proxy": "http", "text": "refused"}, "differs", "are refused", "CARETWAY_PROXY=off"),
    ("proxy", {"proxy": "http", "text": "failed"}, "differs", "not answered", "CARETWAY_PROXY=off"),
    ("end of a turn", {"end_told": True}, "holds", "turn_ended", ""),
    ("end of a turn", {"end_told": False}, "differs", "without", "Nothing to set"),
    ("early checkpoint", {"early_checkpoint": False}, "differs", "no checkpoint", "Nothing to set"),
    ("first window", {"first_window_zero": True}, "holds", "no window", ""),
    ("preamble", {"preamble_spared": False}, "differs", "thousands", "Cursor counts them"),
    ("usage", {"usage_told": True, "cache_in_input": True, "cache_absurd": False}, "holds", "includes", ""),
    ("usage", {"usage_told": False}, "differs", "not reported", "estimates"),
    ("usage", {"usage_told": True, "cache_in_input": True, "cache_absurd": True}, "differs", "more tokens", "left out"),
    ("usage", {"usage_told": True, "cache_in_input": False}, "differs", "beside the input", "too low"),
    ("arguments", {"argument_text": "all so far"}, "holds", "all so far", ""),
    ("arguments", {"argument_text": "pieces"}, "differs", "pieces", "takes both"),
    ("call ids", {"long_ids": False}, "differs", "short", "Nothing to set"),
    ("one id for a call", {"two_ids": False}, "holds", "one id", ""),
    ("one id for a call", {"two_ids": True}, "differs", "different ids", "Nothing to set"),
    ("checkpoint at a call", {"checkpoint_after_call_ms": 0}, "holds", "between", ""),
    ("checkpoint at a call", {"checkpoint_after_call_ms": -1}, "differs", "no checkpoint", "once more"),
    ("gaps", {"gaps_ms": (318, 573), "tokens_in_gaps": True}, "holds", "come apart", ""),
    ("gaps", {"gaps_ms": (60, 90)}, "holds", "come apart", ""),
    ("gaps", {"gaps_ms": (0, 3)}, "differs", "at once", "--agent-quirks sibling_quiet=50ms"),
    (
        "gaps",
        {"gaps_ms": (318, 573), "tokens_in_gaps": False},
        "differs",
        "silence",
        "--agent-quirks sibling_quiet=1000ms",
    ),
    (
        "gaps",
        {"gaps_ms": (1300, 573), "tokens_in_gaps": False},
        "differs",
        "silence",
        "--agent-quirks sibling_quiet=1500ms",
    ),
    ("count of calls", {"calls_listed": False}, "holds", "unknown", ""),
    ("count of calls", {"calls_listed": True}, "differs", "announces", "without a wait"),
    ("calls in turn", {"asked_in_turn": True}, "differs", "after the result", "--agent-quirks sibling_cap"),
    ("instructions", {"system": "empty"}, "differs", "empty", "--agent-quirks system=message"),
    ("resumed replay", {"resume": "empty"}, "holds", "empty turn", ""),
    ("resumed replay", {"resume": "right"}, "differs", "goes on", "--agent-quirks replay=resume"),
    ("resumed replay", {"resume": "refused"}, "differs", "refused", "Nothing to set"),
    ("resumed replay", {"resume": "failed"}, "not tried", "cut", ""),
    ("shape base", {"shape_base": "right"}, "holds", "is served", ""),
    (
        "shape base",
        {"shape_base": "refused", "shape_details": "empty", "shape_both": "right"},
        "differs",
        "is refused",
        "--agent-quirks model=both",
    ),
    ("shape base", {"shape_base": "empty"}, "differs", "empty turn", "another --model"),
    ("shape base", {"shape_base": "failed"}, "not tried", "cut", ""),
    ("shape requested", {"shape_requested": "empty"}, "holds", "empty turn", ""),
    ("shape requested", {"shape_requested": "right"}, "differs", "is served", "takes both"),
    ("shape requested", {"shape_requested": "refused"}, "differs", "is refused", "never asks"),
    ("schema", {"schema": "right", "schema_refused": False}, "holds", "are taken", ""),
    ("schema", {"schema": "right", "schema_refused": True}, "differs", "are refused", "simpler ones"),
    ("schema", {"schema": "refused", "schema_refused": True}, "differs", "a simpler one too", "another --model"),
    ("unknown model", {"unknown_model": "refused", "unknown_model_code": "not_found"}, "holds", "(not_found)", ""),
    ("unknown model", {"unknown_model": "right"}, "differs", "is answered", "--strict-models"),
    ("whole variants", {"bare_id": "refused"}, "holds", "refused without one", ""),
    ("whole variants", {"bare_id": "right"}, "differs", "served without one", "Nothing to set"),
    ("thinking", {"thinking": "empty"}, "differs", "empty", "Nothing to set"),
    ("kill -9", {"kill": "right"}, "holds", "taken up", ""),
]


@pytest.mark.parametrize(("name", "facts", "state", "says", "helps"), VERDICTS)
def test_verdicts(name: str, facts: dict[str, Any], state: str, says: str, helps: str) -> None:
    verdict = judged(BY_NAME[name], facts, "")
    assert verdict.state == state
    assert says in verdict.says
    assert helps in verdict.helps
    assert bool(verdict.helps) is (state == "differs"), "what differs has an answer to it, and nothing else has"


def test_without_its_fact_a_case_was_not_tried() -> None:
    for case in CASES:
        assert judged(case, {}, PRIVATE) == CaseVerdict("not tried", PRIVATE), case.name
        assert judged(case, {}, "") == CaseVerdict("not tried", "the run did not show it"), case.name
        assert judged(case, {}, NEEDS_TEXT).helps == "", case.name


def test_whoever_asks_a_question_pays_for_it_once() -> None:
    assert cost([BY_NAME["text"]]) == cost([BY_NAME["text"], BY_NAME["end of a turn"]]) == 1
    assert cost([BY_NAME["end of a turn"]]) == 1
    assert cost([BY_NAME["shape both"]]) == 4
    assert cost([BY_NAME["quota"], BY_NAME["model lists"]]) == 0
    assert cost(CASES) == 21
