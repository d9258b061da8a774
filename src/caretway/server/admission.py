"""Rate limits of one gateway key: a token bucket for requests a minute, a count of responses at once, and the
`retry-after` of a 429; what is asked of a limit that several gateways share. The gateway's own total is in
`application`. Pure.

Time is handed in. Callers are named by `access.Admitted.caller`; a caller without a name (no key is asked for) is not
counted here, the gateway's total limits are all there is then. Names come from configured keys, so the table is small.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError


class CallerLimits(Struct, frozen=True):
    concurrent: int
    per_minute: int
    """Also the size of the bucket: a minute's worth may come at once."""


class _Account(Struct):
    tokens: float
    at: float
    running: int = 0
    """Requests that are being answered."""


class SharedAdmission(Protocol):
    """The same limits over several gateways. If it cannot be known, the request is let in."""

    async def enter(self, caller: str, *, turn: bool) -> tuple[str, float, bytes]:
        """(`early`, `many`, or nothing; seconds to wait; what to give back)"""
        ...

    def leave(self, caller: str, lease: bytes) -> None: ...


class Admission:
    def __init__(self, limits: CallerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def ask(self, caller: str) -> None:
        """One more request of this caller; GatewayError when it comes too early. It takes no place yet."""
        if not caller:
            return
        account = self._refill(caller)
        if account.tokens < 1:
            raise self.too_early((1 - account.tokens) * 60 / self._limits.per_minute)
        self._check_place(account)
        account.tokens -= 1

    def enter(self, caller: str) -> None:
        """It is whole and to be answered: it takes a place until it leaves. GatewayError when there is none."""
        if caller:
            account = self._refill(caller)
            self._check_place(account)
            account.running += 1

    def _check_place(self, account: _Account) -> None:
        if account.running >= self._limits.concurrent:
            raise self.too_many()

    def too_early(self, wait: float) -> GatewayError:
        return GatewayError(
            ErrorKind.RATE_LIMITED,
            f"This key may make {self._limits.per_minute} requests a minute.",
            hint="Wait, or raise `max_requests_per_minute`.",
            code="too_many_requests",
            retry_after=wait,
        )

    def too_many(self) -> GatewayError:
        return GatewayError(
            ErrorKind.RATE_LIMITED,
            f"{self._limits.concurrent} requests of this key are being answered already.",
            hint="Wait for one to end, or raise `max_concurrent_per_key`.",
            code="too_many_concurrent_requests",
            retry_after=1.0,
        )

    def leave(self, caller: str) -> None:
        if caller:
            self._accounts[caller].running -= 1

    def _refill(self, caller: str) -> _Account:
        now, full = self._clock(), float(self._limits.per_minute)
        account = self._accounts.setdefault(caller, _Account(full, now))
        account.tokens = min(full, account.tokens + max(0.0, now - account.at) * full / 60)
        account.at = now
        return account
