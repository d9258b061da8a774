"""A stored sign-in as a value: its tokens, whose it is, its identity without a secret, its format on disk; entries that
cannot be read are left out.

The format on disk is our own and has a version. What cannot be read is ignored as a whole, never used in part.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec

from .token_lifetime import CLOCK_SLACK_S, subject

VERSION: Final = 1
DEAD_S: Final = 600.0
"""How long a refresh token that was refused is not tried again, by any process."""


@dataclass(frozen=True, slots=True)
class Account:
    """Has at least one of the three credentials. None of them is ever printed: they are not in the repr."""

    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    received_at: float = 0.0
    """When the access token was received: unix seconds on our own clock."""
    who: str = ""
    """An e-mail address or an id, if known."""
    renewed_by: str = ""
    """The path that took the refresh token the last time."""
    refused: str = ""
    """The digest of the credentials that every way of renewal refused, and when that was."""
    refused_at: float = 0.0
    copied_from: str = ""
    """The file of another program that this sign-in was copied from."""

    @property
    def renewable(self) -> bool:
        return bool(self.refresh_token or self.api_key)

    def marked_dead(self, now: float) -> "Account":
        return replace(self, refused=self._credentials, refused_at=now)

    def dead(self, now: float) -> bool:
        """Nothing renews it: its refresh token was refused a short while ago. An API key is asked about again sooner,
        because nobody can replace it while the gateway runs."""
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
        """Stable for an account, and not secret: conversations are stored under it."""
        return digest(self.name or self.api_key or self.refresh_token or self.access_token)


def digest(secret: str) -> str:
    """Takes the place of a secret wherever it is compared, counted or stored."""
    return hashlib.sha256(b"caretway account\0" + secret.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def dump(accounts: Mapping[str, Account]) -> str:
    """Accounts by address -> text."""
    kept = {url: asdict(account) for url, account in accounts.items()}
    return msgspec.json.format(msgspec.json.encode({"version": VERSION, "accounts": kept}), indent=2).decode()


def load(text: str) -> dict[str, Account]:
    """The inverse of `dump`; entries that are not accounts are left out."""
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
