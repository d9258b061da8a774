"""TLS on the listening socket, and plain HTTP that is spoken to it: answered with a refusal in plain HTTP, which names
the mistake, then the end.

OpenSSL knows the first bytes of such a request, and gives up the handshake. It takes their line with it, so the refusal
is in no API's own words.
"""

import ssl
from collections.abc import Callable
from typing import Any, Final, cast

_PLAIN_HTTP: Final = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
"""OpenSSL's reasons: GET, HEAD, POST, PUT; CONNECT."""


class TlsContext(ssl.SSLContext):
    """Of a server. `refusal` is set when it starts: the bytes for a client that spoke plain HTTP."""

    refusal: Callable[[], bytes]

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *given: Any, **named: Any) -> ssl.SSLObject:
        made = cast(_Handshake, super().wrap_bio(incoming, outgoing, *given, **named))
        made.outgoing = outgoing
        return made


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    refused: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self.refused is not None:
            raise self.refused
        try:
            super().do_handshake()
        except ssl.SSLError as failure:
            if failure.reason not in _PLAIN_HTTP:
                raise
            self.refused = failure
            self.outgoing.write(cast(TlsContext, self.context).refusal())
            # The event loop sends what is outgoing only when a handshake is not over. The client hangs up, or the
            # handshake's time limit ends it.
            raise ssl.SSLWantReadError from failure


def tls_context(certificate: str, key: str) -> TlsContext:
    context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Handshake
    context.load_cert_chain(certificate, key)
    return context
