"""The event stream of the dashboard: takes one snapshot a second for all readers, and none without readers. A slow
reader gets only the newest snapshot; a sign-out ends its readers.

Streams of models do not notify the feed: it reads existing counters.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ..api.routes import HttpCall
from ..core.errors import ErrorKind, GatewayError
from ..dialects.in_turn import one_line
from ..server.exchange import ResponseWriter

TICK_S: Final = 1.0
KEEP_ALIVE_S: Final = 15.0
MAX_READERS: Final = 64
LOOK_AGAIN_S: Final = 60.0
"""The interval for checking whether a cookie has expired."""
HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_CREDENTIALS: Final = ("host", "cookie", "authorization", "x-api-key", "x-caretway-key")
_encode: Final = msgspec.json.Encoder().encode
SIGNED_OUT: Final = b"event: signed_out\ndata: {}\n\n"

Marks = Mapping[str, object]
"""Tab -> a value that differs after a change of the tab."""


def frame(event: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), one_line(_encode(data)))


class Reader:
    """One open stream. At most one snapshot and the names of stale tabs wait for it."""

    def __init__(self, writer: ResponseWriter, credentials: Mapping[str, str]) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.credentials = credentials
        self._writer = writer
        self._late: bytes | None = None
        self._stale: set[str] = set()
        self.written_at = time.monotonic()
        writer.on_writable(self._catch_up)

    def give(self, snapshot: bytes | None, stale: set[str]) -> None:
        """Send the snapshot, which is None if it has not changed, and the names of stale tabs. Both wait while the
        client does not read."""
        if self.over.done():
            return
        if self._writer.blocked:
            self._late = snapshot or self._late
            self._stale |= stale
            return
        data = (snapshot or b"") + (frame("changed", {"what": sorted(stale)}) if stale else b"")
        if not data and time.monotonic() - self.written_at >= KEEP_ALIVE_S:
            data = b":\n\n"
        if data:
            self.written_at = time.monotonic()
            self._writer.write(data)

    def _catch_up(self) -> None:
        late, stale = self._late, self._stale
        self._late, self._stale = None, set()
        if (late or stale) and not self.over.done():
            self.give(late, stale)

    def end(self, last: bytes = b"") -> None:
        if not self.over.done():
            self.over.set_result(None)
            self._writer.finish(last)


class Feed:
    def __init__(
        self,
        look: Callable[[], dict[str, Any]],
        marks: Callable[[], Marks],
        allowed: Callable[[Mapping[str, str]], bool],
        access_mark: Callable[[], object],
    ) -> None:
        """`look` makes the snapshot, `marks` the marks of the other tabs. `allowed`: whether these headers still give
        access; `access_mark` differs when that may have changed."""
        self._look = look
        self._marks = marks
        self._allowed = allowed
        self._access_mark = access_mark
        self._readers: set[Reader] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_snapshot: dict[str, Any] = {}
        self._frame = b""
        self._seen: Marks = {}
        self._checked_mark: object = None
        self._checked_at = 0.0
        self._closed = False
        self._marked: set[str] = set()

    def mark(self, what: str) -> None:
        """Marks a tab as changed by the user."""
        if self._readers:
            self._marked.add(what)

    @property
    def readers(self) -> int:
        return len(self._readers)

    async def serve(self, call: HttpCall) -> None:
        """Serves one reader until it disconnects or is dropped."""
        if self._closed or len(self._readers) >= MAX_READERS:
            raise GatewayError(
                ErrorKind.OVERLOADED,
                f"{MAX_READERS} pages are open already.",
                hint="Close one.",
                code="too_many_readers",
            )
        headers = call.request.headers
        credentials = {name: headers[name] for name in _CREDENTIALS if name in headers}
        call.request.drop_headers()
        if not self._readers:
            self._begin()
        reader = Reader(call.response, credentials)
        self._readers.add(reader)
        try:
            self._renew()
            call.response.start([*call.headers, *HEADERS], b"retry: 1000\n\n" + self._frame)
            await reader.over
        finally:
            self._readers.discard(reader)
            if not self._readers and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def close(self) -> None:
        """Ends all readers, so that an open dashboard does not delay shutdown."""
        self._closed = True
        for reader in list(self._readers):
            reader.end()

    # ---- once a second, while there are readers

    def _begin(self) -> None:
        self._seen, self._checked_mark, self._checked_at = self._marks(), self._access_mark(), time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._check_access()
        renewed = self._renew()
        marks, before = self._marks(), self._seen
        self._seen = marks
        stale = {what for what, mark in marks.items() if mark != before.get(what)} | self._marked
        self._marked = set()
        for reader in self._readers:
            reader.give(self._frame if renewed else None, stale)

    def _renew(self) -> bool:
        """Make a new snapshot. Returns False if only the time has changed."""
        snapshot = self._look()
        at = snapshot.pop("at")
        if snapshot == self._last_snapshot:
            return False
        self._last_snapshot = snapshot
        self._frame = frame("now", {"at": at, **snapshot})
        return True

    def _check_access(self) -> None:
        mark, now = self._access_mark(), time.monotonic()
        if mark == self._checked_mark and now - self._checked_at < LOOK_AGAIN_S:
            return
        self._checked_mark, self._checked_at = mark, now
        for reader in list(self._readers):
            if not self._allowed(reader.credentials):
                reader.end(SIGNED_OUT)
