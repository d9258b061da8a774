"""The SDK's exceptions, as they were seen, and what they mean."""

import pytest

from caretway.backends.sdk.faults import fault_of, sdk_unfit
from caretway.backends.sdk.frames import Frame
from caretway.core.errors import ErrorKind


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"message": "Invalid API key", "http": 401, "name": "AuthenticationError"}, ErrorKind.SIGNED_OUT),
        ({"message": "[unknown] Invalid API key"}, ErrorKind.SIGNED_OUT),
        ({"message": "no", "http": 403}, ErrorKind.FORBIDDEN),
        ({"message": "no", "code": "usage_limit_exceeded", "http": 429}, ErrorKind.QUOTA),
        ({"message": "no", "http": 429}, ErrorKind.RATE_LIMITED),
        ({"message": "Cannot use this model: nope", "name": "ConfigurationError"}, ErrorKind.MODEL_UNKNOWN),
        ({"message": "no", "code": "invalid_model"}, ErrorKind.MODEL_UNKNOWN),
        ({"message": "[unavailable] Service unavailable"}, ErrorKind.UPSTREAM_DOWN),
        ({"message": "[deadline_exceeded] too slow"}, ErrorKind.TIMEOUT),
        ({"message": "[permission_denied] your team does not allow this"}, ErrorKind.FORBIDDEN),
        ({"message": "connect ECONNREFUSED 127.0.0.1:1"}, ErrorKind.UPSTREAM_DOWN),
        ({"message": "Network request failed", "name": "NetworkError"}, ErrorKind.UPSTREAM_DOWN),
        ({"message": "Agent busy", "code": "agent_busy"}, ErrorKind.TURN_GONE),
        ({"message": "[whatever] new\nlines"}, ErrorKind.UPSTREAM_ERROR),
        ({"message": ""}, ErrorKind.UPSTREAM_ERROR),
    ],
)
def test_exceptions(told: dict[str, object], kind: ErrorKind) -> None:
    fault = fault_of(Frame("over", thrown=True, **told))  # type: ignore[arg-type]  # a table of fields
    assert fault.kind is kind
    assert "\n" not in fault.message
    assert fault.hint or kind is ErrorKind.TURN_GONE


def test_an_sdk_that_ignores_what_it_is_asked() -> None:
    unfit = sdk_unfit("systemPrompt (taken as it is)")
    assert unfit.kind is ErrorKind.UNSUPPORTED
    assert "systemPrompt" in unfit.message and "einstall" in unfit.hint
