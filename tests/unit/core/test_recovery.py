"""The table of everything that is tried again: what was lost, and what is done about it."""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caretway.core.recovery import (
    RETRY_BUDGET,
    TABLE,
    Fact,
    Loss,
    Remedy,
    Situation,
    in_words,
    part_of,
    remedy,
)

HAND_OVER, FRESH, GIVE_UP = Remedy.HAND_OVER, Remedy.FRESH_RUN, Remedy.GIVE_UP
SAME, ELSEWHERE = Remedy.SAME_RUN, Remedy.OTHER_CONNECTION
L, F = Loss, Fact
SAME_RUNS = {SAME, ELSEWHERE, Remedy.OTHER_HOST, Remedy.NEW_TOKEN, Remedy.OTHER_NAME, Remedy.SIMPLER_SCHEMAS}


def situation(loss: Loss, *facts: Fact, runs: int = 0, budget: int = RETRY_BUDGET) -> Situation:
    return Situation(loss, frozenset(facts), runs, budget)


ROWS: Final[list[tuple[Situation, Remedy]]] = [
    # the first request of a turn
    (situation(L.CUT), ELSEWHERE),
    (situation(L.CUT, runs=1), ELSEWHERE),
    (situation(L.CUT, runs=2), GIVE_UP),
    (situation(L.CUT, F.SEEN), ELSEWHERE),
    (situation(L.CUT, F.SEEN, F.UNRECORDED), GIVE_UP),
    (situation(L.SILENT), ELSEWHERE),
    (situation(L.SILENT, F.WAITED, runs=1), GIVE_UP),
    (situation(L.STALLED), ELSEWHERE),
    (situation(L.STALLED, F.WAITED), GIVE_UP),
    (situation(L.REFUSED), SAME),
    (situation(L.FINAL), GIVE_UP),
    (situation(L.FINAL, F.SEEN, F.CALLS), GIVE_UP),
    # what another attempt can change
    (situation(L.TOKEN), Remedy.NEW_TOKEN),
    (situation(L.TOKEN, F.NONE_LEFT), GIVE_UP),
    (situation(L.TOKEN, F.SEEN), GIVE_UP),
    (situation(L.TOKEN, F.UNRECORDED), GIVE_UP),
    (situation(L.HOST), Remedy.OTHER_HOST),
    (situation(L.HOST, F.NONE_LEFT), GIVE_UP),
    (situation(L.SHAPE), Remedy.OTHER_NAME),
    (situation(L.SHAPE, runs=2), GIVE_UP),
    (situation(L.SHAPE, F.RESULTS, runs=1), Remedy.OTHER_NAME),
    (situation(L.SCHEMA), Remedy.SIMPLER_SCHEMAS),
    (situation(L.SCHEMA, F.NONE_LEFT), GIVE_UP),
    (situation(L.SYSTEM), Remedy.SYSTEM_AS_TEXT),
    (situation(L.SYSTEM, F.SEEN), GIVE_UP),
    # a refusal that may mean a spent plan
    (situation(L.FINAL, F.USAGE_OPEN), Remedy.ASK_USAGE),
    (situation(L.STALE, F.USAGE_OPEN, runs=2), Remedy.ASK_USAGE),
    (situation(L.STALE, F.SPENT), GIVE_UP),
    # results were given
    (situation(L.CUT, F.RESULTS), ELSEWHERE),
    (situation(L.CUT, F.RESULTS, runs=1), FRESH),
    (situation(L.CUT, F.RESULTS, runs=2), GIVE_UP),
    (situation(L.CUT, F.RESULTS, F.SEEN, runs=1), ELSEWHERE),
    (situation(L.STALLED, F.RESULTS), FRESH),
    (situation(L.STALLED, F.RESULTS, F.SEEN), ELSEWHERE),
    (situation(L.STALLED, F.RESULTS, F.WORKED), ELSEWHERE),
    # the model takes another way, or a part of its memory is gone
    (situation(L.DIVERGED), FRESH),
    (situation(L.DIVERGED, F.SEEN), GIVE_UP),
    (situation(L.DIVERGED, F.WORKED), GIVE_UP),
    (situation(L.DIVERGED, runs=2), GIVE_UP),
    (situation(L.INCOMPLETE), FRESH),
    (situation(L.INCOMPLETE, F.SEEN), GIVE_UP),
    (situation(L.STALE), FRESH),
    (situation(L.STALE, runs=1), FRESH),
    (situation(L.STALE, runs=2), GIVE_UP),
    (situation(L.STALE, F.RESULTS), FRESH),
    (situation(L.STALE, F.WORKED), GIVE_UP),
    (situation(L.STALE, F.SEEN), GIVE_UP),
    (situation(L.TOOLS), FRESH),
    # a stream without a message
    (situation(L.UNHEARD), Remedy.OTHER_HOST),
    (situation(L.UNHEARD, F.NONE_LEFT), ELSEWHERE),
    (situation(L.UNHEARD, F.NONE_LEFT, F.EMPTY_BEFORE, runs=1), GIVE_UP),
    (situation(L.UNHEARD, F.NONE_LEFT, runs=1), ELSEWHERE),
    (situation(L.UNHEARD, F.NONE_LEFT, F.RESULTS, runs=1), FRESH),
    (situation(L.UNHEARD, F.NONE_LEFT, runs=2), GIVE_UP),
    (situation(L.CUT, F.EMPTY_BEFORE, runs=1), ELSEWHERE),
    # the client has calls
    (situation(L.CUT, F.SEEN, F.CALLS), HAND_OVER),
    (situation(L.STALLED, F.SEEN, F.CALLS, runs=2), HAND_OVER),
    (situation(L.CUT, F.SEEN, F.CALLS, F.HALF_CALL), ELSEWHERE),
    (situation(L.DIVERGED, F.SEEN, F.CALLS, F.HALF_CALL), GIVE_UP),
    # a budget of the owner's own
    (situation(L.CUT, budget=0), GIVE_UP),
    # a backend that cannot continue a run
    (situation(L.PROGRAM, F.NO_RESUME), Remedy.NEW_RUN),
    (situation(L.PROGRAM, F.NO_RESUME, F.SEEN), GIVE_UP),
    (situation(L.PROGRAM, F.NO_RESUME, F.IN_CHAT), FRESH),
    (situation(L.PROGRAM, F.NO_RESUME, runs=2), GIVE_UP),
    (situation(L.PROGRAM, F.NO_RESUME, F.SEEN, runs=2), GIVE_UP),
    (situation(L.CUT, F.NO_RESUME), Remedy.NEW_RUN),
    (situation(L.TOKEN, F.NO_RESUME), Remedy.NEW_TOKEN),
    # a request
    (situation(L.GONE), FRESH),
    (situation(L.GONE, F.FIXED), GIVE_UP),
    (situation(L.GONE, F.WORKED), GIVE_UP),
    (situation(L.GONE, F.SEEN), GIVE_UP),
    (situation(L.GONE, runs=2), GIVE_UP),
    (situation(L.MODEL), Remedy.NEXT_MODEL),
    (situation(L.MODEL, runs=2), Remedy.NEXT_MODEL),
    (situation(L.MODEL, F.NONE_LEFT), GIVE_UP),
    (situation(L.MODEL, F.SEEN), GIVE_UP),
    (situation(L.NO_CALL), FRESH),
    (situation(L.NO_CALL, F.ASKED_TWICE), GIVE_UP),
    (situation(L.NO_CALL, runs=2), GIVE_UP),
    (situation(L.WRONG_CALL, F.SEEN), Remedy.CORRECTION),
    (situation(L.WRONG_CALL, F.ASKED_TWICE), GIVE_UP),
    # a message
    (situation(L.UNANSWERED), GIVE_UP),
    (situation(L.UNANSWERED, F.KEPT), Remedy.RESEND),
    (situation(L.UNANSWERED, F.KEPT, F.OPENS_RUN), GIVE_UP),
    (situation(L.UNANSWERED, F.KEPT, F.ANSWERED), GIVE_UP),
    (situation(L.UNANSWERED, F.UNPROCESSED), Remedy.RESEND),
    (situation(L.UNANSWERED, F.UNPROCESSED, F.RESENT), GIVE_UP),
]


def spelled(case: object) -> str:
    """The same in every process: sets of enums are not in one order."""
    if not isinstance(case, Situation):
        return str(case)
    return f"{case.loss.name} {' '.join(sorted(fact.name for fact in case.facts))} {case.runs}/{case.budget}"


@pytest.mark.parametrize(("case", "wanted"), ROWS, ids=spelled)
def test_the_remedy(case: Situation, wanted: Remedy) -> None:
    step = remedy(case)
    assert step.remedy is wanted
    assert step.reason


def test_every_row_is_reached() -> None:
    reached = {id(remedy(case)) for case, _ in ROWS}
    missed = [(part, row.reason) for part, rows in TABLE.items() for row in rows if id(row) not in reached]
    assert missed == []


def test_no_row_is_twice() -> None:
    rows = [(part, row.losses, row.given, row.unless) for part, rows in TABLE.items() for row in rows]
    assert len(rows) == len(set(rows))


SITUATIONS = st.builds(
    Situation, st.sampled_from(Loss), st.frozensets(st.sampled_from(Fact)), st.integers(0, 4), st.integers(0, 3)
)


@settings(max_examples=400)
@given(SITUATIONS)
def test_what_holds_in_every_situation(case: Situation) -> None:
    step, facts = remedy(case), case.facts
    seen, whole_calls = Fact.SEEN in facts, Fact.CALLS in facts and Fact.HALF_CALL not in facts
    of_run = part_of(case.loss) == next(iter(TABLE))
    assert step.reason
    if step.remedy.opens_run:
        assert case.runs < case.budget, "the budget is for all reasons together"
    if step.remedy in (FRESH, Remedy.NEW_RUN, Remedy.NEXT_MODEL):
        assert not (seen and case.loss in (L.GONE, L.MODEL, L.NO_CALL)), "what the client has is not told otherwise"
        if of_run and Fact.NO_RESUME not in facts:
            assert not seen and Fact.WORKED not in facts, "nothing that ran here runs again"
    if step.remedy in (*SAME_RUNS, FRESH, Remedy.NEW_RUN) and of_run:
        assert not whole_calls, "whole calls stay with the client, and are shown once"
    if Fact.HALF_CALL in facts:
        assert step.remedy is not HAND_OVER, "half a call cannot be run"
    if Fact.FIXED in facts and not of_run and case.loss is not L.UNANSWERED:
        assert step.remedy is GIVE_UP


LEARNED: Final[dict[Remedy, list[frozenset[Fact]]]] = {
    Remedy.ASK_USAGE: [frozenset({F.SPENT}), frozenset()],
    Remedy.OTHER_HOST: [frozenset({F.NONE_LEFT}), frozenset()],
    Remedy.SIMPLER_SCHEMAS: [frozenset({F.NONE_LEFT}), frozenset()],
    Remedy.NEW_TOKEN: [frozenset({F.NONE_LEFT})],
    Remedy.SYSTEM_AS_TEXT: [frozenset({F.NONE_LEFT})],
    Remedy.NEXT_MODEL: [frozenset({F.NONE_LEFT})],
    Remedy.RESEND: [frozenset({F.RESENT})],
    Remedy.CORRECTION: [frozenset({F.ASKED_TWICE})],
}
"""What the next situation knows more than the one before, after a remedy did not help."""


@settings(max_examples=60)
@given(st.lists(SITUATIONS, min_size=24, max_size=24), st.data())
def test_it_ends_inside_the_budget_whatever_happens(losses: list[Situation], data: st.DataObject) -> None:
    """A request without progress, to which one thing after the other happens: what was learned stays known."""
    learned: frozenset[Fact] = frozenset()
    runs = free = 0
    for case in losses:
        facts = (case.facts - {F.USAGE_OPEN} if F.SPENT in learned or free else case.facts) | learned
        step = remedy(Situation(case.loss, facts, runs))
        if step.remedy in (GIVE_UP, HAND_OVER):
            break
        learned |= data.draw(st.sampled_from(LEARNED.get(step.remedy, [frozenset()])))
        runs += step.remedy.opens_run
        free += not step.remedy.opens_run
        assert runs <= RETRY_BUDGET
        assert free <= 8, "each free remedy is known to have failed after it was tried"


def test_a_reason_is_for_people() -> None:
    for rows in TABLE.values():
        for row in rows:
            assert row.reason and row.remedy.price.value
    assert all(loss.words for loss in Loss)


def test_labels_of_another_version_stay_as_they_are() -> None:
    assert in_words([("other connection", "cut"), ("same again", "unknown")]) == [
        "other connection, because the connection to Cursor broke: a new run from the last checkpoint",
        "same again, because unknown",
    ]
