"""Sign-ins to remote MCP servers: one private file or keyring entry for each server's URL. Each has its own lock, so
that a server that hangs during a renewal does not block other servers.

`oauth` sends the requests and loads the SDK.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ..accounts.store import DIRECTORY, LockedDirectory, SignInStore, open_vault
from ..core.errors import GatewayError

FILE: Final = "sign-in.json"
EARLY_S: Final = 30.0
"""Seconds before its end at which a token is renewed, or the last tenth of its life if that is shorter."""
LONGEST_LIFE_S: Final = 10 * 365 * 86_400

TOKEN: Final = re.compile(r"[!-~]+")
"""A token that a header can hold."""
MAX_WHY: Final = 160
"""Characters of a reason, so that the command after the reason is not cut off."""

SignInState = Literal["", "signed in", "needed", "expired", "refused"]
"""Empty if the server did not require a sign-in."""


class McpSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A server's sign-in in the SDK's form. Its repr shows only the address."""

    url: str
    tokens: dict[str, Any]
    client: dict[str, Any]
    metadata: dict[str, Any] | None = None
    """The authorization server's metadata, with the address for renewals."""
    resource: dict[str, Any] | None = None
    received_at: float = 0.0
    ends_at: float | None = None
    """Unix seconds; None if unknown."""
    refused: str = ""
    """Why the server refused a renewal."""

    def __repr__(self) -> str:
        return f"McpSignIn({self.url!r})"

    @property
    def access_token(self) -> str:
        return str(self.tokens["access_token"])

    @property
    def renewable(self) -> bool:
        return bool(self.tokens.get("refresh_token")) and not self.refused

    def over(self, now: float) -> bool:
        return self.ends_at is not None and now >= self.ends_at

    def due(self, now: float) -> bool:
        """Whether it is time to renew."""
        if self.ends_at is None:
            return False
        return now >= max(self.ends_at - EARLY_S, self.received_at + 0.9 * (self.ends_at - self.received_at))

    def secrets(self) -> list[str]:
        found = (self.tokens.get("access_token"), self.tokens.get("refresh_token"), self.client.get("client_secret"))
        return [str(secret) for secret in found if secret]


class SignInFile(LockedDirectory):
    """The stored sign-in to one server. File and keyring block, so they run in a thread."""

    def __init__(self, vault: SignInStore, directory: Path, url: str) -> None:
        super().__init__(directory)
        self._vault = vault
        self.url = url
        self.place = vault.place

    async def read(self) -> McpSignIn | None:
        text = await asyncio.to_thread(self._vault.read)
        try:
            kept = msgspec.json.decode(text or "", type=McpSignIn)
        except (msgspec.DecodeError, RecursionError):
            return None
        return kept if kept.url == self.url and TOKEN.fullmatch(str(kept.tokens.get("access_token", ""))) else None

    async def write(self, sign_in: McpSignIn) -> None:
        """Store the sign-in. The caller holds `locked`."""
        await asyncio.to_thread(self._vault.write, msgspec.json.encode(sign_in).decode())

    async def forget(self) -> bool:
        """Erase the sign-in, even if it is unreadable. Returns False if there was none."""
        async with self.locked():
            try:
                there = await self.read() is not None
            except GatewayError:
                there = True
            await asyncio.to_thread(self._vault.erase)
        return there


def open_sign_in(data_dir: Path, kind: str, url: str) -> SignInFile:
    """The stored sign-in for a URL. `kind`: `file` or `keyring`."""
    name = f"mcp-{hashlib.sha256(url.encode()).hexdigest()[:32]}"
    directory = data_dir / DIRECTORY / name
    return SignInFile(open_vault(kind, directory, file=FILE, name=name), directory, url)


class SignInNeeded(Exception):
    """The server needs a new sign-in. The text gives the reason and the command."""

    def __init__(self, state: SignInState, why: str, command: str, changed: Callable[[], Awaitable[object]]) -> None:
        super().__init__(f"{why[:MAX_WHY]}: run `{command}`")
        self.state: SignInState = state
        self.changed = changed
        """Waits until the stored sign-in changes."""


def ends_at(expires_in: object, now: float) -> float | None:
    return now + min(max(expires_in, 0), LONGEST_LIFE_S) if isinstance(expires_in, int) else None
