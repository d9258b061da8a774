"""One WebSocket (RFC 6455) on a server connection: messages, pings, the idle limit, size and time limits of a message,
the closing handshake, large input, and clients that do not read.

The library reads frames and answers pings and closes; this module connects it to the socket. Outgoing text is framed
here: two to ten bytes before every delta of a stream. The subclass interprets messages.
"""

import asyncio
import codecs
import logging
from abc import abstractmethod
from io import BytesIO
from typing import Any, Final, cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol as Frames
from websockets.protocol import Side, State

from ..core.errors import GatewayError
from ..processes.tasks import aside, spawn
from .connection import ServerState
from .exchange import NEVER, Deadlines, Successor
from .frame_pieces import PIECE, FramePieces
from .shape import LARGE, is_large

MAX_MESSAGE: Final = 16 * 2**20
"""Bytes of one message."""
PING_AFTER_S: Final = 20.0
"""Seconds of silence after which the client is pinged: shorter than the timeouts of proxies."""
GONE_AFTER_S: Final = 80.0
"""Seconds of silence, pongs included, after which the connection is closed."""
IDLE_S: Final = 3600.0
"""Seconds without a request after which the connection is closed."""
CLOSE_S: Final = 5.0
"""Seconds that the peer has for its closing frame."""
MAX_UNSENT: Final = 2**20
"""Bytes that the client has not read yet. Above this number nothing is read from the client, because the responses to
its pings could not leave."""
SLICE: Final = 2048
"""Bytes that are parsed in one step: some hundred frames at most."""
FRAMES_AT_ONCE: Final = 256
"""Frames that are handled before other connections get their turn."""
_LIBRARY: Final = logging.getLogger(f"{__name__}.library")
_LIBRARY.setLevel(logging.WARNING)  # it logs every connection that closes
_POLITE: Final = frozenset({CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY})
_TEXT: Final = 0x81
_SHORT: Final = 126
_MEDIUM: Final = 2**16
_NO_TEXT: Final = object()
_UTF8: Final = codecs.getincrementaldecoder("utf-8")
_PIECE: Final = 256 * 2**10
"""Bytes of text that are checked in one step."""
_DATA: Final = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


def text_frame(payload: bytes) -> bytes:
    """One unmasked text frame, as a server sends it."""
    size = len(payload)
    if size < _SHORT:
        return b"%c%c%b" % (_TEXT, size, payload)
    if size < _MEDIUM:
        return b"%c\x7e%b%b" % (_TEXT, size.to_bytes(2, "big"), payload)
    return b"%c\x7f%b%b" % (_TEXT, size.to_bytes(8, "big"), payload)


def _joined(parts: list[bytearray]) -> bytes:
    """Join in small steps: touching new memory costs the most, and is spread here."""
    whole = BytesIO(bytes(sum(map(len, parts))))
    for part in parts:
        whole.write(part)
    return whole.getvalue()


def _is_utf8(data: bytes) -> bool:
    decoder = _UTF8()
    try:
        for at in range(0, len(data), _PIECE):
            decoder.decode(data[at : at + _PIECE], at + _PIECE >= len(data))
    except UnicodeDecodeError:
        return False
    return True


class _Frames(Frames):
    def recv_frame(self, frame: Frame) -> None:
        """Accept a close frame in the middle of a message, like any control frame (RFC 6455, 5.4)."""
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None
        super().recv_frame(frame)


class Socket(Successor):
    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._max = min(MAX_MESSAGE, server.bodies.limits.size)
        self._frames = _Frames(Side.SERVER, state=State.OPEN, max_size=self._max, logger=_LIBRARY)
        self._deadlines = Deadlines(server.limits.send_timeout)
        self._pieces = FramePieces(self._max)
        self._parts: list[bytearray] = []
        """An incomplete message in a few large buffers, however small its fragments."""
        self._size = 0
        """Bytes of the incomplete message."""
        self._partial = False
        """A message is incomplete; it may have no byte yet."""
        self._looking: asyncio.Task[None] | None = None
        """Reads a large message; frames behind it wait."""
        self._behind: list[Frame] = []
        """Frames that wait behind a large message."""
        self._text = True
        self._held = 0
        """Bytes of the incomplete message that are counted at `bodies`."""
        self._unread = b""
        """Received bytes that are not parsed yet."""
        self._begun = NEVER
        """When the incomplete message began."""
        self._heard = self._asked = self._pinged = self._loop.time()
        self._closing = False
        self.paused = False
        """The client does not read what is written."""
        self.gone = False

    # ---- for the subclass

    @abstractmethod
    def look(self, data: bytes) -> Any:
        """Parse a whole text message for `message`. Pure: for large messages it runs in a thread."""

    @abstractmethod
    def message(self, data: bytes, seen: Any) -> None:
        """Handle a whole text message; it is valid UTF-8."""

    @abstractmethod
    def writable(self, yes: bool) -> None:
        """Called when the client reads again (`yes`), and when the client has stopped reading."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a response is in progress."""

    @abstractmethod
    def wake(self, now: float) -> None:
        """Called periodically."""

    @abstractmethod
    def hung_up(self) -> None:
        """Called when the client is gone or the connection is closing."""

    def binary(self, data: bytes) -> None:
        self.close(CloseCode.UNSUPPORTED_DATA, "Send text, not binary messages.")

    def say(self, payload: bytes) -> None:
        """Send one message."""
        if not self._closing:
            self._transport.write(text_frame(payload))

    def frames(self, data: bytes) -> None:
        """Send several framed messages in one write."""
        if not self._closing:
            self._transport.write(data)

    def close(self, code: int, reason: str = "") -> None:
        """Send a close frame; later input is not read."""
        if self._closing:
            return
        if code in _POLITE:
            self._frames.send_close(code, reason)
        else:  # an error: pending messages are dropped
            self._frames.fail(code, reason)
        self._flush()
        self._leave()

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = self._closing = True
        self._server.left(self)
        self._drop_parts()
        self._unread = b""
        self.hung_up()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._unread or self._looking is not None:  # data may still arrive just after reading was paused
            self._unread += data
        else:
            self._unread = data
            self._read()

    def eof_received(self) -> bool:
        self._frames.receive_eof()
        self._flush()
        return False

    def _read(self) -> None:
        """Parse some of the received bytes; the rest follows in a later step."""
        data, at, handled = self._unread, 0, 0
        while at < len(data) and handled < FRAMES_AT_ONCE and self._looking is None:
            self._frames.receive_data(self._pieces.feed(data[at : at + SLICE]))
            at += SLICE
            if self._frames.state is State.OPEN:
                self._flush()  # a pong goes before the response to a message behind the ping
            for frame in self._frames.events_received():
                handled += 1
                if not self._closing:
                    self._take(cast(Frame, frame))
            self._flush()
            self._account()
        self._unread = data[at:]
        if self._looking is not None:
            self._transport.pause_reading()
        elif self._unread:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.gone or not self._unread or self._looking is not None:
            return
        self._read()
        if not self._unread:
            self._may_read()

    def _may_read(self) -> None:
        idle = not self._unread and self._looking is None
        if not self.gone and idle and self._transport.get_write_buffer_size() <= MAX_UNSENT:
            self._transport.resume_reading()

    def _flush(self) -> None:
        """Send the library's pongs and close frames."""
        for data in self._frames.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():  # a full close could reset data that the client has not read yet
                self._transport.write_eof()
            else:
                self._transport.close()
        if self._frames.state is not State.OPEN:
            self._leave()
        elif self._transport.get_write_buffer_size() > MAX_UNSENT:
            self._transport.pause_reading()

    def _leave(self) -> None:
        if not self._closing:
            self._closing = True
            self._deadlines.due = self._loop.time() + CLOSE_S
            self._drop_parts()
            self.hung_up()

    # ---- messages

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in _DATA:
            return
        if self._looking is not None:
            self._behind.append(frame)
            return
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._partial = True
        if not self._parts or len(self._parts[-1]) >= PIECE:
            self._parts.append(bytearray())
        self._parts[-1] += frame.data
        self._size += len(frame.data)
        if not frame.fin:
            return
        parts, size = self._parts, self._size
        self._drop_parts()
        self._asked = self._loop.time()
        data = b"" if size > LARGE else b"".join(parts)
        if size > LARGE or (self._text and is_large(data)):
            self._server.bodies.take(size, 0)  # `_drop_parts` gave it back a moment ago
            self._looking = spawn(self._look_aside(parts, size), "a large message")
        elif self._text:
            self._tell(data, self._read_text(data))
        else:
            self.binary(data)

    async def _look_aside(self, parts: list[bytearray], size: int) -> None:
        """Handle a large message, then the frames behind it, which may hold another large one."""
        try:
            data, seen = await aside(self._read_parts, parts)
        finally:
            self._server.bodies.give_back(size)
        self._looking = None
        if self._closing:
            return
        if self._text:
            self._tell(data, seen)
        else:
            self.binary(data)
        behind, self._behind = self._behind, []
        for frame in behind:
            if not self._closing:
                self._take(frame)
        self._account()
        if self._looking is None:
            if self._unread:
                self._read_on()
            else:
                self._may_read()

    def _read_parts(self, parts: list[bytearray]) -> tuple[bytes, Any]:
        data = _joined(parts)
        parts.clear()  # the waiting frame still holds the list
        return data, self._read_text(data) if self._text else None

    def _read_text(self, data: bytes) -> Any:
        return self.look(data) if _is_utf8(data) else _NO_TEXT

    def _tell(self, data: bytes, seen: Any) -> None:
        if seen is _NO_TEXT:
            self.close(CloseCode.INVALID_DATA, "The text is not UTF-8.")
        else:
            self.message(data, seen)

    def _account(self) -> None:
        """Count the bytes of an incomplete message among the incoming bodies."""
        if self._closing:
            return
        held = len(self._frames.reader.buffer) + self._size
        more, self._held = held - self._held, held
        if more < 0:
            self._server.bodies.give_back(-more)
        if not held and not self._partial:
            self._begun = self._deadlines.due = NEVER
            return
        now = self._loop.time()
        limits = self._server.bodies.limits
        self._begun = min(self._begun, now)
        if more or self._deadlines.due == NEVER:
            self._deadlines.due = min(now + limits.idle, self._begun + limits.total)
        if more > 0:
            try:
                self._server.bodies.take(more, 0)
            except GatewayError as full:
                self.close(CloseCode.TRY_AGAIN_LATER, full.message)

    def _drop_parts(self) -> None:
        self._parts = []
        self._size = 0
        self._partial = False
        self._server.bodies.give_back(self._held)
        self._held = 0
        self._begun = NEVER

    # ---- time

    def check(self, now: float) -> None:
        deadlines = self._deadlines
        silent = now - self._heard >= GONE_AFTER_S and not self.paused  # a client that reads slowly is alive
        if deadlines.stuck(now, self._transport.get_write_buffer_size()) or silent:
            self._transport.abort()
        elif now >= deadlines.due:
            if self._closing:
                self._transport.abort()
            else:
                self.close(CloseCode.POLICY_VIOLATION, "The message did not arrive in time.")
        elif not self._closing:
            self._look(now)

    def _look(self, now: float) -> None:
        if self.busy:
            self._asked = now
        if now - self._asked >= IDLE_S:
            self.close(CloseCode.NORMAL_CLOSURE, "Nothing was asked for an hour.")
            return
        if now - max(self._heard, self._pinged) >= PING_AFTER_S and not self.paused:
            self._pinged = now
            self._frames.send_ping(b"")
            self._flush()
        self.wake(now)

    def retire(self) -> None:
        self.close(CloseCode.GOING_AWAY, "The gateway stops.")

    def abort(self) -> None:
        self._transport.abort()

    def pause_writing(self) -> None:
        self.paused = True
        self.writable(False)

    def resume_writing(self) -> None:
        self.paused = False
        self._heard = self._loop.time()  # it has read something
        self._may_read()
        self.writable(True)
