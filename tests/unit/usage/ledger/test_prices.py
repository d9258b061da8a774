"""Which price a model has: its own row, the user's before that, and none where nobody has told one."""

from datetime import UTC, datetime

import pytest

from caretway.usage.prices import AS_OF, PUBLISHED, Price, PriceList, age_days, priced_name, read_prices

OWN = Price(9, 9, 9, 9, own=True)


@pytest.mark.parametrize(
    ("variant", "row"),
    [
        ("composer-2.5", "composer-2.5"),
        ("composer-2.5@fast=false", "composer-2.5"),
        ("composer-2.5@fast=true", "composer-2.5-fast"),
        ("composer-2.5-fast", "composer-2.5-fast"),
        ("claude-4.6-sonnet@thinking=true,context=200k,effort=high", "claude-4.6-sonnet"),
        ("claude-sonnet-4-6", "claude-4.6-sonnet"),
        ("claude-opus-4-8@thinking=false,fast=true", "claude-opus-4-8-fast"),
        ("gpt-5.6-sol@context=272k,reasoning=low,fast=false", "gpt-5.6-sol"),
        ("claude-4.6-sonnet@context=1m", None),
        ("composer-2.5@fast=false,max=true", None),
        ("composer-2.5@turbo=yes", None),
        ("claude-opus-4-8@fast=false", "claude-opus-4-8"),
        ("claude-opus-5@fast=true", None),
        ("default@optimization=balance", None),
        ("default", None),
        ("sim-auto", None),
        ("", None),
    ],
)
def test_published(variant: str, row: str | None) -> None:
    assert PriceList({}).find(variant) == (PUBLISHED[row] if row else None)


def test_the_users_own_win() -> None:
    prices = PriceList({"composer-2.5": OWN, "default": OWN, "claude-4.6-sonnet@context=1m": OWN})
    assert prices.find("composer-2.5@fast=false") is OWN
    assert prices.find("composer-2.5@fast=true") == PUBLISHED["composer-2.5-fast"]
    assert prices.find("default@optimization=cost") is OWN
    assert prices.find("claude-4.6-sonnet@context=1m") is OWN
    assert prices.find("claude-4.6-sonnet@context=200k") == PUBLISHED["claude-4.6-sonnet"]


def test_every_row_can_be_found_by_its_own_name() -> None:
    assert [name for name in PUBLISHED if priced_name(name) != name] == []


def test_prices_in_the_settings() -> None:
    told = read_prices({"default": {"input": 1, "output": 2.5}, "m": {"input": 1, "output": 2, "cache_read": 0.1}})
    assert told["default"] == Price(1.0, 1.0, 1.0, 2.5, own=True)
    assert told["m"].cache_read == 0.1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (3, "a table with `input` and `output`"),
        ({"input": 1}, "`output` is missing"),
        ({"input": -1, "output": 1}, "a number of dollars"),
        ({"input": True, "output": 1}, "a number of dollars"),
        ({"input": "1", "output": 1}, "a number of dollars"),
        ({"input": 1, "output": 1, "reasoning": 1}, "`reasoning` is no price"),
    ],
)
def test_prices_that_are_none(row: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_prices({"m": row})


def test_the_age_of_the_table() -> None:
    assert age_days(datetime(AS_OF.year, AS_OF.month, AS_OF.day, 23, tzinfo=UTC).timestamp()) == 0
