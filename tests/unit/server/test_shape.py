"""Shapes of JSON: how deep, how long and how crowded a body may be, and what is read aside."""

import msgspec
import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.server.shape import LARGE, SMALL, ShapeLimits, is_large, read_json

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
