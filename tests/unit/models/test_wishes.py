"""What is asked of a model beside its name."""

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.models.wishes import Wish, read_suffix, read_wishes, split_suffix

SUFFIXES = [
    ("effort=high", Wish(effort="high")),
    ("high", Wish(effort="high")),
    ("reasoning=extra-high", Wish(effort="xhigh")),
    ("effort=high,fast", Wish(effort="high", fast=True)),
    (" effort = low , fast=false ", Wish(effort="low", fast=False)),
    ("thinking", Wish(thinking=True)),
    ("thinking=off", Wish(thinking=False)),
    ("thinking=high", Wish(effort="high", thinking=True)),
    ("1m,max", Wish(context="1m", max_mode=True)),
    ("optimization=cost", Wish(other=(("optimization", "cost"),))),
    ("", Wish()),
]


@pytest.mark.parametrize(("text", "wish"), SUFFIXES)
def test_suffix(text: str, wish: Wish) -> None:
    assert read_suffix(text) == wish


@pytest.mark.parametrize("text", ["quickly", "fast=perhaps", ",".join(f"a{n}=1" for n in range(20))])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(GatewayError) as refused:
        read_suffix(text, f"model@{text}")
    assert refused.value.kind is ErrorKind.BAD_REQUEST
    assert refused.value.param == "model"


NAMES = [
    ("m@effort=high", ("m", "effort=high")),
    ("m[effort=high,fast=false]", ("m", "effort=high,fast=false")),
    ("m[]", ("m", "")),
    ("m", ("m", "")),
    ("m@", ("m", "")),
]


@pytest.mark.parametrize(("name", "parts"), NAMES)
def test_split(name: str, parts: tuple[str, str]) -> None:
    assert split_suffix(name) == parts


def test_the_first_who_says_something_is_heard() -> None:
    name, body, settings = Wish(effort="low"), Wish(effort="high", thinking=True), read_wishes({"fast": "true"})
    assert name.over(body).over(settings) == Wish(effort="low", thinking=True, fast=True)
