"""Heads of requests: those that two readers could read differently are refused; and dates."""

from email.utils import formatdate

import pytest

from caretway.server.head import head_problem, head_size, http_date, without_upgrade

HOST = (b"host", b"a")
PROBLEMS = [
    ("1.1", b"GET", b"/", [HOST], True),
    ("1.0", b"GET", b"/", [], True),
    ("1.1", b"GET", b"http://A/x", [HOST], True),
    ("1.1", b"OPTIONS", b"*", [HOST], True),
    ("1.1", b"POST", b"/", [HOST, (b"transfer-encoding", b" Chunked")], True),
    ("1.1", b"GET", b"/", [HOST, (b"accept", b"a"), (b"accept", b"b")], True),
    ("1.1", b"GET", b"/", [], False),
    ("2.0", b"GET", b"/", [HOST], False),
    ("0.9", b"GET", b"/", [HOST], False),
    ("1.1", b"CONNECT", b"a:1", [HOST], False),
    ("1.1", b"GET", b"/", [HOST, HOST], False),
    ("1.1", b"GET", b"http://b/x", [HOST], False),
    ("1.1", b"GET", b"http:///x", [HOST], False),
    ("1.1", b"POST", b"/", [HOST, (b"transfer-encoding", b"gzip, chunked")], False),
    ("1.0", b"POST", b"/", [HOST, (b"transfer-encoding", b"chunked")], False),
    ("1.1", b"GET", b"/", [HOST, (b"x-api-key", b"a"), (b"x-api-key", b"a")], False),
]


@pytest.mark.parametrize(("version", "method", "target", "headers", "fine"), PROBLEMS)
def test_heads(version: str, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], fine: bool) -> None:
    assert (head_problem(version, method, target, headers) is None) is fine


def test_a_head_without_the_wish_to_change_protocols() -> None:
    headers = [HOST, (b"connection", b"Upgrade, close"), (b"upgrade", b"h2c"), (b"content-length", b"3")]
    assert without_upgrade(b"POST", b"/x", "1.1", headers) == (
        b"POST /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\nupgrade: h2c\r\ncontent-length: 3\r\n\r\n"
    )
    assert b"connection" not in without_upgrade(b"GET", b"/", "1.1", [HOST, (b"connection", b"upgrade")])


@pytest.mark.parametrize(
    ("now", "told"),
    [(0, b"Thu, 01 Jan 1970 00:00:00 GMT"), (784111777, b"Sun, 06 Nov 1994 08:49:37 GMT"), (1.5e9, None)],
)
def test_dates(now: float, told: bytes | None) -> None:
    assert http_date(now) == (told or formatdate(now, usegmt=True).encode())


def test_a_head_is_counted_with_what_separates_its_headers() -> None:
    assert head_size(b"/x", []) == 2
    assert head_size(b"/x", [HOST, (b"accept", b"*")]) == 2 + len(b"host: a\r\naccept: *\r\n")
