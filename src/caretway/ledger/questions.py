"""What can be asked of a ledger: totals of a time, by group, why conversations were replayed; and the Protocol of
whoever answers. Values only.

Tokens are those of runs, as Cursor counted them: each once, in kinds that do not overlap. A run that Cursor did not
report is counted as `unreported`, and nothing is guessed for it. None stands for "not known", never for zero.
"""

from collections.abc import Iterator
from typing import Any, Literal, Protocol

from msgspec import Struct

By = Literal["all", "day", "model", "key", "client", "conversation", "reason"]


class Span(Struct, frozen=True):
    """From `since` on, before `until`; unix seconds."""

    since: float
    until: float


class Totals(Struct, frozen=True):
    group: str = ""
    responses: int = 0
    failed: int = 0
    """Responses that ended with an error."""
    refused: int = 0
    """Requests for an answer that came to no response; they are not among the responses."""
    runs: int = 0
    unreported: int = 0
    """Runs that Cursor did not count: cut, stopped, or on a backend that tells nothing."""
    at_least: int = 0
    """Runs of which an attempt was lost and not counted."""
    input: int = 0
    """Neither read from the cache nor written to it."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    """Reasoning included."""
    reasoning: int = 0
    saved: int = 0
    """Tokens that sessions held already: `fresh` would have sent them again."""
    told_cents: float | None = None
    """What Cursor itself said that runs cost; None: of no run."""
    listed_cents: float | None = None
    """Of the other runs, by a price list; None: there is no such run with a price."""
    unpriced: int = 0
    """Reported runs whose cost nobody knows."""

    @property
    def tokens(self) -> int:
        return self.input + self.cache_read + self.cache_write + self.output

    @property
    def read(self) -> int:
        """All input, of whatever price: what shares are shares of."""
        return self.input + self.cache_write + self.cache_read

    @property
    def cached_share(self) -> float | None:
        """The part of the input that came from the cache; None: there was no input."""
        return self.cache_read / self.read if self.read else None

    @property
    def saved_share(self) -> float | None:
        """How much less was read than with `fresh`; None: there was no input."""
        whole = self.saved + self.read
        return self.saved / whole if whole else None

    def plus(self, other: "Totals") -> "Totals":
        """Both together, as a group without a name."""
        sums: dict[str, Any] = {}
        for name in (name for name in self.__struct_fields__ if name != "group"):
            known = [value for value in (getattr(self, name), getattr(other, name)) if value is not None]
            sums[name] = sum(known) if known else None
        return Totals(**sums)

    @property
    def cents(self) -> float | None:
        known = [cents for cents in (self.told_cents, self.listed_cents) if cents is not None]
        return sum(known) if known else None


class Replayed(Struct, frozen=True):
    reason: str
    responses: int
    input: int
    """What their runs were told, not cached."""


class UsageBook(Protocol):
    """Whoever knows what was used. The answers are streamed: there may be many groups."""

    def totals(self, span: Span, by: By, limit: int | None = None) -> Iterator[Totals]:
        """The largest first; days in their order. `all` is one row."""
        ...

    def replays(self, span: Span) -> list[Replayed]:
        """The most frequent reason first."""
        ...
