"""The table of errors: complete, and as documented."""

import msgspec
import pytest

from caretway.core.errors import RETRYABLE, ErrorKind, GatewayError, bad_request
from caretway.dialects.openai_chat import OPENAI_CHAT
from caretway.dialects.openai_chat.errors import ERRORS

DOCUMENTED = {
    ErrorKind.BAD_REQUEST: (400, "invalid_request_error", "invalid_request"),
    ErrorKind.REFUSED: (403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: (400, "invalid_request_error", "model_not_found"),
    ErrorKind.CONTEXT_TOO_LONG: (400, "invalid_request_error", "context_length_exceeded"),
    ErrorKind.SIGNED_OUT: (401, "authentication_error", "not_authenticated"),
    ErrorKind.ACCESS_DENIED: (401, "authentication_error", "invalid_api_key"),
    ErrorKind.QUOTA: (402, "insufficient_quota", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: (429, "rate_limit_error", "rate_limited"),
    ErrorKind.UPSTREAM_DOWN: (503, "api_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_DEPRECATED: (502, "api_error", "upstream_deprecated"),
    ErrorKind.TIMEOUT: (504, "api_error", "upstream_timeout"),
    ErrorKind.TOOL_LOOP: (502, "api_error", "tool_loop_detected"),
    ErrorKind.INTERNAL: (500, "internal_error", "server_error"),
}


def test_every_kind_has_a_row() -> None:
    assert set(ERRORS) == set(ErrorKind)


@pytest.mark.seed("C01")
@pytest.mark.parametrize("kind", list(ErrorKind))
def test_body(kind: ErrorKind) -> None:
    status, body = OPENAI_CHAT.error(GatewayError(kind, "What happened.", hint="What to type."))
    error = msgspec.json.decode(body)["error"]
    assert set(error) == {"message", "type", "code", "param", "status", "should_retry"}
    assert error["message"] == "What happened. What to type."
    assert error["status"] == status
    assert error["should_retry"] is (kind in RETRYABLE)
    assert 400 <= status < 600
    if kind in DOCUMENTED:
        assert (status, error["type"], error["code"]) == DOCUMENTED[kind]


def test_an_exact_code_and_the_field_win() -> None:
    status, body = OPENAI_CHAT.error(bad_request("No.", param="messages[2].content[0].type", code="invalid_value"))
    error = msgspec.json.decode(body)["error"]
    assert (status, error["code"], error["param"]) == (400, "invalid_value", "messages[2].content[0].type")
