"""Cursor's refusals -> GatewayError."""

import pytest

from caretway.core.errors import LONGEST_WAIT_S, MAX_SAID, ErrorKind
from caretway.cursor.transport.faults import (
    BLOB_NOT_FOUND,
    BY_CODE,
    BY_NAME,
    BY_STATUS,
    HINTS,
    NEVER_RETRIED,
    fault_from_connect,
    fault_from_status,
    retry_after,
    retryable,
)
from caretway.cursor.transport.refusals import AskedRun, call_hint
from caretway.cursor.wire.envelope import ConnectError, write_unary
from caretway.cursor.wire.messages import ai

K = ErrorKind

CONNECT = [
    # the enum decides, whatever code and words say
    (ConnectError("resource_exhausted", error=9), K.QUOTA),
    (ConnectError("resource_exhausted", error=44, message="rate limit"), K.QUOTA),
    (ConnectError("resource_exhausted", error=50, title="Slow down"), K.RATE_LIMITED),
    (ConnectError("resource_exhausted", error=43), K.CONTEXT_TOO_LONG),
    (ConnectError("unauthenticated", error=2), K.SIGNED_OUT),
    (ConnectError("internal", error=12), K.SIGNED_OUT),
    (ConnectError("invalid_argument", error=5), K.MODEL_UNKNOWN),
    (ConnectError("invalid_argument", error=61), K.MODEL_UNKNOWN),
    (ConnectError("permission_denied", error=58), K.FORBIDDEN),
    (ConnectError("failed_precondition", error=60), K.FORBIDDEN),
    (ConnectError("failed_precondition", error=64), K.FORBIDDEN),
    (ConnectError("failed_precondition", error=30), K.UPSTREAM_DEPRECATED),
    (ConnectError("unimplemented", error=40), K.UPSTREAM_DEPRECATED),
    (ConnectError("unknown", error=25), K.TIMEOUT),
    (ConnectError("unknown", error=57), K.UPSTREAM_ERROR),
    (ConnectError("invalid_argument", error=36), K.BAD_REQUEST),
    # then the code
    (ConnectError("unauthenticated", "whatever"), K.SIGNED_OUT),
    (ConnectError("permission_denied", "usage limit"), K.FORBIDDEN),
    (ConnectError("unavailable", "model not found"), K.UPSTREAM_DOWN),
    (ConnectError("deadline_exceeded"), K.TIMEOUT),
    (ConnectError("internal", "boom"), K.UPSTREAM_ERROR),
    (ConnectError("unknown"), K.UPSTREAM_ERROR),
    (ConnectError("canceled"), K.CANCELLED),
    (ConnectError("invalid_argument", "Conversation state is required"), K.BAD_REQUEST),
    (ConnectError("resource_exhausted"), K.RATE_LIMITED),
    (ConnectError("resource_exhausted", "Error"), K.RATE_LIMITED),
    (ConnectError("no_such_code", "boom"), K.UPSTREAM_ERROR),
    # then the words, where the code is vague
    (ConnectError("resource_exhausted", "You've hit your usage limit"), K.QUOTA),
    (ConnectError("resource_exhausted", "Too many requests"), K.RATE_LIMITED),
    (ConnectError("resource_exhausted", "prompt is too long: 250000 tokens"), K.CONTEXT_TOO_LONG),
    (ConnectError("resource_exhausted", "quota for this context window used up"), K.QUOTA),
    (ConnectError("invalid_argument", "Unknown model: gpt-99"), K.MODEL_UNKNOWN),
    (ConnectError("internal", error=29, detail="Cannot use this model: x"), K.MODEL_UNKNOWN),
    (ConnectError("resource_exhausted", error=41, title="Usage limit reached"), K.QUOTA),
    (ConnectError("unknown", "Not logged in"), K.SIGNED_OUT),
    (ConnectError("invalid_argument", "the author of the file is unknown"), K.BAD_REQUEST),
]


@pytest.mark.parametrize(("error", "kind"), CONNECT)
def test_connect_errors(error: ConnectError, kind: ErrorKind) -> None:
    fault = fault_from_connect(error)
    assert fault.kind is kind
    assert fault.hint == (call_hint(error) or HINTS[kind])
    assert fault.message.startswith("Cursor")


def test_the_message_carries_what_cursor_said_and_its_name() -> None:
    error = ConnectError("invalid_argument", "Error", error=5, title="Bad model", detail="No model x.")
    assert fault_from_connect(error).message == "Cursor: Bad model: No model x. (BAD_MODEL_NAME)"
    assert fault_from_connect(ConnectError("internal")).message == "Cursor answered internal"
    same = ConnectError("internal", "boom", title="boom")
    assert fault_from_connect(same).message == "Cursor: boom (internal)"


def test_a_prompt_that_fills_the_window_decides_the_case_that_cursor_leaves_open() -> None:
    full = AskedRun(fills_window=True)
    for message, kind in [("", K.CONTEXT_TOO_LONG), ("usage limit", K.QUOTA), ("rate limit", K.RATE_LIMITED)]:
        assert fault_from_connect(ConnectError("resource_exhausted", message), full).kind is kind
    assert fault_from_connect(ConnectError("internal"), full).kind is K.UPSTREAM_ERROR


def test_a_missing_blob_has_a_code_of_its_own() -> None:
    assert fault_from_connect(ConnectError("internal", "Blob not found")).code == BLOB_NOT_FOUND
    assert fault_from_connect(ConnectError("internal", "not found")).code is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1500", 1.5),
        ("0", 0.0),
        ("soon", None),
        ("-5", None),
        ("inf", None),
        ("nan", None),
        ("", None),
        ("1e300", LONGEST_WAIT_S),
    ],
)
def test_cursors_own_waiting_time(text: str, seconds: float | None) -> None:
    error = ConnectError("resource_exhausted", error=50, info=(("retryAfterMs", text),))
    assert fault_from_connect(error).retry_after == seconds


def test_every_name_is_one_of_cursors_and_every_kind_has_a_hint() -> None:
    names = {name.removeprefix("ERROR_") for name in ai.ErrorDetails.Error.keys()}  # noqa: SIM118  # not a dict
    assert set(BY_NAME) <= names
    assert names - set(BY_NAME) == {"UNSPECIFIED", "CUSTOM_MESSAGE", "CUSTOM", "NOT_FOUND", "RESOURCE_EXHAUSTED"}
    assert {*BY_NAME.values(), *BY_CODE.values(), *BY_STATUS.values()} <= set(HINTS)
    assert "caretway login" in HINTS[K.SIGNED_OUT] and "CURSOR_API_KEY" in HINTS[K.SIGNED_OUT]


STATUSES = [
    (400, b"", K.UPSTREAM_PROTOCOL),
    (401, b"", K.SIGNED_OUT),
    (403, b"<html>", K.FORBIDDEN),
    (404, b"", K.UPSTREAM_PROTOCOL),
    (408, b"", K.TIMEOUT),
    (429, b"{}", K.RATE_LIMITED),
    (302, b"", K.UPSTREAM_PROTOCOL),
    (500, b"", K.UPSTREAM_ERROR),
    (502, b"", K.UPSTREAM_DOWN),
    (503, b"", K.UPSTREAM_DOWN),
    (504, b"", K.TIMEOUT),
    (599, b"", K.UPSTREAM_DOWN),
    (403, write_unary(ConnectError("permission_denied", error=44)), K.QUOTA),
    (500, write_unary(ConnectError("resource_exhausted", "usage limit")), K.QUOTA),
    (401, b'{"code":401,"message":"no"}', K.SIGNED_OUT),
    (401, b'{"code":"ERR_JWT","message":"no"}', K.SIGNED_OUT),
]


@pytest.mark.parametrize(("status", "body", "kind"), STATUSES)
def test_http_statuses(status: int, body: bytes, kind: ErrorKind) -> None:
    fault = fault_from_status(status, {}, body)
    assert fault.kind is kind
    assert fault.hint == HINTS[kind]


def test_a_run_over_http1_is_told_which_transport_to_use() -> None:
    fault = fault_from_status(464, {}, b"")
    assert fault.kind is K.UPSTREAM_PROTOCOL
    assert "--agent-transport http1" in fault.hint


def test_a_page_is_shown_as_its_first_words() -> None:
    page = b"<html><head><title>Blocked</title></head>\n<body>by  the\tfirewall</body></html>" + b"x" * 10_000
    assert fault_from_status(403, {}, page).message.startswith("Cursor answered HTTP 403: Blocked by the firewall")
    assert len(fault_from_status(403, {}, page).message) < 250
    assert fault_from_status(403, {}, b"\x00\x01\xff").message == "Cursor answered HTTP 403"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:28:30 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "in a while"}, None),
        ({"retry-after": "9" * 400}, LONGEST_WAIT_S),
        ({"retry-after": "9" * 60_000}, LONGEST_WAIT_S),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "\u0663"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, LONGEST_WAIT_S),
        ({"retry-after": "Fri, 31 Dec 99999 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 07:28:30 -9999999999", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
    assert fault_from_status(429, headers, b"").retry_after == seconds
    assert fault_from_status(429, headers, write_unary(ConnectError("resource_exhausted"))).retry_after == seconds


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectError("unavailable"), True),
        (ConnectError("invalid_argument"), False),
        (ConnectError("invalid_argument", retryable=True), False),
        (ConnectError("invalid_argument", "try again", retryable=True), True),
        (ConnectError("resource_exhausted", "Error", retryable=True), False),
        (ConnectError("not_found", "Error"), False),
        (ConnectError("unavailable", retryable=False), False),
        (ConnectError("invalid_argument", error=36, retryable=False), False),
        (ConnectError("internal"), False),
        (ConnectError("internal", retryable=True), True),
        (ConnectError("unauthenticated"), False),
        (ConnectError("unauthenticated", retryable=True), False),
        (ConnectError("resource_exhausted", error=9, retryable=True), False),
        (ConnectError("resource_exhausted", error=50), False),
        (ConnectError("invalid_argument", error=5), False),
    ],
)
def test_what_is_tried_again(error: ConnectError, again: bool) -> None:
    assert retryable(error) is again
    assert not (again and fault_from_connect(error).kind in NEVER_RETRIED)


def test_long_words_of_theirs_are_cut() -> None:
    error = ConnectError("c" * 50_000, "m" * 50_000, title="t" * 50_000, detail="d" * 50_000)
    assert len(fault_from_connect(error).message) < 2 * MAX_SAID + 200
    short = fault_from_connect(ConnectError("internal", "it broke"))
    assert short.message == "Cursor: it broke (internal)"
