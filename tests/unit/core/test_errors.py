"""GatewayError behaves as an exception and as a value."""

import copy
import pickle

import pytest

from caretway.core.errors import RETRYABLE, ErrorKind, GatewayError, bad_request
from caretway.core.events import TurnFailed

FULL = GatewayError(ErrorKind.RATE_LIMITED, "Too fast.", "Wait a little.", "model", "slow_down", 1.5)


def test_what_it_says() -> None:
    assert str(FULL) == "Too fast. Wait a little."
    assert str(GatewayError(ErrorKind.INTERNAL, "Broke.")) == "Broke."
    assert str(GatewayError(ErrorKind.INTERNAL, "Broke (twice.)", hint="Stop.")) == "Broke (twice.) Stop."
    assert (
        str(GatewayError(ErrorKind.INTERNAL, "Broke. (Not tried again.)", "Wait.")) == "Broke. (Not tried again.) Wait."
    )
    assert str(GatewayError(ErrorKind.INTERNAL, "Broke (badly)", "Wait.")) == "Broke (badly). Wait."
    assert FULL.args == ("Too fast.",)


def test_bad_request() -> None:
    error = bad_request("No messages.", param="messages", code="missing_messages", hint="Add one.")
    assert error == GatewayError(ErrorKind.BAD_REQUEST, "No messages.", "Add one.", "messages", "missing_messages")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_it_can_be_copied(duplicate: object) -> None:
    assert callable(duplicate)
    twin = duplicate(FULL)
    assert twin == FULL
    assert twin is not FULL
    assert str(twin) == str(FULL)


def test_equal_values_hash_equally() -> None:
    assert hash(copy.copy(FULL)) == hash(FULL)
    assert len({TurnFailed(FULL), TurnFailed(copy.copy(FULL))}) == 1


def test_it_is_raised_with_its_cause() -> None:
    cause = OSError("no route")

    def fail() -> None:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, "Cursor cannot be reached.") from cause

    with pytest.raises(GatewayError) as caught:
        fail()
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("kind", ErrorKind)
def test_retrying_helps_only_where_nothing_has_to_change(kind: ErrorKind) -> None:
    someone_must_act = {
        ErrorKind.BAD_REQUEST,
        ErrorKind.UNSUPPORTED,
        ErrorKind.NOT_FOUND,
        ErrorKind.WRONG_METHOD,
        ErrorKind.WRONG_PROTOCOL,
        ErrorKind.TOO_LARGE,
        ErrorKind.HEAD_TOO_LARGE,
        ErrorKind.ACCESS_DENIED,
        ErrorKind.SIGNED_OUT,
        ErrorKind.FORBIDDEN,
        ErrorKind.REFUSED,
        ErrorKind.MODEL_UNKNOWN,
        ErrorKind.CONTEXT_TOO_LONG,
        ErrorKind.QUOTA,
        ErrorKind.TOOL_LOOP,
        ErrorKind.TURN_GONE,
        ErrorKind.UPSTREAM_PROTOCOL,
        ErrorKind.UPSTREAM_DEPRECATED,
        ErrorKind.CANCELLED,
        ErrorKind.INTERNAL,
    }
    assert (kind in RETRYABLE) is (kind not in someone_must_act)
