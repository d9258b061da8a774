"""Fetches the images that a request names by URL, if `fetch_images` allows it, and turns them into data URLs before
decoding.

Off by default: a gateway that fetches any URL can be used to probe a private network (SSRF, server-side request
forgery). `public` fetches from public addresses only (`is_public`); the address is checked after the lookup and at
every redirect, and the connection goes to the checked address, directly or through a proxy. `any` fetches from
everywhere and leaves lookups to a proxy. A name is looked up once, so DNS rebinding cannot pass the check. The response
must be an image within the limits of size and time; the time limit covers lookups, redirects and slow servers.
"""

import asyncio
import base64
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

import httptools
from msgspec import Struct, field

from ..core.addresses import is_public
from ..core.errors import GatewayError, bad_request
from ..processes.tasks import aside

P = TypeVar("P", bound=asyncio.Protocol)

MAX_IMAGES: Final = 32
TIMEOUT_S: Final = 10.0
"""Time limit of one image."""
MAX_BYTES: Final = 20 * 2**20
_FETCHED: Final = ("http://", "https://")
MAX_REDIRECTS: Final = 3
MAX_IN_ALL: Final = 32 * 2**20
"""Bytes of all images that one request names."""
AT_ONCE: Final = 8
"""Concurrent fetches, for all clients together."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_NAMES: Final = ThreadPoolExecutor(4, "names")
"""Threads for name lookups, so that a lookup that hangs blocks only one of them."""
_SLICE: Final = 3 * 2**18
MAX_HEAD: Final = 64 * 2**10
_READ: Final = 64 * 2**10


class FetchFailed(Exception):
    """An image could not be fetched; the message says why."""


class Connector(Protocol):
    """Opens connections, directly or through a proxy."""

    def looks_up(self, scheme: str, host: str, port: int) -> bool:
        """Whether this machine must look up the name. False: `connect` accepts the name, and a proxy looks it up."""
        ...

    async def connect(
        self, protocol_factory: Callable[[], P], scheme: str, host: str, port: int, address: str
    ) -> tuple[asyncio.Transport, P]:
        """Connect to `address` (a name, if the proxy looks it up), with TLS for `host` if the scheme is https. Raises
        GatewayError."""
        ...


class Fetched(Struct):
    """A fetched image; also the listener of the HTTP parser, which fills it."""

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


class ImageFetcher:
    def __init__(
        self,
        scope: Literal["public", "any"],
        connector: Connector,
        timeout: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._scope = scope
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._connector = connector

    async def inline(self, body: Any) -> int:
        """Replace every image URL in the body by a `data:` URL (or base64 source). Returns the number of images."""
        places = [place for place in await aside(_places, body) if place.url[:8].lower().startswith(_FETCHED)]
        if len(places) > MAX_IMAGES:
            raise bad_request(f"A request may name at most {MAX_IMAGES} images by URL.", code="too_many_images")
        if not places:
            return 0
        try:
            async with asyncio.TaskGroup() as fetching:
                tasks = [fetching.create_task(self._fetch_in_turn(place.url)) for place in places]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        fetched = [task.result() for task in tasks]
        if sum(len(image.body) for _, image in fetched) > MAX_IN_ALL:
            raise bad_request(
                f"The images that the request names are larger than {MAX_IN_ALL} bytes together.",
                code="too_many_images",
            )
        for place, (mime_type, image) in zip(places, fetched, strict=True):
            place.put(mime_type, await aside(_encoded, image.body))
        return len(places)

    async def _fetch_in_turn(self, url: str) -> tuple[str, Fetched]:
        async with self._turn:
            return await self.fetch(url)

    async def fetch(self, url: str) -> tuple[str, Fetched]:
        """Returns (type, image). Raises GatewayError(BAD_REQUEST) with the URL and the reason."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._fetch(url)
        except TimeoutError as late:
            raise _failed(url, f"it did not come within {self._timeout:g} s") from late
        except GatewayError as failure:
            raise _failed(url, str(failure).rstrip(".")) from failure
        except (OSError, ValueError, FetchFailed, httptools.HttpParserError) as failure:
            raise _failed(url, str(failure)[:200] or type(failure).__name__) from failure

    async def _fetch(self, url: str) -> tuple[str, Fetched]:
        for _ in range(MAX_REDIRECTS + 1):
            fetched = await self._get(url)
            if fetched.status in _REDIRECTS and (target := fetched.headers.get("location")):
                url = urljoin(url, target)
                continue
            mime_type = fetched.headers.get("content-type", "").partition(";")[0].strip().lower()
            if fetched.status != 200:
                raise FetchFailed(f"HTTP {fetched.status}")
            if mime_type not in _TYPES:
                raise FetchFailed(f"it is {mime_type[:60] or 'of no declared type'}, not a supported image")
            return mime_type, fetched
        raise FetchFailed("too many redirects")

    async def _get(self, url: str) -> Fetched:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FetchFailed("it is not an http or https URL")
        target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
        if not target.isascii() or not target.isprintable() or " " in target or not host.isprintable():
            raise FetchFailed("its URL has characters that must be escaped")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = await self._address(parts.scheme, host, port)
        return await get(self._connector, parts.scheme, host, port, target, address=address, max_bytes=self._max_bytes)

    async def _address(self, scheme: str, host: str, port: int) -> str:
        if self._scope == "any" and not self._connector.looks_up(scheme, host, port):
            return host

        def look_up() -> list[str]:
            return [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

        found = await asyncio.get_running_loop().run_in_executor(_NAMES, look_up)
        allowed = [address for address in found if self._scope == "any" or is_public(address)]
        if not allowed:
            raise FetchFailed("its address is not a public one")
        return allowed[0]


def _encoded(data: bytearray) -> str:
    """Encode in steps: the encoder holds the interpreter lock."""
    return "".join([base64.b64encode(data[at : at + _SLICE]).decode() for at in range(0, len(data), _SLICE)])


async def get(
    connector: Connector, scheme: str, host: str, port: int, target: str, *, address: str, max_bytes: int
) -> Fetched:
    """One GET of at most `max_bytes`: connects to `address`, follows no redirect, requests no compression, detects a
    truncated body. `host`: as in the URL. The caller sets the time limit. Raises FetchFailed, GatewayError, OSError,
    httptools.HttpParserError."""
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


class _Place(Struct, frozen=True):
    """The position of an image URL in a body, in one of the three spellings of the public APIs."""

    holder: dict[str, Any]
    key: str
    url: str
    whole_source: bool = False

    def put(self, mime_type: str, data: str) -> None:
        if self.whole_source:
            self.holder[self.key] = {"type": "base64", "media_type": mime_type, "data": data}
        else:
            self.holder[self.key] = f"data:{mime_type};base64,{data}"


def _places(body: Any) -> list[_Place]:
    found: list[_Place] = []
    waiting = [body]
    while waiting:  # no recursion: a body may be nested deeply
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            named = value.get("image_url")
            source = value.get("source")
            if isinstance(named, str):
                found.append(_Place(value, "image_url", named))
            elif isinstance(named, dict) and isinstance(named.get("url"), str):
                found.append(_Place(named, "url", named["url"]))
            if isinstance(source, dict) and source.get("type") == "url" and isinstance(source.get("url"), str):
                if value.get("type") == "image":
                    found.append(_Place(value, "source", source["url"], whole_source=True))
            else:
                waiting.extend(value.values())
    return found


def _failed(url: str, why: str) -> GatewayError:
    return bad_request(
        f"The image at {url[:200]} cannot be used: {why}.", code="image_not_fetched", hint="Send it as a data: URL."
    )
