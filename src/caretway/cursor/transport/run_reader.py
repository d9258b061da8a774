"""Reads the response of a run, for both transports: Connect frames become messages in small slices, with backpressure.
Handles a refusal's body, a wrong content type and a stream cut inside a message. `UnaryAnswer` reads a unary call.
Input, as a transport's `StreamSink`: status and headers, then body bytes in any chunking, then the end. Output, to the
run's handler: messages, then the outcome. A callback processes a small part of a large read; the transport is paused,
and further callbacks process the rest. Many messages that need answers are delivered one by one, so that an answer is
sent before the next is made.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from ...core.errors import GatewayError
from ..wire.envelope import NO_STAND_INS, EnvelopeError, EnvelopeReader
from ..wire.heavy import STAND_INS, TooMuch, informs, lighten
from .faults import broke_protocol, cut, fault_from_status, unhandled
from .ports import RunHandler, TransportLimits, UnaryResponse

log = logging.getLogger(__name__)

SLICE_MESSAGES: Final = 256
SLICE_BYTES: Final = 32 * 1024
"""Bytes that one callback processes, unless a single message is larger."""
FEW: Final = 4
"""Up to this many messages of one read are delivered together, not counting short updates. If there are more, each
message that may need an answer gets its own callback, because answers may be large."""
PIECES_AT_ONCE: Final = 4
"""Pieces of a long text per callback."""
MAX_FOREIGN_BYTES: Final = 1024 * 1024
_STREAM_TYPES: Final = "application/connect+"
_UPDATE: Final = b"\x0a"
_SHORT: Final = 127


class _Nobody:
    def on_messages(self, messages: list[bytes]) -> None: ...
    def on_closed(self, error: GatewayError | None) -> None: ...


_NOBODY: Final = _Nobody()


class RunReader:
    __slots__ = (
        "_batches",
        "_due",
        "_end",
        "_envelope",
        "_foreign",
        "_handler",
        "_heavy",
        "_held",
        "_in_pieces",
        "_max_refusal",
        "_refusal",
        "_status",
        "_waits",
    )

    def __init__(self, handler: RunHandler, limits: TransportLimits, *, foreign: bool = False) -> None:
        """`foreign`: messages of another kind than a run's. They must be small, because they cannot be inspected before
        decoding."""
        self._handler = handler
        self._foreign = foreign
        self._envelope = EnvelopeReader(
            min(limits.max_frame_bytes, MAX_FOREIGN_BYTES) if foreign else limits.max_frame_bytes,
            NO_STAND_INS if foreign else STAND_INS,
        )
        self._status = 0
        self._refusal: tuple[Mapping[str, str], bytearray] | None = None  # headers, beginning of the body
        self._max_refusal = limits.max_refusal_bytes
        self._batches: list[list[bytes]] = []  # read but not delivered, the last first
        self._heavy: bytes | None = None  # a heavy message to deliver after them
        self._in_pieces = False  # `_batches` are pieces of one heavy message
        self._end: tuple[GatewayError | None] | None = None  # the transport's end, while messages wait
        self._held = False  # by the owner
        self._waits = False  # messages wait: the transport is paused
        self._due = False  # the callback for the next slice is scheduled

    # -- for the owner ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self._held = True
        self._hold_back()

    def resume(self) -> None:
        self._held = False
        if self._waits:
            self._soon()
        else:
            self._let_go()

    def close(self) -> None:
        self._handler = _NOBODY  # breaks the reference cycle with the run's opener
        self._batches.clear()
        self._heavy = None
        self._envelope = EnvelopeReader()
        self._waits = False
        self._give_up()

    # -- for the transports -----------------------------------------------------------------------------------------

    def _hold_back(self) -> None:
        """Pause reading this run from the socket soon."""

    def _let_go(self) -> None: ...

    def _give_up(self) -> None: ...

    # -- StreamSink ---------------------------------------------------------------------------------------------------

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        if status != 200:
            self._refusal = headers, bytearray()
            return
        kind = headers.get("content-type", _STREAM_TYPES)
        if not kind.startswith(_STREAM_TYPES):
            raise broke_protocol(f"the answer to a run is {kind!r} and not a Connect stream")

    def on_data(self, data: bytes) -> None:
        if self._refusal is not None:
            self._read_refusal(*self._refusal, data)
        elif self._waits or self._held:
            self._envelope.hold(data)
            self._waits = True
        else:
            envelope = self._envelope
            try:
                messages = envelope.feed(data, SLICE_MESSAGES, SLICE_BYTES)
            except EnvelopeError as broken:
                raise broke_protocol(str(broken)) from broken
            if envelope.clean and len(messages) <= FEW:
                if messages:
                    self._handler.on_messages(messages)
                return
            if messages[FEW:] or envelope.heavy:
                self._tell_many(messages)
            elif messages:
                self._handler.on_messages(messages)
            if self._batches or self._envelope.more or self._heavy is not None:  # a new reader after `close`
                self._waits = True
                self._hold_back()
                self._soon()

    def on_end(self, error: GatewayError | None) -> None:
        if self._waits and self._handler is not _NOBODY:
            self._end = (error,)
        else:
            self._closed(error)

    def _closed(self, error: GatewayError | None) -> None:
        handler, self._handler = self._handler, _NOBODY
        handler.on_closed(self._outcome(error))

    def _read_refusal(self, headers: Mapping[str, str], body: bytearray, data: bytes) -> None:
        body += data[: self._max_refusal - len(body)]
        if len(body) >= self._max_refusal:
            raise self._refused(headers, body)  # the beginning is enough

    # -- slices -------------------------------------------------------------------------------------------------------

    def _tell_many(self, messages: list[bytes]) -> None:
        if self._foreign:
            self._handler.on_messages(messages)
            return
        if self._envelope.heavy:
            self._heavy = messages.pop()  # in its own callback
        others = 0
        for message in messages:
            # Like `informs` for short messages, without a call for every delta.
            if message[:1] != _UPDATE or not message[1:] or message[1] > _SHORT or message[message[1] + 2 :]:
                others += 1
                if others > FEW:
                    self._batches, self._in_pieces = _batches(messages)[::-1], False
                    self._tell_batches()
                    return
        if messages:
            self._handler.on_messages(messages)

    def _lighten(self, heavy: bytes) -> None:
        self._heavy = None
        self._in_pieces = True
        try:
            self._batches = [[each] for each in reversed(lighten(heavy))]
        except TooMuch as refused:
            raise broke_protocol(str(refused)) from refused

    def _tell_batches(self) -> None:
        at_once = PIECES_AT_ONCE if self._in_pieces else 1
        while self._batches and not self._held and at_once:
            at_once -= 1
            self._handler.on_messages(self._batches.pop())

    def _soon(self) -> None:
        if not self._due and not self._held:
            self._due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._due = False
        if self._held or not self._waits:
            return
        try:
            if self._heavy is not None and not self._batches:  # earlier messages come first
                self._lighten(self._heavy)
            if self._batches:
                self._tell_batches()
            else:
                self._waits = False
                self.on_data(b"")
        except Exception as failure:  # as in the connections: the owner gets the error
            self._broken(failure)
            return
        if self._batches or self._envelope.more or self._heavy is not None:
            self._soon()
            return
        self._waits = False
        if self._end is not None:
            (error,), self._end = self._end, None
            self._closed(error)
        elif not self._held:
            self._let_go()

    def _broken(self, failure: Exception) -> None:
        if not isinstance(failure, GatewayError):
            log.error("the owner of a run failed: %s", failure, exc_info=failure)
            failure = unhandled(failure)
        handler = self._handler
        self.close()
        handler.on_closed(failure)

    def _outcome(self, error: GatewayError | None) -> GatewayError | None:
        """The outcome of the stream after the response has ended, with or without an error."""
        if self._refusal is not None:
            return self._refused(*self._refusal)  # more specific than the connection's error
        if error is not None:
            return error
        if self._status == 0:
            return broke_protocol("the stream ended without a response")
        return cut("the stream ended in the middle of a message") if self._envelope.mid_frame else None

    def _refused(self, headers: Mapping[str, str], body: bytearray) -> GatewayError:
        return fault_from_status(self._status, headers, bytes(body))


def _batches(messages: list[bytes]) -> list[list[bytes]]:
    """Group messages for delivery: adjacent updates together, each other message alone."""
    batches: list[list[bytes]] = []
    together = False
    for message in messages:
        news = informs(message)
        if news and together:
            batches[-1].append(message)
        else:
            batches.append([message])
        together = news
    return batches


class UnaryAnswer:
    """The answer to one unary call, collected up to a size limit. Awaited as `response`."""

    def __init__(self, max_bytes: int) -> None:
        self.response: asyncio.Future[UnaryResponse] = asyncio.get_running_loop().create_future()
        self.heard = False
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._body = bytearray()
        self._max_bytes = max_bytes

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.heard = True
        self._status, self._headers = status, headers

    def on_data(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._max_bytes:
            raise broke_protocol(f"the answer to a call is larger than {self._max_bytes} bytes")

    def on_end(self, error: GatewayError | None) -> None:
        if self.response.done():
            return
        if error is None and not self.heard:
            error = broke_protocol("a call ended without a response")
        if error is not None:
            self.response.set_exception(error)
        else:
            self.response.set_result(UnaryResponse(self._status, self._headers, bytes(self._body)))
