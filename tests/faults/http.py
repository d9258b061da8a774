"""A client's connection: one POST at a time over a kept HTTP/1.1 connection, and an exact account of how it ended.

Written for this: it must be cheaper than what it tests, and it must tell a body that ended from one that was cut.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import httptools

from watched_answers import WATCH


@dataclass(slots=True)
class Got:
    """What came back for one POST."""

    status: int = 0
    """0: not even a head."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False
    """The body came to its end."""
    late: bool = False
    """The client's own patience was over first."""
    seconds: float = 0.0


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._got = Got()
        self._parts: list[bytes] = []
        self._parser: httptools.HttpResponseParser | None = None
        self._done: asyncio.Future[None] | None = None
        self.usable = True

    @classmethod
    async def open(cls, port: int) -> "Connection":
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    async def post(self, path: str, headers: Mapping[str, str], body: bytes, patience: float) -> Got:
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._got, self._parts = Got(), []
        self._parser = httptools.HttpResponseParser(self)
        self._done = loop.create_future()
        lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        began = loop.time()
        self._transport.write("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body)
        if not self.usable:
            self._done.set_result(None)
        try:
            async with asyncio.timeout(patience):
                await self._done
        except TimeoutError:
            self._got.late = True
            self.close()
        self._got.body = b"".join(self._parts)
        WATCH.saw(path, headers, self._got.status, self._got.headers, self._got.body, whole=self._got.whole)
        self._got.seconds = loop.time() - began
        return self._got

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # ---- told by the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._got.whole:
            self.close()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._end()

    def _end(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    # ---- told by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._got.headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._got.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self._got.whole = True
        self.usable = self.usable and self._parser.should_keep_alive()
        self._end()
