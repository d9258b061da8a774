"""A stored sign-in as a value: its tokens, its owner, an identity without secrets, and its format on disk.

The format on disk has a version. An unreadable entry is ignored as a whole, never used in part.
"""

import base64
import binascii
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Struct

# ---- When a token is due for renewal and when it expires (JWT claims, never verified), with clocks that are wrong or
# were set back. Pure.
#
# Clocks disagree. So a token's lifetime is a length (`exp` - `iat`), counted on our own clock from the receipt of the
# token. A clock that is an hour wrong then neither renews at every request nor keeps an expired token.

log = logging.getLogger(__name__)

UNKNOWN_LIFE_S: Final = 30 * 60.0
"""The renewal age of a token without an expiry."""
EARLY_S: Final = 5 * 60.0
"""The minimum time between renewal and expiry; a short-lived token is renewed at half its lifetime."""
EARLY_SHARE: Final = 12
"""A long-lived token is renewed when 1/12 of its lifetime is left: two hours of a day. After a failure the old token
still works while the owner is warned."""
EARLIEST_S: Final = 86400.0
FAR_AWAY_S: Final = 1e12
"""Seconds from 1970. An expiry further away is not a time and is ignored."""
LAST_DATE_S: Final = 253_402_300_799.0
"""The end of the year 9999, the last date of `datetime`."""
CLOCK_SLACK_S: Final = 60.0
"""A token received more than this in the future was received before the clock was set back."""


class Term(Struct, frozen=True):
    """When a token was received, when to renew it, and when it expires. Unix seconds on our own clock."""

    received_at: float
    renew_at: float
    ends_at: float

    def due(self, now: float) -> bool:
        return now >= self.renew_at or now < self.received_at - CLOCK_SLACK_S


def claims(token: str) -> dict[str, Any]:
    """The payload of a JWT; empty for any other text."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def subject(token: str) -> str:
    """The account that the token names; empty if it names none."""
    payload = claims(token)
    return next((payload[name] for name in ("email", "sub") if isinstance(payload.get(name), str)), "")


def issued_at(token: str) -> float:
    """The issue time on the issuer's clock; 0 if the token has none."""
    return _seconds(claims(token).get("iat")) or 0.0


def term(token: str, received_at: float) -> Term:
    """The term of a token from its expiry, if it names one. `received_at`: unix seconds on this machine's clock."""
    payload = claims(token)
    expires, issued = _seconds(payload.get("exp")), _seconds(payload.get("iat"))
    if expires is None:
        return Term(received_at, received_at + UNKNOWN_LIFE_S, inf)
    life = expires - (received_at if issued is None else issued)
    if life <= 0:  # no token is issued expired: this clock and the issuer's disagree
        return Term(received_at, received_at + UNKNOWN_LIFE_S, inf)
    early = min(max(EARLY_S, life / EARLY_SHARE), EARLIEST_S)
    return Term(received_at, received_at + max(life - early, life / 2), received_at + life)


def utc_text(moment: float) -> str:
    """Unix seconds as text for people, in UTC."""
    return datetime.fromtimestamp(min(moment, LAST_DATE_S), UTC).isoformat(timespec="seconds")


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < FAR_AWAY_S:
        return None
    return float(value)


VERSION: Final = 1
DEAD_S: Final = 600.0
"""How long no process retries a refresh token after its refusal."""


@dataclass(frozen=True, slots=True)
class Account:
    """A sign-in with at least one of three credentials. The repr shows no credential."""

    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    received_at: float = 0.0
    """When the access token was received: unix seconds on our own clock."""
    who: str = ""
    """An e-mail address or an id, if known."""
    renewed_by: str = ""
    """The path that renewed the refresh token last."""
    refused: str = ""
    """The digest of the credentials that every way of renewal refused."""
    refused_at: float = 0.0
    copied_from: str = ""
    """The file of another program that this sign-in was copied from."""

    @property
    def renewable(self) -> bool:
        return bool(self.refresh_token or self.api_key)

    def marked_dead(self, now: float) -> "Account":
        return replace(self, refused=self._credentials, refused_at=now)

    def dead(self, now: float) -> bool:
        """True if the refresh token was refused recently, so nothing renews it. An API key is tried again sooner,
        because it cannot be replaced while the gateway runs."""
        lately = self.refused_at - CLOCK_SLACK_S <= now < self.refused_at + DEAD_S
        return bool(self.refresh_token) and lately and self.refused == self._credentials

    @property
    def _credentials(self) -> str:
        return digest(f"{self.refresh_token}\0{self.api_key}")

    @property
    def name(self) -> str:
        return self.who or subject(self.access_token)

    @property
    def identity(self) -> str:
        """A stable identity without secrets, under which conversations are stored."""
        return digest(self.name or self.api_key or self.refresh_token or self.access_token)


def digest(secret: str) -> str:
    """A digest that replaces a secret in comparisons, counts and files."""
    return hashlib.sha256(b"caretway account\0" + secret.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def dump(accounts: Mapping[str, Account]) -> str:
    """Serializes accounts by address."""
    kept = {url: asdict(account) for url, account in accounts.items()}
    return msgspec.json.format(msgspec.json.encode({"version": VERSION, "accounts": kept}), indent=2).decode()


def load(text: str) -> dict[str, Account]:
    """The inverse of `dump`; leaves out entries that are not accounts."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    if not isinstance(value, dict) or value.get("version") != VERSION or not isinstance(value.get("accounts"), dict):
        return {}
    read = {url: _account(entry) for url, entry in value["accounts"].items()}
    return {url: account for url, account in read.items() if account is not None}


def _account(entry: Any) -> Account | None:
    try:
        account = msgspec.convert(entry, Account)
    except msgspec.ValidationError:
        return None
    return account if account.access_token or account.renewable else None
