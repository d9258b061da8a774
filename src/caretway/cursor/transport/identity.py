"""Who calls Cursor: client type and version headers, user agent, ghost mode, time zone, the checksum header, random
UUIDs, and the interface for bearer tokens (`TokenSource`)."""

import base64
import hashlib
import os
from typing import Protocol

from msgspec import Struct


class TokenSource(Protocol):
    renewable: bool
    """A token that was refused can be replaced by a new one."""

    def at_hand(self) -> str | None:
        """The token, if it is known at once; None: it has to be awaited."""
        ...

    async def token(self, *, refused: str = "") -> str:
        """A bearer token; `refused` is one that was used and not accepted."""
        ...

    async def aclose(self) -> None:
        """Let a renewal that is on its way end, within reason."""
        ...


class Identity(Struct, frozen=True):
    """How the gateway introduces itself: by its own name."""

    client_type: str
    client_version: str
    ghost_mode: bool = True
    time_zone: str = ""
    checksum: bool = False

    def headers(self) -> dict[str, str]:
        """The same in every call; who asks (the token) is not among them."""
        told = {
            "user-agent": self.client_version,
            "x-cursor-client-type": self.client_type,
            "x-cursor-client-version": self.client_version,
            "x-ghost-mode": "true" if self.ghost_mode else "false",
        }
        return {**told, "x-cursor-timezone": self.time_zone} if self.time_zone else told


def new_id() -> str:
    """A random UUID, as text. (The standard library's goes by way of an object, which takes twice the time.)"""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def checksum(token: str, now: float) -> str:
    """Some hosts want this header; the agent calls of two independent clients go without. `now`: unix seconds."""
    bucket = int(now // 1800 * 1800 * 1000) // 1_000_000
    mixed = bytearray(bucket.to_bytes(6, "big"))
    key = 165
    for at in range(6):
        key = mixed[at] = ((mixed[at] ^ key) + at) % 256
    parts = token.split(".")
    payload = parts[1] if len(parts) == 3 else token
    first = hashlib.sha256(payload.encode()).hexdigest()[:8]
    second = hashlib.sha256(token.encode()).hexdigest()[:8]
    return f"{base64.urlsafe_b64encode(bytes(mixed)).decode().rstrip('=')}{first}/{second}"
