"""One HTTP/1.1 connection to another gateway: sends a request's head, and its body only when it was accepted (100
Continue), so that a request is never half given; relays the answer as it comes, with the pace of the slower side.

It begins with a challenge, whose answer may be 4 kB: nobody knows yet who the other side is.

A kept connection that turns out to be closed has taken nothing: the body was not sent.
"""

import asyncio
import socket
from collections.abc import Iterable
from typing import Final, cast

import httptools

from ..core.passing import CHALLENGE, HOP, RelayWriter
from .signature import HopSession

_DROPPED: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date"})
_HOP: Final = HOP.encode()
_MAX_ANSWER: Final = 4096
_MAX_TOLD: Final = 300


class HopFailed(Exception):
    """The hop failed before the client got anything."""

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale
        """It was a kept connection, and the request was not read."""


class HopConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self.closed = False
        self.session: HopSession | None = None
        """Once the other side has proved who it is."""
        self._met: asyncio.Future[bytes] | None = None
        self._first = b""
        """What came of the answer to the challenge."""
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._writer: RelayWriter | None = None
        self._body = b""
        self._accepted: asyncio.Future[None] | None = None
        self._done: asyncio.Future[None] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._status = 0
        self._length: int | None = None
        self._refused = ""
        self._paused = False
        self.reusable = True
        self.told: tuple[tuple[bytes, bytes], ...] = ()
        """Headers that the client gets with every answer from here."""

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            _watch(plain)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._met is not None and not self._met.done():
            self._met.set_result(b"")
        self._fail("its connection was lost")

    def data_received(self, data: bytes) -> None:
        if self._met is not None and not self._met.done():
            self._first += data
            if b"\r\n\r\n" in self._first or len(self._first) > _MAX_ANSWER:
                self._met.set_result(self._first)
            return
        if self._parser is None:
            self.abort()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("its answer is no HTTP")
            self.abort()

    def eof_received(self) -> None:
        return None

    # ---- the challenge

    async def meet(self, head: bytes, patience: float) -> str:
        """The answer to the challenge in this head. Raises HopFailed."""
        met: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._met = met
        self._transport.write(head)
        try:
            async with asyncio.timeout(patience):
                answer = await met
        except TimeoutError:
            raise HopFailed(f"it did not answer the challenge within {patience:.0f} s") from None
        finally:
            if self.session is None and (not met.done() or met.cancelled()):
                self.abort()
        self._first = b""
        lines = [line.partition(":") for line in answer.decode("latin-1").split("\r\n")[1:]]
        values = {name.lower(): value.strip() for name, _, value in lines}
        if CHALLENGE not in values:
            self.abort()
            raise HopFailed(_readable(values.get(HOP, "it did not answer the challenge")))
        return values[CHALLENGE]

    # ---- one request

    async def ask(self, head: bytes, body: bytes, writer: RelayWriter, patience: float) -> None:
        """The answer goes to the writer. Returns when it is complete, or was cut after it began: then the writer was
        aborted. Raises HopFailed."""
        loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._writer, self._body, self._status, self._refused = writer, body, 0, ""
        accepted, done = self._accepted, self._done = loop.create_future(), loop.create_future()
        done.add_done_callback(_seen)
        self._transport.write(head)
        try:
            try:
                async with asyncio.timeout(patience):
                    await asyncio.wait((accepted, done), return_when=asyncio.FIRST_COMPLETED)
            except TimeoutError:
                raise HopFailed(f"it did not take the request within {patience:.0f} s") from None
            await done
        finally:
            if not done.done() or done.cancelled() or done.exception() is not None:
                self.abort()
            self._parser = self._writer = self._accepted = self._done = None

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def _fail(self, why: str) -> None:
        writer, done = self._writer, self._done
        if done is None or done.done():
            return
        self.reusable = False
        if self._status and writer is not None:
            writer.abort()  # what began and cannot end must not look complete
            done.set_result(None)
        else:
            done.set_exception(HopFailed(why, stale=self._accepted is not None and not self._accepted.done()))

    # ---- the parser

    def on_message_begin(self) -> None:
        self._headers, self._length = [], None

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length":
            self._length = int(value)
        elif name == _HOP:
            self._refused = _readable(value.decode("latin-1"))
        elif name not in _DROPPED:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            if self._accepted is not None and not self._accepted.done():
                self._accepted.set_result(None)
                self._transport.write(self._body)
                self._body = b""
            return
        self.reusable = self._parser.should_keep_alive()
        if self._accepted is None or not self._accepted.done():
            self.reusable = False  # it was answered without its body
        if self._refused:
            self._fail(self._refused)
            return
        writer = self._writer
        assert writer is not None
        self._status = status
        writer.on_writable(self._resume)
        writer.relay(status, (*self._headers, *self.told), self._length)

    def on_body(self, data: bytes) -> None:
        writer = self._writer
        if self._status and writer is not None:
            writer.write(data)
            if writer.blocked and not self._paused:
                self._paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        done = self._done
        if not self._status or done is None or done.done():
            return
        assert self._writer is not None
        self._writer.finish()
        done.set_result(None)

    def _resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()


def _readable(told: str) -> str:
    """For the log. The peer chooses the words, so terminal codes are removed."""
    return ascii(told[:_MAX_TOLD])[1:-1]


def _seen(done: "asyncio.Future[None]") -> None:
    """`ask` reports its failure, if it still waits."""
    if not done.cancelled():
        done.exception()


def _watch(plain: socket.socket) -> None:
    """A machine that lost its power says nothing: the kernel asks."""
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000)):
        option = getattr(socket, name, None)
        if option is not None:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)


def head_bytes(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1\r\n", *[f"{name}: {value}\r\n" for name, value in headers], "\r\n"]
    return "".join(lines).encode("latin-1", "replace")
