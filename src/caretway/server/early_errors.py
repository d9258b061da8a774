"""The bytes of an error for a request that could not be read as HTTP (a malformed or too large head, too many
connections): there is no request to answer, and the connection ends after it.
"""

import time
from collections.abc import Callable
from typing import Final

import httptools

from ..core.errors import GatewayError, bad_request
from .exchange import ResponseWriter
from .head import http_date

_TLS_HELLO: Final = b"\x16\x03"
_NO_TLS: Final = (
    "Write http:// instead of https:// in the client's base URL, or give the gateway a certificate (--tls-cert and "
    "--tls-key)."
)

Refuse = Callable[[str, ResponseWriter, GatewayError], None]


class _Collected:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def date(self) -> bytes:
        return http_date(time.time())

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None: ...

    def answered(self) -> None: ...

    def abort(self) -> None: ...


def early_error(refuse: Refuse, url: bytes, error: GatewayError, *, head_only: bool = False) -> bytes:
    """The bytes of a refusal to a client whose request could not be read. `head_only`: it asked for a head alone."""
    transport = _Collected()
    path = url.decode("latin-1").partition("?")[0]
    refuse(path, ResponseWriter(transport, keep_alive=False, chunked=False, head_only=head_only), error)
    return transport.written


def not_http(broken: httptools.HttpParserError, data: bytes) -> GatewayError:
    """The parser's reasons name no data; what a callback raised may."""
    if data.startswith(_TLS_HELLO):
        return bad_request("TLS was spoken to a port that speaks plain HTTP.", code="tls_on_plain_port", hint=_NO_TLS)
    reason = "" if isinstance(broken, httptools.HttpParserCallbackError) else f": {broken}"
    return bad_request(f"This is not valid HTTP{reason}.", code="invalid_http")


def plain_on_tls_port() -> GatewayError:
    hint = "Write https:// instead of http:// in the client's base URL."
    return bad_request("Plain HTTP was spoken to a port that speaks TLS.", code="plain_on_tls_port", hint=hint)
