"""One GET to an address that was chosen before, bounded in bytes: connects to the checked address and never resolves
the name again (DNS rebinding), follows no redirect, asks for no compression, notices a body that was cut short.

The address is connected to and never looked up again here: a name that changes its address meanwhile (DNS rebinding) is
no way around the check against SSRF, which is `addresses`' and `images`'.

No pool, no cookies, no proxy, no redirects: whoever asks decides about those. The time is the caller's: everything here
awaits, so `asyncio.timeout` around it bounds the whole, however slowly the other side drips.
"""

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Final

import httptools

MAX_HEAD: Final = 64 * 2**10
_READ: Final = 64 * 2**10


class FetchFailed(Exception):
    """What came is not what was asked for, in words."""


@dataclass(slots=True)
class Fetched:
    """Also the parser's listener: it fills this in."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    begun: bool = False
    complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def get(
    address: str, port: int, host: str, target: str, *, tls: ssl.SSLContext | None, max_bytes: int
) -> Fetched:
    """`host`: as the URL names it. Raises FetchFailed, OSError, httptools.HttpParserError."""
    name = f"[{host}]" if ":" in host else host
    reader, writer = await asyncio.open_connection(
        address, port, ssl=tls, server_hostname=host if tls is not None else None, limit=_READ
    )
    try:
        usual = 443 if tls is not None else 80
        lines = [f"GET {target} HTTP/1.1", f"Host: {name}{'' if port == usual else f':{port}'}"]
        lines += ["Accept: image/*", "Accept-Encoding: identity", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("ascii"))
        fetched = Fetched()
        parser = httptools.HttpResponseParser(fetched)
        head = 0
        while not fetched.complete and (data := await reader.read(_READ)):
            parser.feed_data(data)
            fetched.status = parser.get_status_code()
            head += 0 if fetched.begun else len(data)
            if head > MAX_HEAD:
                raise FetchFailed("its head is too large")
            if len(fetched.body) > max_bytes:
                raise FetchFailed(f"it is larger than {max_bytes} bytes")
    finally:
        writer.transport.abort()
    sized = "content-length" in fetched.headers or "transfer-encoding" in fetched.headers
    if not fetched.begun or (sized and not fetched.complete):
        raise FetchFailed("the connection ended too early")
    return fetched
