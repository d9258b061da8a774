"""Prices of tokens by public lists: a dated table, which the user's own prices override, and its age. A model without a
row has no price: nothing is guessed. Pure.

Prices are dollars for a million tokens. Auto has no row: since 2026-08-24 it costs as much as the model that Cursor
chose, and Cursor does not report which. Long contexts and max mode have no row because their surcharges differ.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Final

from msgspec import Struct

from ..accounts.names import THOUGHT_IDS, window
from ..core.events import Tokens

SOURCE: Final = "cursor.com/docs/models-and-pricing"
AS_OF: Final = date(2026, 9, 11)
"""The date of the table's prices."""
STALE_DAYS: Final = 92
LONG_CONTEXT: Final = 300_000
"""The context window in tokens above which vendors charge more."""


class Price(Struct, frozen=True):
    input: float
    cache_write: float
    cache_read: float
    output: float
    own: bool = False
    """The price comes from the user's settings."""


FindPrice = Callable[[str], Price | None]
"""Finds the price of a model with its parameters; None if unknown."""
PUBLISHED: Final[Mapping[str, Price]] = {
    "composer-1.5": Price(3.5, 3.5, 0.35, 17.5),
    "composer-2": Price(0.5, 0.5, 0.2, 2.5),
    "composer-2-fast": Price(1.5, 1.5, 0.35, 7.5),
    "composer-2.5": Price(0.5, 0.5, 0.2, 2.5),
    "composer-2.5-fast": Price(3.0, 3.0, 0.5, 15.0),
    "grok-4.5": Price(2.0, 2.0, 0.5, 6.0),
    "grok-4.5-fast": Price(4.0, 4.0, 1.0, 12.0),
    "grok-4.6": Price(2.0, 2.0, 0.5, 6.0),
    "grok-4.6-fast": Price(4.0, 4.0, 1.0, 12.0),
    "grok-code-fast-1": Price(0.2, 0.2, 0.02, 1.5),
    "claude-4.5-sonnet": Price(3.0, 3.75, 0.3, 15.0),
    "claude-4.5-haiku": Price(1.0, 1.25, 0.1, 5.0),
    "claude-4.6-sonnet": Price(3.0, 3.75, 0.3, 15.0),
    "claude-4.6-opus": Price(5.0, 6.25, 0.5, 25.0),
    "claude-opus-4-7": Price(5.0, 6.25, 0.5, 25.0),
    "claude-opus-4-7-fast": Price(30.0, 37.5, 3.0, 150.0),
    "claude-opus-4-8": Price(5.0, 6.25, 0.5, 25.0),
    "claude-opus-4-8-fast": Price(10.0, 12.5, 1.0, 50.0),
    "claude-opus-5": Price(5.0, 6.25, 0.5, 25.0),
    "claude-opus-5-5": Price(4.0, 5.0, 0.2, 20.0),
    "claude-sonnet-5": Price(2.0, 2.5, 0.2, 10.0),
    "claude-sonnet-5-5": Price(2.0, 2.5, 0.2, 10.0),
    "claude-fable-5": Price(10.0, 12.5, 1.0, 50.0),
    "claude-fable-5.1": Price(10.0, 12.5, 0.25, 50.0),
    "gpt-5-mini": Price(0.25, 0.25, 0.025, 2.0),
    "gpt-5.1": Price(1.25, 1.25, 0.125, 10.0),
    "gpt-5.1-codex-max": Price(1.25, 1.25, 0.125, 10.0),
    "gpt-5.1-codex-mini": Price(0.25, 0.25, 0.025, 2.0),
    "gpt-5.2": Price(1.75, 1.75, 0.175, 14.0),
    "gpt-5.2-codex": Price(1.75, 1.75, 0.175, 14.0),
    "gpt-5.3-codex": Price(1.75, 1.75, 0.175, 14.0),
    "gpt-5.4": Price(2.5, 2.5, 0.25, 15.0),
    "gpt-5.4-mini": Price(0.75, 0.75, 0.075, 4.5),
    "gpt-5.4-nano": Price(0.2, 0.2, 0.02, 1.25),
    "gpt-5.5": Price(5.0, 5.0, 0.5, 30.0),
    "gpt-5.6-luna": Price(0.2, 0.25, 0.02, 1.2),
    "gpt-5.6-sol": Price(5.0, 6.25, 0.5, 30.0),
    "gpt-5.6-terra": Price(2.0, 2.5, 0.2, 12.0),
    "gpt-6-astra": Price(10.0, 10.0, 1.0, 50.0),
    "gpt-6-luna": Price(0.1, 0.125, 0.01, 0.5),
    "gpt-6-sol": Price(2.0, 2.5, 0.2, 10.0),
    "gpt-6.1-sol": Price(2.0, 2.0, 0.1, 10.0),
    "gemini-2.5-flash": Price(0.3, 0.3, 0.03, 2.5),
    "gemini-3-flash": Price(0.5, 0.5, 0.05, 3.0),
    "gemini-3.1-pro": Price(2.0, 2.0, 0.2, 12.0),
    "gemini-3.5-flash": Price(1.5, 1.5, 0.15, 9.0),
    "gemini-3.6-flash": Price(1.5, 1.5, 0.15, 7.5),
    "gemini-3.7-flash": Price(0.75, 0.75, 0.075, 3.5),
    "gemini-3.8-flash": Price(0.75, 0.75, 0.075, 3.5),
    "glm-5.2": Price(1.4, 1.4, 0.26, 4.4),
    "kimi-k2.7-code": Price(0.95, 0.95, 0.19, 4.0),
    "kimi-k3": Price(3.0, 3.0, 0.3, 15.0),
}
"""Prices of models as of AS_OF, from public lists, for some models the vendor's list. Where a list has no price for
cache writes, they cost as much as input."""
_SPELLINGS: Final[Mapping[str, str]] = {
    "claude-haiku-4-5": "claude-4.5-haiku",
    "claude-sonnet-4-6": "claude-4.6-sonnet",
    "claude-4.7-opus": "claude-opus-4-7",
    "claude-fable-5-1": "claude-fable-5.1",
}
_OFF: Final = frozenset({"false", "off", "none", "0"})


class PriceList(Struct, frozen=True):
    own: Mapping[str, Price]
    """The user's prices, by model or by model and parameters; they win over `PUBLISHED`."""

    def find(self, variant: str) -> Price | None:
        """Finds the price of a variant such as `composer-2.5@fast=true`."""
        if (price := self.own.get(variant)) is not None:
            return price
        name = priced_name(variant)
        if name is None:
            return self.own.get(variant.partition("@")[0])
        return self.own.get(name) or PUBLISHED.get(_SPELLINGS.get(name, name))

    def cents(self, variant: str, used: Tokens) -> float | None:
        """The cost of a run; None if its model has no price."""
        price = self.find(variant)
        if price is None:
            return None
        read, written = used.cache_read_tokens or 0, used.cache_write_tokens or 0
        dollars = used.fresh * price.input + read * price.cache_read + written * price.cache_write
        return (dollars + (used.output_tokens or 0) * price.output) / 10_000


def priced_name(variant: str) -> str | None:
    """The model's name in a price list. Thinking does not change the price, speed does. None if the price of a
    parameter is unknown."""
    model, _, spelled = variant.partition("@")
    fast = False
    for part in filter(None, spelled.split(",")):
        key, _, value = part.partition("=")
        if key in THOUGHT_IDS:
            continue
        if key == "fast":
            fast = value not in _OFF
        elif key == "context" and (size := window(value)) is not None and size <= LONG_CONTEXT:
            continue
        elif value not in _OFF:
            return None
    base, _, suffix = model.rpartition("-") if "-" in model else ("", "", "")
    plain = base if suffix == "fast" else model
    return f"{_SPELLINGS.get(plain, plain)}{'-fast' if fast or suffix == 'fast' else ''}"


def own_price(model: str) -> str:
    """The header of the settings table that sets the model's price."""
    key = model if re.fullmatch(r"[A-Za-z0-9_-]+", model) else json.dumps(model)
    return f"[prices.{key}]"


def age_days(now: float) -> int:
    """The age of the table; `now` in unix seconds."""
    return (datetime.fromtimestamp(now, UTC).date() - AS_OF).days


def read_prices(table: Mapping[str, object]) -> Mapping[str, Price]:
    """Reads the user's prices from the settings. Raises ValueError with a message for people."""
    return {name: _price(name, row) for name, row in table.items()}


def _price(name: str, row: object) -> Price:
    if not isinstance(row, Mapping):
        raise ValueError(f"{name}: a table with `input` and `output` is wanted, dollars for a million tokens")
    known = {"input", "output", "cache_read", "cache_write"}
    if unknown := sorted(set(map(str, row)) - known):
        raise ValueError(f"{name}: `{unknown[0]}` is no price; use {', '.join(sorted(known))}")
    for kind, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise ValueError(f"{name}: `{kind}` is a number of dollars, not {value!r}")
    if missing := [kind for kind in ("input", "output") if kind not in row]:
        raise ValueError(f"{name}: `{missing[0]}` is missing")
    values = {str(kind): float(value) for kind, value in row.items() if isinstance(value, int | float)}
    whole = values["input"]
    return Price(whole, values.get("cache_write", whole), values.get("cache_read", whole), values["output"], own=True)
