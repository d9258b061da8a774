"""Token sources: the user's own key or token, exchanged as the official client does it. No pooling, no rotation."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from ..core.errors import ErrorKind, GatewayError

SIGN_IN_HINT: Final = "Set CURSOR_API_KEY to a key from cursor.com/settings, then start again."
UNKNOWN_LIFE_S: Final = 30 * 60.0
EARLY_S: Final = 5 * 60.0

Exchange = Callable[[str], Awaitable[tuple[int, bytes]]]
"""Posts a key to the exchange endpoint: (status, body)."""


class FixedToken:
    """A token that was handed in; there is nothing to refresh."""

    renewable = False

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self, *, refused: bool = False) -> str:
        return self._token


class NoToken:
    """Nobody is signed in."""

    renewable = False

    async def token(self, *, refused: bool = False) -> str:
        raise GatewayError(ErrorKind.SIGNED_OUT, "Not signed in to Cursor.", hint=SIGN_IN_HINT)


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    renew_at: float


class ExchangedKey:
    """An API key, exchanged for a session token that is renewed before it expires; one exchange at a time."""

    renewable = True

    def __init__(self, api_key: str, exchange: Exchange, clock: Callable[[], float]) -> None:
        self._api_key = api_key
        self._exchange = exchange
        self._clock = clock
        self._lock = asyncio.Lock()
        self._session: _Session | None = None

    async def token(self, *, refused: bool = False) -> str:
        seen = self._session
        if seen is not None and not refused and self._clock() < seen.renew_at:
            return seen.token
        async with self._lock:
            if self._session is not seen and self._session is not None:
                return self._session.token  # somebody else renewed it while we waited
            self._session = await self._renew()
            return self._session.token

    async def _renew(self) -> _Session:
        status, body = await self._exchange(self._api_key)
        if status in (401, 403):
            raise GatewayError(ErrorKind.SIGNED_OUT, "Cursor does not accept the API key.", hint=SIGN_IN_HINT)
        if status == 429:
            raise GatewayError(ErrorKind.RATE_LIMITED, "Cursor limits how often the API key may be exchanged.")
        if status != 200:
            raise GatewayError(ErrorKind.UPSTREAM_DOWN, f"The API key could not be exchanged: HTTP {status}.")
        try:
            answer = msgspec.json.decode(body)
            token = answer["accessToken"]
        except (msgspec.DecodeError, KeyError, TypeError) as broken:
            raise GatewayError(ErrorKind.UPSTREAM_PROTOCOL, "The answer to the key exchange has no token.") from broken
        now = self._clock()
        return _Session(token, renewal_time(token, now))


def renewal_time(token: str, now: float) -> float:
    """When to renew: five minutes before the end, or at half the life of a short-lived token."""
    expires = expiry(token)
    if expires is None:
        return now + UNKNOWN_LIFE_S
    return max(expires - EARLY_S, now + (expires - now) / 2)


def expiry(token: str) -> float | None:
    """`exp` of a JWT, unverified: only the issuer can verify it, we only want to know when to ask again."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None
    value = claims.get("exp") if isinstance(claims, dict) else None
    return float(value) if isinstance(value, int | float) else None
