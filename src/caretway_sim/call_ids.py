"""Deterministic ids of simulated calls, models and execs: by profile long ids with a newline, or another id in the
envelope than in the call.

Unique, because the request id is; the same every time, because nothing is random.
"""

import hashlib
from dataclasses import dataclass

from .manners import Manners


@dataclass(frozen=True, slots=True)
class CallIds:
    envelope: str
    """In the updates that show the call."""
    inner: str
    """In the call itself; its result is matched by this one."""


class Ids:
    def __init__(self, request_id: str, manners: Manners) -> None:
        self._request_id = request_id
        self._manners = manners
        self._last = 0

    def new(self, kind: str) -> str:
        return f"{kind}_{self._digest(kind)[:16]}"

    def call(self) -> CallIds:
        digest = self._digest("call")
        inner = long_id(digest, self._last) if self._manners.long_ids else f"call_{digest[:16]}"
        return CallIds(f"toolu_{digest[40:64]}" if self._manners.two_ids else inner, inner)

    def _digest(self, kind: str) -> str:
        self._last += 1
        return hashlib.sha256(f"{self._request_id}/{kind}/{self._last}".encode()).hexdigest()


def long_id(digest: str, number: int) -> str:
    """Two ids with a newline between them, 85 characters for the first nine: what Cursor was seen to send."""
    return f"call-{_uuid(digest[:32])}-{number}\nfc_{_uuid(digest[32:64])}_{number}"


def _uuid(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
