"""Serves the files of the dashboard, read once and held in memory: types, headers (a strict Content-Security-Policy, no
framing, no sniffing), etags; and whether a client wants the dashboard."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError
from ..server.exchange import NOT_MODIFIED, Header

if TYPE_CHECKING:
    from .routes import HttpCall

TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".ico": b"image/x-icon",
    ".woff2": b"font/woff2",
}
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"font-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", POLICY),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"accept"),
)


class _File(Struct, frozen=True):
    content: bytes
    type: bytes
    etag: bytes


class PageFiles:
    def __init__(self, folder: Path) -> None:
        """Read every file of a known type in the folder, without sub-folders."""
        self._files = {
            path.name: _read(path)
            for path in sorted(folder.iterdir() if folder.is_dir() else ())
            if path.suffix in TYPES and path.is_file()
        }

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(file.content) for file in self._files.values())

    def send(self, name: str, call: "HttpCall") -> None:
        file = self._files.get(name)
        if file is None:
            raise GatewayError(ErrorKind.NOT_FOUND, "The dashboard has no such file.", hint="Open / in a browser.")
        headers = [*call.headers, *HEADERS, (b"etag", file.etag)]
        if call.request.headers.get("if-none-match", "").encode("latin-1") == file.etag:
            call.response.send(NOT_MODIFIED, b"", headers)
        else:
            call.response.send(200, file.content, headers, content_type=file.type)


def wants_page(headers: Mapping[str, str]) -> bool:
    """True for browsers, which name text/html; programs that accept any type get JSON."""
    return "text/html" in headers.get("accept", "")


def _read(path: Path) -> _File:
    content = path.read_bytes()
    etag = b'"%b"' % hashlib.sha256(content).hexdigest()[:20].encode()
    return _File(content, TYPES[path.suffix], etag)
