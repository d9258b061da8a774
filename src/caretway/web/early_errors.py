"""What is said to a client whose request could not be read: there is no exchange, and the connection ends."""

import time
from collections.abc import Callable

import httptools

from ..core.errors import GatewayError, bad_request
from .exchange import Exchange, HttpRequest
from .head import http_date

Refuse = Callable[[Exchange, GatewayError], None]


class _Collected:
    """A line that keeps what is said."""

    def __init__(self) -> None:
        self.said = b""

    def write(self, data: bytes) -> None:
        self.said += data

    def date(self) -> bytes:
        return http_date(time.time())

    def answered(self) -> None: ...

    def abort(self) -> None: ...


def early_error(refuse: Refuse, url: bytes, error: GatewayError) -> bytes:
    """The bytes of a refusal to a client whose request could not be read."""
    line = _Collected()
    http = HttpRequest("GET", url.decode("latin-1").partition("?")[0], {})
    refuse(Exchange(line, http, keep_alive=False, chunked=False), error)
    return line.said


def not_http(broken: httptools.HttpParserError) -> GatewayError:
    """The parser's reasons name no data; what a callback raised may."""
    reason = "" if isinstance(broken, httptools.HttpParserCallbackError) else f": {broken}"
    return bad_request(f"This is not valid HTTP{reason}.", code="invalid_http")
