"""The ladder of recovery as a table: what was lost, and what is done about it."""

from itertools import product

import pytest

from caretway.core.recovery import Cause, Loss, Rung, next_step

HAND_OVER, SAME, FRESH, GIVE_UP = Rung.HAND_OVER, Rung.SAME_RUN, Rung.FRESH_RUN, Rung.GIVE_UP

TABLE = [
    # the first request of a turn
    (Loss(Cause.CUT), SAME),
    (Loss(Cause.CUT, reopened=1), SAME),
    (Loss(Cause.CUT, reopened=2), GIVE_UP),
    (Loss(Cause.CUT, visible=True), SAME),
    (Loss(Cause.CUT, visible=True, repeatable=False), GIVE_UP),
    (Loss(Cause.SILENT), SAME),
    (Loss(Cause.SILENT, reopened=1, waited=True), GIVE_UP),
    (Loss(Cause.STALLED), SAME),
    (Loss(Cause.STALLED, waited=True), GIVE_UP),
    (Loss(Cause.REFUSED), SAME),
    (Loss(Cause.TOKEN), SAME),
    # results were given
    (Loss(Cause.CUT, results_given=True), SAME),
    (Loss(Cause.CUT, results_given=True, reopened=1), FRESH),
    (Loss(Cause.CUT, results_given=True, reopened=2), GIVE_UP),
    (Loss(Cause.CUT, results_given=True, reopened=1, visible=True), SAME),
    (Loss(Cause.STALLED, results_given=True), FRESH),
    (Loss(Cause.STALLED, results_given=True, visible=True), SAME),
    (Loss(Cause.STALLED, results_given=True, worked_here=True), SAME),
    # the model takes another way, or a part of its memory is gone
    (Loss(Cause.DIVERGED), FRESH),
    (Loss(Cause.DIVERGED, visible=True), GIVE_UP),
    (Loss(Cause.DIVERGED, worked_here=True), GIVE_UP),
    (Loss(Cause.DIVERGED, reopened=2), GIVE_UP),
    (Loss(Cause.INCOMPLETE), FRESH),
    (Loss(Cause.INCOMPLETE, visible=True), GIVE_UP),
    (Loss(Cause.STALE), FRESH),
    (Loss(Cause.STALE, reopened=1), FRESH),
    (Loss(Cause.STALE, reopened=2), GIVE_UP),
    (Loss(Cause.STALE, results_given=True), FRESH),
    (Loss(Cause.STALE, worked_here=True), GIVE_UP),
    (Loss(Cause.STALE, visible=True), GIVE_UP),
    # a stream without a message
    (Loss(Cause.UNHEARD), SAME),
    (Loss(Cause.UNHEARD, reopened=1, before=Cause.UNHEARD), GIVE_UP),
    (Loss(Cause.UNHEARD, reopened=1, before=Cause.CUT), SAME),
    (Loss(Cause.UNHEARD, results_given=True, reopened=1, before=Cause.CUT), FRESH),
    (Loss(Cause.UNHEARD, reopened=2, before=Cause.CUT), GIVE_UP),
    (Loss(Cause.CUT, reopened=1, before=Cause.UNHEARD), SAME),
    # the client has calls
    (Loss(Cause.CUT, visible=True, calls_out=True), HAND_OVER),
    (Loss(Cause.STALLED, visible=True, calls_out=True, reopened=2), HAND_OVER),
    (Loss(Cause.CUT, visible=True, calls_out=True, call_open=True), SAME),
    (Loss(Cause.DIVERGED, visible=True, calls_out=True, call_open=True), GIVE_UP),
    # a budget of the owner's own
    (Loss(Cause.CUT, budget=0), GIVE_UP),
]


@pytest.mark.parametrize(("loss", "rung"), TABLE, ids=str)
def test_the_next_rung(loss: Loss, rung: Rung) -> None:
    step = next_step(loss)
    assert step.rung is rung
    assert step.reason


FLAGS = list(product((False, True), repeat=7))


@pytest.mark.parametrize("cause", Cause)
def test_what_holds_in_every_situation(cause: Cause) -> None:
    for reopened, flags in product(range(4), FLAGS):
        visible, calls_out, call_open, results, worked, repeatable, waited = flags
        loss = Loss(cause, reopened, 2, visible, calls_out, call_open, results, worked, repeatable, waited)
        rung = next_step(loss).rung
        if rung is FRESH:
            assert not visible, "nothing that the client has may be told once more, otherwise"
            assert not worked, "nothing that ran here may run once more"
        if rung in (SAME, FRESH):
            assert reopened < 2, "the budget is for all reasons together"
            assert not calls_out or call_open, "whole calls stay with the client"
        if call_open:
            assert rung is not HAND_OVER, "half a call cannot be run"


def test_it_ends_whatever_happens() -> None:
    for cause, flags in product(Cause, FLAGS):
        visible, calls_out, call_open, results, worked, repeatable, waited = flags
        rungs = [
            next_step(Loss(cause, reopened, 2, visible, calls_out, call_open, results, worked, repeatable, waited)).rung
            for reopened in range(3)
        ]
        assert rungs[-1] in (GIVE_UP, HAND_OVER)
