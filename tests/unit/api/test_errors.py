"""An error as an HTTP answer: status and words of the dialect, and whether asking again helps."""

import pytest

from caretway.api.errors import send_error
from caretway.core.errors import ErrorKind, GatewayError
from caretway.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from caretway.dialects.openai_chat import OPENAI_CHAT
from unit.api.parts import writer

K = ErrorKind
AGAIN: list[tuple[GatewayError, bytes, bytes | None]] = [
    (GatewayError(K.BAD_REQUEST, "no"), b"false", None),
    (GatewayError(K.RATE_LIMITED, "no", retry_after=7.4), b"true", b"7"),
    (GatewayError(K.RATE_LIMITED, "no", retry_after=0.01), b"true", b"1"),
    (GatewayError(K.RATE_LIMITED, "no"), b"true", None),
    (GatewayError(K.OVERLOADED, "no"), b"true", b"1"),
    (GatewayError(K.UPSTREAM_DOWN, "no"), b"true", b"1"),
    (GatewayError(K.UPSTREAM_DOWN, "no", repeatable=False), b"false", None),
    (GatewayError(K.QUOTA, "no", retry_after=1_314_830.0), b"false", None),
    (GatewayError(K.WRONG_PROTOCOL, "no"), b"false", None),
]


@pytest.mark.parametrize(("error", "again", "after"), AGAIN)
def test_whether_asking_again_helps(error: GatewayError, again: bytes, after: bytes | None) -> None:
    written, response = writer()
    given = [(b"x-a", b"1")]
    send_error(response, OPENAI_CHAT, error, given)
    assert b"x-should-retry: " + again in written.head
    waits = [line for line in written.head if line.startswith(b"retry-after: ")]
    assert waits == ([b"retry-after: " + after] if after else [])
    assert b"x-a: 1" in written.head
    assert given == [(b"x-a", b"1")]


def test_the_words_are_the_dialects() -> None:
    error = GatewayError(K.OVERLOADED, "no")
    statuses = []
    for dialect in (OPENAI_CHAT, ANTHROPIC_MESSAGES):
        written, response = writer()
        send_error(response, dialect, error, ())
        statuses.append(written.status)
        assert (written.status, written.body) == dialect.error(error)
    assert statuses == [429, 529]
