"""What the page remembers of the names that clients asked for."""

from msgspec.structs import replace

from caretway.core.records import RefusedRequest, TurnRecord
from caretway.dashboard.notes import MAX_ERRORS, PageNotes


def ended(asked: str, variant: str, error: str = "") -> TurnRecord:
    return TurnRecord(
        request_id="r",
        dialect="openai_chat",
        backend="agent",
        model=variant,
        session="fresh",
        reason="first message",
        stream=False,
        outcome="model_unknown" if error else "end",
        asked=asked,
        variant=variant,
        error=error,
    )


def test_a_name_that_was_refused_got_no_model() -> None:
    notes = PageNotes()
    notes.response_ended(ended("composer-2.5", "composer-2.5"))
    notes.response_ended(ended("gpt-9", "gpt-9", "model_unknown"))
    refused = RefusedRequest(
        "r", "POST", "/v1/messages", 400, "model_unknown", "", "no such model", 1.0, model="opus-9"
    )
    notes.request_refused(refused)
    found = {one.asked: (one.taken, one.refused, one.count) for one in notes.requested}
    assert found == {"composer-2.5": ("composer-2.5", False, 1), "gpt-9": ("", True, 1), "opus-9": ("", True, 1)}


def test_why_a_request_failed_is_found_by_its_id() -> None:
    notes = PageNotes()
    for number in range(MAX_ERRORS + 1):
        notes.response_ended(replace(ended("m", "m", "quota"), request_id=f"r{number}", conversation=f"c{number}"))
    assert "r0" not in notes.errors and len(notes.errors) == MAX_ERRORS
    last = notes.errors[f"r{MAX_ERRORS}"]
    assert (last.conversation, last.code) == (f"c{MAX_ERRORS}", "quota") and notes.last_error is last


def test_recoveries_are_in_words_with_their_cost_and_failures_are_none() -> None:
    notes = PageNotes()
    lost = (("fresh run", "stale"), ("next model", "quota"))
    notes.response_ended(replace(ended("m", "m", "upstream_down"), recoveries=lost))
    assert not notes.recoveries and notes.last_error is not None
    notes.response_ended(replace(ended("m", "m"), recoveries=lost))
    assert [(one.rung, one.cause, one.price) for one in notes.recoveries] == [
        ("fresh run", "Cursor refused to continue the stored conversation", "a new run with the whole history"),
        ("next model", "Cursor refused the model (quota)", "nothing for the refused run"),
    ]
