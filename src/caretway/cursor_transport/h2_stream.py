"""One HTTP/2 stream: its outbox, its pause and resume (backpressure), its owner, and its end, which is told once. An
owner that fails is logged and harms no other stream. The connection moves the bytes."""

import logging
from typing import Protocol

from ..core.errors import GatewayError
from .outbox import Outbox
from .sink import NOBODY, StreamSink

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """The connection, as its streams see it."""

    def queue(self, stream: "H2Stream", data: bytes) -> None: ...
    def reopen_window(self, stream: "H2Stream") -> None: ...
    def reset(self, stream: "H2Stream") -> None: ...
    def doubt(self) -> None: ...


class H2Stream:
    """One request and its response."""

    __slots__ = ("_connection", "arrived", "complete", "ended", "id", "outbox", "over", "paused", "sink", "unread")

    def __init__(self, connection: Carrier, stream_id: int, sink: StreamSink, *, complete: bool) -> None:
        self._connection = connection
        self.id = stream_id
        self.sink = sink
        self.complete = complete
        """The outbox holds all of the request: its last byte ends our half."""
        self.outbox = Outbox()
        self.arrived: list[bytes] = []
        self.unread = 0
        """Bytes received for which the peer's window was not opened again."""
        self.paused = False
        self.ended = False
        """The peer has nothing more to say."""
        self.over = False
        """Forgotten by the connection; nothing is sent or told any more."""

    def send(self, data: bytes) -> None:
        if not self.over:
            self._connection.queue(self, data)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._connection.reopen_window(self)

    def doubt(self) -> None:
        self._connection.doubt()

    def close(self) -> None:
        self.sink = NOBODY
        self._connection.reset(self)

    # -- for the connection -------------------------------------------------------------------------------------------

    def tell_end(self, error: GatewayError | None) -> None:
        sink, self.sink = self.sink, NOBODY
        try:
            sink.on_end(error)
        except Exception:  # one run's failure must not cut the other runs of the connection
            log.exception("the owner of a stream failed at its end")

    def forget(self) -> None:
        self.over = True
        self.outbox.clear()
        self.arrived.clear()

    def cut(self, cause: GatewayError) -> None:
        """The connection is gone."""
        self.forget()
        self.tell_end(cause)
