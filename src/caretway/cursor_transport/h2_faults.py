"""Errors of HTTP/2 itself: RST_STREAM codes in words, REFUSED_STREAM and unprocessed streams as `Unprocessed` (safe to
send again), and whether a peer's first bytes are HTTP/2 at all."""

from typing import Final

from ..core.errors import ErrorKind, GatewayError
from .faults import HINTS, cut
from .h2_frames import Code, FrameType

_TYPE_AT: Final = 3


class NotHttp2(GatewayError):
    """The peer is there and does not speak HTTP/2."""


class Unprocessed(GatewayError):
    """The peer says that it never looked at the request: sending it again is safe."""


def speaks_http2(first_bytes: bytes | bytearray) -> bool | None:
    """A server's first frame is SETTINGS; `HTTP/1.1 400` has a P where the type would be. None: too few bytes yet."""
    return first_bytes[_TYPE_AT] == FrameType.SETTINGS if len(first_bytes) > _TYPE_AT else None


def reset_fault(host: str, code: int) -> GatewayError:
    if code == Code.REFUSED_STREAM:
        return unprocessed(host, "refused the stream")
    try:
        name = Code(code).name
    except ValueError:
        name = f"code {code}"
    return cut(f"{host} reset the stream ({name})")


def unprocessed(host: str, what: str) -> Unprocessed:
    return Unprocessed(ErrorKind.UPSTREAM_DOWN, f"Cursor: {host} {what}", hint=HINTS[ErrorKind.UPSTREAM_DOWN])
