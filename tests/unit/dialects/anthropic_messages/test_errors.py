"""The table of errors: complete, and as Anthropic's clients expect."""

import msgspec
import pytest

from caretway.core.errors import RETRYABLE, ErrorKind, GatewayError, bad_request
from caretway.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from caretway.dialects.anthropic_messages.errors import ERRORS

DOCUMENTED = {
    ErrorKind.BAD_REQUEST: (400, "invalid_request_error", "invalid_request"),
    ErrorKind.UNSUPPORTED: (400, "invalid_request_error", "unsupported"),
    ErrorKind.NOT_FOUND: (404, "not_found_error", "not_found"),
    ErrorKind.TOO_LARGE: (413, "request_too_large", "request_too_large"),
    ErrorKind.ACCESS_DENIED: (401, "authentication_error", "invalid_api_key"),
    ErrorKind.SIGNED_OUT: (401, "authentication_error", "not_authenticated"),
    ErrorKind.FORBIDDEN: (403, "permission_error", "forbidden"),
    ErrorKind.REFUSED: (403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: (400, "invalid_request_error", "model_not_found"),
    ErrorKind.CONTEXT_TOO_LONG: (400, "invalid_request_error", "context_length_exceeded"),
    ErrorKind.QUOTA: (402, "billing_error", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: (429, "rate_limit_error", "rate_limited"),
    ErrorKind.OVERLOADED: (529, "overloaded_error", "overloaded"),
    ErrorKind.UPSTREAM_DOWN: (503, "overloaded_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_DEPRECATED: (502, "api_error", "upstream_deprecated"),
    ErrorKind.TIMEOUT: (504, "timeout_error", "upstream_timeout"),
    ErrorKind.INTERNAL: (500, "api_error", "server_error"),
}


def test_every_kind_has_a_row() -> None:
    assert set(ERRORS) == set(ErrorKind)


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_body(kind: ErrorKind) -> None:
    status, answer = ANTHROPIC_MESSAGES.error(GatewayError(kind, "What happened.", hint="What to type."))
    body = msgspec.json.decode(answer)
    assert body.keys() == {"type", "error"}
    assert body["type"] == "error"
    assert body["error"].keys() == {"type", "message", "details"}
    assert body["error"]["details"]["should_retry"] is (kind in RETRYABLE)
    assert body["error"]["message"].endswith("What happened. What to type.")
    assert 400 <= status < 600
    if kind in DOCUMENTED:
        assert (status, body["error"]["type"], body["error"]["details"]["error_code"]) == DOCUMENTED[kind]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("The conversation does not fit.", "prompt is too long: The conversation does not fit."),
        ("Prompt is too long.", "Prompt is too long."),
    ],
)
def test_the_words_by_which_claude_code_knows_it(message: str, expected: str) -> None:
    _, answer = ANTHROPIC_MESSAGES.error(GatewayError(ErrorKind.CONTEXT_TOO_LONG, message))
    assert msgspec.json.decode(answer)["error"]["message"] == expected


def test_an_exact_code_and_the_field_are_in_the_details() -> None:
    _, answer = ANTHROPIC_MESSAGES.error(bad_request("No.", param="messages[2].content", code="invalid_value"))
    error = msgspec.json.decode(answer)["error"]
    assert error["details"] == {
        "error_code": "invalid_value",
        "should_retry": False,
        "param": "messages[2].content",
    }
