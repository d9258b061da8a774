"""The opening handshake of a WebSocket (RFC 6455, 4.2): what a request must bring, 400 or 426 where it does not, and
the headers of the 101. Pure.

No extension is agreed to: permessage-deflate costs memory and time for each connection, may hide a bomb, and saves
nothing on the same machine. No subprotocol is known.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Final

from ..core.errors import ErrorKind, GatewayError, bad_request
from .exchange import Header

VERSION: Final = "13"
OTHER_VERSION: Final[tuple[Header, ...]] = (
    (b"sec-websocket-version", VERSION.encode()),
    (b"upgrade", b"websocket"),
    (b"connection", b"Upgrade"),
)
"""Headers of the 426 (RFC 6455, 4.4; RFC 9110, 15.5.22)."""
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NONCE_BYTES: Final = 16


def switching(headers: Mapping[str, str]) -> tuple[Header, ...]:
    """The headers of the 101, or GatewayError. Names are in lower case."""
    if not speaks_version(headers):
        raise GatewayError(
            ErrorKind.WRONG_PROTOCOL,
            "The WebSocket's version is not spoken here.",
            hint=f"Send `Sec-WebSocket-Version: {VERSION}`, or POST over HTTP/1.1.",
        )
    key = headers.get("sec-websocket-key", "").strip()
    if not _is_nonce(key):
        raise bad_request("A WebSocket needs a Sec-WebSocket-Key of 16 bytes in base64.", code="invalid_handshake")
    return (
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", accept_of(key)),
    )


def speaks_version(headers: Mapping[str, str]) -> bool:
    return headers.get("sec-websocket-version", "").strip() == VERSION


def accept_of(key: str) -> bytes:
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest())


def _is_nonce(key: str) -> bool:
    try:
        return len(base64.b64decode(key.encode("latin-1"), validate=True)) == _NONCE_BYTES
    except (binascii.Error, ValueError):
        return False
