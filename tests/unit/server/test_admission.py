"""What one caller may ask for: a rate, and a number at a time."""

import itertools

from caretway.core.errors import ErrorKind, GatewayError
from caretway.server.admission import Admission, CallerLimits


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(admission: Admission, caller: str) -> GatewayError | None:
    try:
        admission.ask(caller)
        admission.enter(caller)
    except GatewayError as error:
        return error
    admission.leave(caller)
    return None


def test_a_bucket_fills_up_again() -> None:
    clock = Clock()
    admission = Admission(CallerLimits(concurrent=9, per_minute=30), clock)
    assert [refused(admission, "a") for _ in range(30)] == [None] * 30
    error = refused(admission, "a")
    assert error is not None
    assert (error.kind, error.code, error.retry_after) == (ErrorKind.RATE_LIMITED, "too_many_requests", 2.0)
    assert refused(admission, "b") is None
    clock.now += 2.0
    assert refused(admission, "a") is None
    assert refused(admission, "a") is not None
    clock.now += 3600
    assert [refused(admission, "a") is None for _ in range(31)] == [True] * 30 + [False]


def test_what_is_being_made_is_counted_and_given_back() -> None:
    admission = Admission(CallerLimits(concurrent=2, per_minute=1000), Clock())
    admission.ask("a")
    admission.enter("a")
    admission.ask("a")
    admission.enter("a")
    error = refused(admission, "a")
    assert error is not None
    assert error.code == "too_many_concurrent_requests"
    assert refused(admission, "b") is None
    admission.leave("a")
    assert refused(admission, "a") is None


def test_who_has_no_key_is_not_counted() -> None:
    admission = Admission(CallerLimits(concurrent=1, per_minute=1), Clock())
    assert not any(refused(admission, "") for _ in itertools.repeat(None, 50))
