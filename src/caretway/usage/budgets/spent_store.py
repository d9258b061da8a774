"""Where spending is counted, as a Protocol: reserve (checked and counted in one step, durable before a run is opened)
and settle. SQLite implements it for one machine; whatever can do the same in one step may serve several gateways.

A claim is refused as a whole or counted as a whole. Between its check and its count nobody else comes in: that is what
makes runs exact.
"""

from collections.abc import Coroutine
from typing import Any, Protocol

from msgspec import Struct

from .budget import BillingCycle, Measure, Spent


class Limit(Struct, frozen=True):
    """No run when that much is spent in this scope since that day."""

    scope: str
    measure: Measure
    most: float
    since: str


class Claim(Struct, frozen=True):
    """What a run is going to use, as far as it is known before."""

    scopes: tuple[str, ...]
    """All that it is counted for."""
    day: str
    amount: Spent
    limits: tuple[Limit, ...]
    at: float
    """Unix seconds."""


class ClaimOutcome(Struct, frozen=True):
    allowed: bool
    spent: tuple[float, ...]
    """For each of the limits; this claim included if it was allowed."""


class SpentStore(Protocol):
    def reserve(self, claim: Claim) -> Coroutine[Any, Any, ClaimOutcome]: ...

    def settle(self, scopes: tuple[str, ...], day: str, amount: Spent, at: float) -> None:
        """Count this too, whatever the limits are; what was reserved too much is negative. Written soon, and before
        anything that is reserved later."""
        ...

    async def spent(self, scope: str, since: str) -> Spent: ...

    async def first(self, mark: str, at: float) -> bool:
        """True for the first caller ever and anywhere: for things that are said once."""
        ...

    async def cycle(self) -> BillingCycle | None:
        """The billing cycle that was kept last."""
        ...

    def keep_cycle(self, cycle: BillingCycle) -> None: ...

    async def aclose(self) -> None: ...
