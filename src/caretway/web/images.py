"""Images that a request only names by URL: fetched before the request is decoded, if that is switched on.

Off by default: a gateway that fetches what it is told can be used to look around in a private network. `public` fetches
from public addresses only, checked after the name was resolved and for every redirect, and connects to the address that
was checked. `any` fetches from anywhere. What comes back must be an image, and not too large.
"""

import asyncio
import base64
import http.client
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urljoin, urlsplit

from ..core.errors import GatewayError, bad_request

MAX_IMAGES: Final = 32
MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True)
class ImageFetcher:
    scope: Literal["public", "any"]
    timeout: float
    max_bytes: int

    async def inline(self, body: Any) -> int:
        """Replaces every image URL in the body by a `data:` URL (or base64 source); says how many there were."""
        places = [place for place in _places(body) if place.url.lower().startswith(("http://", "https://"))]
        if len(places) > MAX_IMAGES:
            raise bad_request(f"A request may name at most {MAX_IMAGES} images by URL.", code="too_many_images")
        fetched = await asyncio.gather(*(asyncio.to_thread(self.fetch, place.url) for place in places))
        for place, (mime_type, data) in zip(places, fetched, strict=True):
            place.put(mime_type, base64.b64encode(data).decode())
        return len(places)

    def fetch(self, url: str) -> tuple[str, bytes]:
        """(type, bytes); blocking. Raises GatewayError(BAD_REQUEST) that says which image and why."""
        asked = url
        try:
            for _ in range(MAX_REDIRECTS + 1):
                status, headers, data = self._get(url)
                if status in _REDIRECTS and (target := headers.get("location")):
                    url = urljoin(url, target)
                    continue
                mime_type = headers.get("content-type", "").partition(";")[0].strip().lower()
                if status != 200:
                    raise _failed(asked, f"HTTP {status}")
                if mime_type not in _TYPES:
                    raise _failed(asked, f"it is {mime_type or 'of no declared type'}, not a supported image")
                return mime_type, data
        except (OSError, http.client.HTTPException, ValueError) as failure:
            raise _failed(asked, str(failure) or type(failure).__name__) from failure
        raise _failed(asked, "too many redirects")

    def _get(self, url: str) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _failed(url, "it is not an http or https URL")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connection = _Pinned(parts.hostname, port, self._address(parts.hostname, port), parts.scheme, self.timeout)
        try:
            connection.request("GET", f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}")
            response = connection.getresponse()
            data = response.read(self.max_bytes + 1)
            if len(data) > self.max_bytes:
                raise _failed(url, f"it is larger than {self.max_bytes} bytes")
            return response.status, {name.lower(): value for name, value in response.getheaders()}, data
        finally:
            connection.close()

    def _address(self, host: str, port: int) -> str:
        found = [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        allowed = [address for address in found if self.scope == "any" or ipaddress.ip_address(address).is_global]
        if not allowed:
            raise _failed(host, "its address is not a public one")
        return allowed[0]


class _Pinned(http.client.HTTPConnection):
    """Connects to the address that was checked, whatever the name resolves to by now."""

    def __init__(self, host: str, port: int, address: str, scheme: str, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._address = address
        self._tls = ssl.create_default_context() if scheme == "https" else None

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an image URL stands in a body, in one of the three spellings of the public APIs."""

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
