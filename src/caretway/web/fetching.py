"""One GET to an address that was chosen before, bounded in bytes: connects to the checked address and never resolves
the name again (DNS rebinding), follows no redirect, asks for no compression, notices a body that was cut short.

The address is connected to and never looked up again here: a name that changes its address meanwhile (DNS rebinding) is
no way around the check against SSRF, which is `addresses`' and `images`'. A proxy is asked for the same address.

No pool, no cookies, no redirects: whoever asks decides about those, and whoever connects about proxies. The time is the
caller's: everything here awaits, so `asyncio.timeout` around it bounds the whole, however slowly the other side drips.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import httptools
from msgspec import Struct, field

P = TypeVar("P", bound=asyncio.Protocol)

MAX_HEAD: Final = 64 * 2**10
_READ: Final = 64 * 2**10


class FetchFailed(Exception):
    """What came is not what was asked for, in words."""


class Connector(Protocol):
    """Opens connections, through a proxy where there is one."""

    def looks_up(self, scheme: str, host: str, port: int) -> bool:
        """The name is looked up on this machine. False: a proxy does that, unless it is given an address."""
        ...

    async def connect(
        self, protocol_factory: Callable[[], P], scheme: str, host: str, port: int, address: str
    ) -> tuple[asyncio.Transport, P]:
        """To `address` (or a name, when nobody looked it up here), with TLS for `host` if the scheme is https. Raises
        GatewayError."""
        ...


class Fetched(Struct):
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
    connector: Connector, scheme: str, host: str, port: int, target: str, *, address: str, max_bytes: int
) -> Fetched:
    """`host`: as the URL names it. Raises FetchFailed, GatewayError, OSError, httptools.HttpParserError."""
    name = f"[{host}]" if ":" in host else host
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_READ, loop)
    transport, protocol = await connector.connect(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), scheme, host, port, address
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        usual = 443 if scheme == "https" else 80
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
