"""The gateway's identity in calls to Cursor: client type and version, user agent, ghost mode, time zone, the checksum
header, random UUIDs, and the interface for bearer tokens (`TokenSource`)."""

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError
from ..wire.paths import STREAM_TYPE, UNARY_TYPE

# ---- Request headers for both transports: lower-case names, no hop-by-hop headers, request ids. Forbidden characters
# (a line break in a pasted key) are refused without quoting the value. Response headers as text. Pure.

RUN_HEADERS: Final[Mapping[str, str]] = {
    "content-type": STREAM_TYPE,
    "connect-protocol-version": "1",
    "connect-accept-encoding": "gzip",
}
REQUEST_ID: Final = "x-request-id"
ORIGINAL_ID: Final = "x-original-request-id"
APPEND_HEADERS: Final[Mapping[str, str]] = {
    "content-type": UNARY_TYPE,
    "connect-protocol-version": "1",
}

_CARRIERS_OWN: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_NOT_IN_VALUES: Final = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


def head(defaults: Mapping[str, str], headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers with lower-case names and without the transport's own; the caller's values override the defaults. An
    invalid value (a line break in a pasted key) is an error that names the header, but not the value."""
    merged = dict(defaults)
    for name, value in headers.items():
        merged[name.lower()] = value.strip()
    fields = [(name, value) for name, value in merged.items() if name not in _CARRIERS_OWN]
    for name, value in fields:
        if not _NAME.fullmatch(name) or _NOT_IN_VALUES.search(value):
            raise _unsendable(name)
    return fields


def run_ids(request_id: str, original: str) -> list[tuple[str, str]]:
    """The headers that differ for each attempt at a run; `original` may be empty."""
    if _NOT_IN_VALUES.search(request_id + original):
        raise _unsendable(REQUEST_ID)
    return [(REQUEST_ID, request_id), (ORIGINAL_ID, original)] if original else [(REQUEST_ID, request_id)]


def _unsendable(name: str) -> GatewayError:
    return GatewayError(
        ErrorKind.BAD_REQUEST,
        f"the header {name!r} for Cursor cannot be sent: it holds characters that HTTP does not allow",
        hint="If it is a key or a token, copy it again without line breaks.",
    )


def read_fields(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Response fields as text with lower-case names; repeated fields are joined with commas."""
    found: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


class TokenSource(Protocol):
    renewable: bool
    """Whether a refused token can be replaced by a new one."""

    def at_hand(self) -> str | None:
        """The token if it is available at once; None: await `token`."""
        ...

    async def token(self, *, refused: str = "") -> str:
        """A bearer token; `refused` is a token that Cursor did not accept."""
        ...

    async def aclose(self) -> None:
        """Wait a limited time for a pending renewal to end."""
        ...


class Identity(Struct, frozen=True):
    """The gateway's identity, under its own name."""

    client_type: str
    client_version: str
    ghost_mode: bool = True
    time_zone: str = ""
    checksum: bool = False

    def headers(self) -> dict[str, str]:
        """The headers of every call, without the token."""
        headers = {
            "user-agent": self.client_version,
            "x-cursor-client-type": self.client_type,
            "x-cursor-client-version": self.client_version,
            "x-ghost-mode": "true" if self.ghost_mode else "false",
        }
        return {**headers, "x-cursor-timezone": self.time_zone} if self.time_zone else headers


def new_id() -> str:
    """A random UUID, as text. (The standard library builds an object first, which takes twice the time.)"""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def checksum(token: str, now: float) -> str:
    """The checksum header, which some hosts require; two independent clients omit it. `now`: unix seconds."""
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
