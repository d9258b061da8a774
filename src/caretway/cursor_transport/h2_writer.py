"""What an HTTP/2 connection writes next: streams take turns frame by frame (fairness), shut windows and a full socket
wait (backpressure), writes are batched; a peer that does not read our PING answers is cut off.

A stream whose window is shut waits for the update that opens it; when the socket takes no more, all wait: what they say
stays in their outboxes. Many messages leave in one write, at the end of the read that caused them or in the next round
of the loop.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from .h2_codec import H2Codec
from .h2_liveness import Liveness
from .h2_stream import H2Stream

WRITE_BATCH_BYTES: Final = 256 * 1024
"""How much is framed before the transport is asked whether it can take more."""
CONTROL_BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""A peer that makes us answer (PINGs, SETTINGS) and does not read the answers is cut off at this size."""


class H2Writer:
    __slots__ = (
        "_due",
        "_framing",
        "_life",
        "_loop",
        "_not_read",
        "_over",
        "_stuck",
        "blocked",
        "reading",
        "sendable",
        "transport",
    )

    def __init__(
        self, framing: H2Codec, life: Liveness, loop: asyncio.AbstractEventLoop, not_read: Callable[[], None]
    ) -> None:
        """`not_read` is called when the peer does not read what it makes us say."""
        self._framing = framing
        self._life = life
        self._loop = loop
        self._not_read = not_read
        self.transport: asyncio.Transport | None = None
        self.sendable: dict[int, H2Stream] = {}
        """In turn: each sends one frame and goes to the back."""
        self.reading = False
        """A read is being worked on, and whoever does that flushes at its end."""
        self.blocked = False
        """The transport takes no more for now."""
        self._stuck = False  # a stream found its window shut and is not among them
        self._due = False
        self._over = False

    def again(self, streams: Mapping[int, H2Stream]) -> None:
        """Windows may have been opened."""
        if self._stuck:
            self._stuck = False
            self.sendable.update((each.id, each) for each in streams.values() if each.outbox.size)

    def soon(self) -> None:
        if not self.reading and not self._due:
            self._due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._due = False
        sendable, framing = self.sendable, self._framing
        while sendable and not self.blocked and not self._over:
            framed = 0
            while sendable and framed < WRITE_BATCH_BYTES:
                stream_id = next(iter(sendable))
                stream = sendable.pop(stream_id)
                data = stream.outbox.take(framing.room(stream_id))
                if not data:
                    self._stuck = True  # its window is shut; the update that opens it puts the stream back
                    continue
                framing.send(stream_id, data, end=stream.complete and not stream.outbox.size)
                framed += len(data)
                if stream.outbox.size:
                    sendable[stream_id] = stream
            self._life.sent += framed
            self.write()
        if framing.outgoing:
            self.write()

    def write(self) -> None:
        """What is framed, in one piece."""
        data = self._framing.data_to_send()
        if not data or self._over or self.transport is None:
            return
        self.transport.write(data)
        if self.blocked and self.transport.get_write_buffer_size() > CONTROL_BACKLOG_BYTES:
            self._not_read()

    def stop(self) -> None:
        """Nothing leaves any more."""
        self._over = True
        self.sendable.clear()
