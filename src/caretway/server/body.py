"""Limits of request bodies: the size of one, the bytes of all that are arriving, the time for one; compressed bodies
(`content-encoding`, decompression bombs) are refused.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError, bad_request

MAX_DIGITS: Final = 18
"""A longer number is larger than any limit."""


class BodyLimits(Struct, frozen=True):
    size: int = 32 * 2**20
    in_all: int = 256 * 2**20
    """Bytes of bodies that are not complete yet, and of WebSocket messages that wait, all clients together."""
    idle: float = 30.0
    total: float = 300.0


class Bodies:
    """The bodies that are arriving, and what WebSockets keep for longer."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._held = 0
        self._kept = 0

    def expect(self, headers: Mapping[str, str]) -> None:
        """A head announces its body; raises GatewayError when it is not wanted."""
        announced = headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > MAX_DIGITS or int(announced) > self.limits.size):
            raise _too_large(self.limits.size)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise bad_request(
                "Compressed request bodies are not accepted.", hint="Send the body without content-encoding."
            )

    def take(self, piece: int, body: int) -> None:
        """`piece` more bytes of a body that has `body` now; raises GatewayError when that is too much."""
        self._held += piece
        if body > self.limits.size:
            raise _too_large(self.limits.size)
        if self._held > self.limits.in_all:
            raise GatewayError(ErrorKind.OVERLOADED, "Too many large requests are arriving at once.")

    def give_back(self, body: int) -> None:
        """A body is complete, or not wanted any more."""
        self._held -= body

    def keep(self, size: int) -> bool:
        """Whether there is room for so much that stays until its client takes something. Half is left for arrivals:
        clients that do not read must not keep others out."""
        if self._kept + size > self.limits.in_all // 2 or self._held + size > self.limits.in_all:
            return False
        self._kept += size
        self._held += size
        return True

    def release(self, size: int) -> None:
        self._kept -= size
        self._held -= size


def _too_large(limit: int) -> GatewayError:
    return GatewayError(
        ErrorKind.TOO_LARGE,
        f"The request body is larger than {limit} bytes.",
        hint="Raise `max_body_bytes` if that is intended.",
    )


def too_slow(limits: BodyLimits) -> GatewayError:
    return GatewayError(
        ErrorKind.SLOW_REQUEST,
        f"The request body did not arrive in time: at most {limits.idle:g} s of silence, {limits.total:g} s in all.",
    )
