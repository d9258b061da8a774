"""Shapes of JSON, heads of requests, and what one caller may ask for."""

import itertools
from email.utils import formatdate

import msgspec
import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.web.admission import Admission, CallerLimits
from caretway.web.head import head_problem, http_date, without_upgrade
from caretway.web.shape import LARGE, SMALL, ShapeLimits, is_large, read_json

LIMITS = ShapeLimits(depth=8, messages=3)


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * levels + closing * levels


PASSING = [nested(8), b"[" * 7 + b"{}" + b"]" * 7, b'{"a":"[[[[[[[[[[[["}', b"[" + b"[]," * 50 + b"[]]"]


@pytest.mark.parametrize("body", PASSING)
def test_shapes_that_pass(body: bytes) -> None:
    read_json(body, LIMITS)


@pytest.mark.parametrize(
    "body",
    [nested(9), nested(100_000), b"[" * 100_000, b'{"a":' * 8 + b"[]" + b"}" * 8, b'{"a":' * 5000 + b"1" + b"}" * 5000],
)
def test_shapes_that_are_too_deep(body: bytes) -> None:
    with pytest.raises(GatewayError) as caught:
        read_json(body, LIMITS)
    assert (caught.value.kind, caught.value.code) == (ErrorKind.BAD_REQUEST, "invalid_json")


@pytest.mark.parametrize("name", ["messages", "input"])
def test_lists_that_are_too_long(name: str) -> None:
    read_json(b'{"%b":[1,2,3]}' % name.encode(), LIMITS)
    with pytest.raises(GatewayError) as caught:
        read_json(b'{"%b":[1,2,3,4]}' % name.encode(), LIMITS)
    assert (caught.value.kind, caught.value.param) == (ErrorKind.TOO_LARGE, name)


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


# ---- what is large

LARGE_LIMITS = ShapeLimits(depth=20, values=1000, text=2 * 2**20)


def test_code_in_a_prompt_is_not_structure() -> None:
    code = 'for (i in [1, 2, 3]) { call("a", {"b": [i]}); }\n' * 20_000
    body = msgspec.json.encode({"messages": [{"role": "user", "content": code}]})
    assert read_json(body, LARGE_LIMITS) == msgspec.json.decode(body)


@pytest.mark.parametrize("inside", ["[]", "{}", "1", '""', '{"a":1}', "[[]]", '"\\"["'])
def test_too_many_values(inside: str) -> None:
    body = f'{{"x":"{"y" * 70_000}","many":[{",".join([inside] * 1001)}]}}'.encode()
    with pytest.raises(GatewayError) as caught:
        read_json(body, LARGE_LIMITS)
    assert (caught.value.kind, caught.value.code) == (ErrorKind.TOO_LARGE, "too_many_values")


def test_large_json_is_what_the_decoder_says_it_is() -> None:
    deep: object = "x" * 300_000
    for level in range(8):
        deep = {f"level {level}": [deep, "é\n" * 1000, {"a": [1, 2.5, None, True]}]}
    body = b" \n" + msgspec.json.encode(deep)
    assert read_json(body, LARGE_LIMITS) == msgspec.json.decode(body)


REFUSED = {
    "text beyond the limit": (b'{"a":"%b"}' % (b"\\n" * 2**20 + b"x" * 100), ErrorKind.TOO_LARGE),
    "margin": (b" " * 100_000 + b"{}", ErrorKind.BAD_REQUEST),
    "digits": (b'{"a":%b}' % (b"9" * 100_000), ErrorKind.BAD_REQUEST),
    "deep": (b'{"a":"%b","b":%b%b}' % (b"x" * 300_000, b"[" * 30, b"]" * 30), ErrorKind.BAD_REQUEST),
    "deep and large": (b"[" * 30 + b'"%b"' % (b"x" * 300_000) + b"]" * 30, ErrorKind.BAD_REQUEST),
    "not ended": (b'{"a":"%b' % (b"x" * 300_000), ErrorKind.BAD_REQUEST),
    "broken inside": (b'{"a":"%b","b":[1,}' % (b"x" * 300_000), ErrorKind.BAD_REQUEST),
    "a lone surrogate": (b'{"a":"%b\\ud800"}' % (b"x" * 300_000), ErrorKind.BAD_REQUEST),
    "broken UTF-8": (b'{"a":"%b\xff"}' % (b"x" * 300_000), ErrorKind.BAD_REQUEST),
}


@pytest.mark.parametrize("name", REFUSED)
def test_large_and_refused(name: str) -> None:
    body, kind = REFUSED[name]
    with pytest.raises(GatewayError) as caught:
        read_json(body, LARGE_LIMITS)
    assert caught.value.kind is kind


def test_an_image_may_be_larger_than_text() -> None:
    body = b'{"a":"%b"}' % (b"x" * 3 * 2**20)
    assert read_json(body, LARGE_LIMITS) == {"a": "x" * 3 * 2**20}


def test_when_to_work_aside() -> None:
    assert not is_large(b"[" * SMALL)
    assert is_large(b"[" * (SMALL + 1))
    assert not is_large(b"x" * LARGE)
    assert is_large(b"x" * (LARGE + 1))


@pytest.mark.parametrize(
    ("now", "told"),
    [(0, b"Thu, 01 Jan 1970 00:00:00 GMT"), (784111777, b"Sun, 06 Nov 1994 08:49:37 GMT"), (1.5e9, None)],
)
def test_dates(now: float, told: bytes | None) -> None:
    assert http_date(now) == (told or formatdate(now, usegmt=True).encode())
