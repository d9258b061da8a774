"""The SDK's exceptions and sentences, as they were seen, and what they mean."""

import pytest

from caretway.backends.cursor_sdk.faults import fault_from_sdk, fault_from_text
from caretway.core.errors import ErrorKind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Not logged in Simulated: sign in and try again.", ErrorKind.SIGNED_OUT),
        ("[unknown] Invalid API key", ErrorKind.SIGNED_OUT),
        ("Usage limit reached Simulated: the usage limit of this plan is used up.", ErrorKind.QUOTA),
        ("Rate limit reached Simulated: too many requests in a short time.", ErrorKind.RATE_LIMITED),
        ("Conversation too long Simulated: it does not fit the model's context.", ErrorKind.CONTEXT_TOO_LONG),
        ("Unknown model Simulated: no such model is available.", ErrorKind.MODEL_UNKNOWN),
        ("Client too old Simulated: this version of the client is no longer served.", ErrorKind.UPSTREAM_DEPRECATED),
        ("[unavailable] Service unavailable", ErrorKind.UPSTREAM_DOWN),
        ("[deadline_exceeded] too slow", ErrorKind.TIMEOUT),
        ("[permission_denied] your team does not allow this", ErrorKind.FORBIDDEN),
        ("connect ECONNREFUSED 127.0.0.1:1", ErrorKind.UPSTREAM_DOWN),
        ("Network request failed", ErrorKind.UPSTREAM_DOWN),
        ("Internal error Simulated: something broke.", ErrorKind.UPSTREAM_ERROR),
        ("[whatever] new", ErrorKind.UPSTREAM_ERROR),
        ("", ErrorKind.UPSTREAM_ERROR),
    ],
)
def test_sentences(text: str, kind: ErrorKind) -> None:
    fault = fault_from_text(text)
    assert fault.kind is kind
    assert fault.hint
    assert "\n" not in fault.message


@pytest.mark.parametrize(
    ("code", "sdk_code", "kind"),
    [
        ("unauthenticated", "SDK_ERROR_CODE_UNAUTHORIZED", ErrorKind.SIGNED_OUT),
        ("resource_exhausted", "SDK_ERROR_CODE_USAGE_LIMIT_EXCEEDED", ErrorKind.QUOTA),
        ("resource_exhausted", None, ErrorKind.RATE_LIMITED),
        ("invalid_argument", "SDK_ERROR_CODE_INVALID_MODEL", ErrorKind.MODEL_UNKNOWN),
        ("not_found", "SDK_ERROR_CODE_AGENT_NOT_FOUND", ErrorKind.TURN_GONE),
        ("internal", None, ErrorKind.UPSTREAM_ERROR),
        (None, None, ErrorKind.UPSTREAM_ERROR),
    ],
)
def test_exceptions(code: str | None, sdk_code: str | None, kind: ErrorKind) -> None:
    assert fault_from_sdk("it failed", code=code, sdk_code=sdk_code, retry_after=None).kind is kind


def test_nobody_at_the_address() -> None:
    """As the SDK 1.1.0 says it, of a port that is closed and of a name that nobody has."""
    fault = fault_from_sdk("Network request failed", code="internal", sdk_code=None, retry_after=None)
    assert fault.kind is ErrorKind.UPSTREAM_DOWN and "doctor" in fault.hint
    assert "--backend agent" in fault.hint, "the SDK's package ignores proxies"


def test_how_long_to_wait() -> None:
    def wait(text: str | None) -> float | None:
        return fault_from_sdk("slow down", code=None, sdk_code=None, retry_after=text).retry_after

    assert (wait("7"), wait(None), wait("soon"), wait("9" * 400)) == (7.0, None, None, 30 * 86_400.0)
