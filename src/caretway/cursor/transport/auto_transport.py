"""HTTP/2 or HTTP/1.1: chosen once by ALPN, or without TLS by the peer's first bytes (SETTINGS), and remembered. A peer
that is down decides nothing. `open_transport` builds the transport for a base URL.

Over TLS the handshake tells (ALPN). In the clear the peer's first bytes do: an HTTP/2 server begins with SETTINGS. When
something on the way speaks HTTP/2 to us and HTTP/1.1 to Cursor, a run is answered 464: then it is HTTP/1.1, too.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from ...core.errors import ErrorKind, GatewayError
from .dial import ALPN_BOTH, ALPN_H2, ALPN_HTTP1, Dial, Dialler
from .faults import NeedsHttp1
from .h2_connection import NotHttp2
from .h2_transport import H2Transport
from .ports import DEFAULT_LIMITS, Listening, NewRun, RunHandler, RunStream, Transport, TransportLimits, UnaryResponse

if TYPE_CHECKING:
    from .http1_transport import Http1Transport

Mode = Literal["auto", "h2", "http1"]
T = TypeVar("T")

ALPN: Final[Mapping[Mode, tuple[str, ...]]] = {"auto": ALPN_BOTH, "h2": (ALPN_H2,), "http1": (ALPN_HTTP1,)}
"""What a dial for each mode has to offer."""


class AutoTransport:
    def __init__(self, dial: Dial, mode: Mode = "auto", *, limits: TransportLimits = DEFAULT_LIMITS) -> None:
        self.name: str = mode
        """`auto` until the peer has been asked, then `h2` or `http1`."""
        self._h2: Final = H2Transport(dial, limits=limits)
        self._dial, self._limits = dial, limits
        if mode == "auto":
            self._h2.on_downgrade = self._downgraded
        self._chosen: Transport | None = None
        if mode != "auto":
            self._chosen = self._h2 if mode == "h2" else self._http1

    @cached_property
    def _http1(self) -> "Http1Transport":
        """Import HTTP/1.1 on first use: few need it."""
        from .http1_transport import Http1Transport

        return Http1Transport(self._dial, limits=self._limits)

    async def open_run(self, run: NewRun, handler: RunHandler) -> RunStream:
        return await self._with_carrier(lambda carrier: carrier.open_run(run, handler))

    def open_run_now(self, run: NewRun, handler: RunHandler) -> RunStream | None:
        return None if self._chosen is None else self._chosen.open_run_now(run, handler)

    async def open_stream(
        self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler
    ) -> Listening:
        return await self._with_carrier(lambda carrier: carrier.open_stream(path, headers, message, handler))

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        return await self._with_carrier(lambda carrier: carrier.call(method, path, headers, body))

    async def aclose(self) -> None:
        await self._h2.aclose()
        if "_http1" in self.__dict__:
            await self._http1.aclose()

    async def _with_carrier(self, ask: Callable[[Transport], Awaitable[T]]) -> T:
        if self._chosen is not None:
            return await ask(self._chosen)
        try:
            answer = await ask(self._h2)
        except NotHttp2:
            pass
        else:
            self._choose(self._h2)
            return answer
        try:
            answer = await ask(self._http1)
        except GatewayError as error:
            if error.kind is ErrorKind.UPSTREAM_DOWN:
                raise  # a peer that is gone has told us nothing about itself
            self._choose(self._http1)
            raise
        self._choose(self._http1)
        return answer

    def _choose(self, carrier: Transport) -> None:
        self._chosen, self.name = carrier, carrier.name

    def _downgraded(self, error: NeedsHttp1) -> GatewayError:
        """From now on it is HTTP/1.1, and the run is worth another attempt."""
        self._choose(self._http1)
        return replace(error, kind=ErrorKind.UPSTREAM_DOWN)


def open_transport(
    base_url: str, dialler: Dialler | None = None, *, mode: Mode = "auto", limits: TransportLimits = DEFAULT_LIMITS
) -> AutoTransport:
    """The transport for a base URL, with a dial that offers what the mode can speak. Connects when first used."""
    return AutoTransport((dialler or Dialler()).dial(base_url, alpn=ALPN[mode]), mode, limits=limits)
