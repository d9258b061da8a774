"""Connect errors: the recorded end of a stream, round trips with Cursor's details, and hostile JSON."""

import base64
import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cursor.wire.envelope import End, EnvelopeReader, pack
from caretway.cursor.wire.errors import (
    DETAILS_TYPE,
    ConnectError,
    ErrorSyntax,
    read_end,
    read_unary,
    write_end,
    write_unary,
)
from caretway.cursor.wire.messages import ai

from .recordings import NAMES, rows

ERRORS: Final = {
    "a bare code": ConnectError("unavailable"),
    "with a message": ConnectError("internal", "it broke"),
    "usage limit": ConnectError(
        "resource_exhausted", "Error", error=10, title="Usage limit", detail="Upgrade or wait.", retryable=False
    ),
    "rate limit": ConnectError(
        "resource_exhausted", error=50, retryable=True, info=(("retryAfterMs", "1500"), ("scope", "user"))
    ),
    "retryable without a number": ConnectError("unavailable", retryable=True),
    "a number that no schema names": ConnectError("unknown", error=99_999),
    "more than ASCII": ConnectError("internal", "größer ☂", title="日本", detail="\u0000\n\U0001f600"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_round_trip(error: ConnectError) -> None:
    assert read_end(write_end(error)) == error
    assert read_unary(write_unary(error)) == error


@pytest.mark.seed("C16")
def test_the_end_of_stream_frame_carries_the_error() -> None:
    """In bytes: flag 2, the length, JSON."""
    body = b'{"error":{"code":"unavailable","message":"try again later"}}'
    frame = b"\x02\x00\x00\x00\x3c" + body
    for cut in range(len(frame)):
        reader = EnvelopeReader()
        (end,) = [*reader.feed(frame[:cut]), *reader.feed(frame[cut:])]
        assert type(end) is End
        assert read_end(end) == ConnectError("unavailable", "try again later")
    assert pack(write_end(ConnectError("unavailable", "try again later")), end=True) == frame
    (word,) = EnvelopeReader().feed(b"\x00" + frame[1:])
    assert type(word) is not End


TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    st.builds(
        ConnectError,
        TEXT.filter(bool),
        TEXT,
        st.integers(0, 2**31 - 1),
        TEXT,
        TEXT,
        st.none() | st.booleans(),
        st.dictionaries(TEXT, TEXT, max_size=4).map(lambda info: tuple(sorted(info.items()))),
    )
)
def test_any_error_round_trips(error: ConnectError) -> None:
    assert read_end(write_end(error)) == error
    assert read_unary(write_unary(error)) == error


def test_success_round_trips() -> None:
    assert write_end() == b"{}"
    assert read_end(write_end()) is None


def test_recorded_ends_are_successes() -> None:
    ends = [row.json for name in NAMES for row in rows(name) if row.kind == "end_of_stream"]
    assert len(ends) == 13
    assert [read_end(json.dumps(end).encode()) for end in ends] == [None] * 13


def detailed(value: str, kind: str = DETAILS_TYPE) -> bytes:
    return json.dumps({"error": {"code": "internal", "details": [{"type": kind, "value": value}]}}).encode()


@pytest.mark.parametrize("title", ["", "a", "ab", "abc"])
def test_base64_with_and_without_padding(title: str) -> None:
    """Connect writes it unpadded; a proxy or another server may pad. Four lengths: every remainder occurs."""
    details = ai.ErrorDetails(error=ai.ErrorDetails.ERROR_BAD_MODEL_NAME)
    details.details.title = title
    padded = base64.b64encode(details.SerializeToString()).decode()
    for value in (padded, padded.rstrip("=")):
        read = read_end(detailed(value))
        assert read is not None
        assert (read.name, read.title) == ("BAD_MODEL_NAME", title)


def test_what_we_write_is_unpadded() -> None:
    for error in ERRORS.values():
        for item in json.loads(write_unary(error)).get("details", []):
            assert "=" not in item["value"]
            assert item["type"] == "aiserver.v1.ErrorDetails"


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, ""), (2, "NOT_LOGGED_IN"), (5, "BAD_MODEL_NAME"), (43, "CONVERSATION_TOO_LONG"), (99_999, "")],
)
def test_names(number: int, name: str) -> None:
    assert ConnectError("internal", error=number).name == name


PLAIN: Final = ConnectError("internal")

USELESS_DETAILS: Final = {
    "another type": detailed("CAU", "google.rpc.RetryInfo"),
    "no base64": detailed("*"),
    "one character": detailed("C"),
    "not ASCII": detailed("é"),
    "no protobuf": detailed("/////w"),
    "not a list": b'{"error":{"code":"internal","details":{"type":1}}}',
    "not objects": b'{"error":{"code":"internal","details":[null,1,"x",[],{}]}}',
    "no string": b'{"error":{"code":"internal","details":[{"type":"aiserver.v1.ErrorDetails","value":7}]}}',
}


@pytest.mark.parametrize("payload", USELESS_DETAILS.values(), ids=USELESS_DETAILS.keys())
def test_details_only_refine(payload: bytes) -> None:
    assert read_end(payload) == PLAIN


def test_the_first_readable_details_count() -> None:
    good = json.loads(write_unary(ConnectError("internal", error=5)))["details"]
    broken = [{"type": DETAILS_TYPE, "value": "*"}, {"type": "other", "value": "CAU"}]
    body = json.dumps({"code": "internal", "details": broken + good}).encode()
    assert read_unary(body) == ConnectError("internal", error=5)


ENDS: Final[dict[str, tuple[bytes, ConnectError | None]]] = {
    "empty": (b"", None),
    "blank": (b" \n", None),
    "null": (b'{"error":null}', None),
    "metadata only": (b'{"metadata":{"a":["b"]}}', None),
    "no code": (b'{"error":{}}', ConnectError("unknown")),
    "empty code": (b'{"error":{"code":""}}', ConnectError("unknown")),
    "code of another kind": (b'{"error":{"code":{"a":[1]},"message":["x"]}}', ConnectError("unknown")),
    "repeated key": (b'{"error":{"code":"a","code":"b"}}', ConnectError("b")),
}


@pytest.mark.parametrize(("payload", "outcome"), ENDS.values(), ids=ENDS.keys())
def test_odd_ends(payload: bytes, outcome: ConnectError | None) -> None:
    assert read_end(payload) == outcome


HOSTILE: Final = {
    "half": b'{"error":{"code":"internal"',
    "deep": b'{"error":' + b"[" * 100_000,
    "deep and whole": b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not UTF-8": b'{"error":{"code":"\xff\xfe"}}',
    "lone surrogate": b'{"error":{"code":"\\ud800"}}',
    "huge number": b'{"error":' + b"9" * 10_000 + b"}",
    "huge exponent": b'{"error":1e99999}',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "error is text": b'{"error":"internal"}',
    "error is true": b'{"error":true}',
    "HTML": b"<html></html>",
    "byte order mark": b"\xef\xbb\xbf{}",
    "zero bytes": bytes(64),
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile(payload: bytes) -> None:
    with pytest.raises(ErrorSyntax, match="end-of-stream"):
        read_end(payload)
    assert read_unary(payload) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["error", "code", "message", "details", "type", "value", "x"]), inner, max_size=5
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_an_outcome_or_a_syntax_error(value: Any) -> None:
    body = json.dumps(value).encode()
    try:
        outcome = read_end(body)
    except ErrorSyntax:
        outcome = None
    assert outcome is None or isinstance(outcome.code, str)
    unary = read_unary(body)
    assert unary is None or unary.code
