"""The interface between the simulator's HTTP servers and its service: a request, its response (start, write, finish,
cut, congested), and the inlet for its body.

All calls run on the event loop and do not block; a sender of much data checks `congested`. Independent of Cursor's
protocol.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Lower-case names; the last value of a repeated header."""
    http: Literal["1.1", "2"]
    scheme: str = "http"
    on_team_host: bool = False
    peer: Any = None
    """The client's address."""

    @property
    def base(self) -> str:
        """Scheme and host, as the client sent them."""
        return f"{self.scheme}://{self.header(':authority') or self.header('host')}"

    def header(self, name: str) -> str:
        return self.headers.get(name, "")

    @property
    def content_type(self) -> str:
        return self.header("content-type").partition(";")[0].strip().lower()

    @property
    def bearer(self) -> str:
        scheme, _, token = self.header("authorization").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


class SimExchange(Protocol):
    """The response half of one request. After the end of either side, calls do nothing."""

    @property
    def congested(self) -> bool:
        """Whether the client reads more slowly than the server writes: then wait for `drained` before writing more."""
        ...

    async def drained(self) -> None:
        """Wait until there is room again, or the exchange is over."""
        ...

    def start(self, status: int, headers: Headers) -> None: ...

    def write(self, data: bytes) -> None:
        """Send one piece of the body at once."""
        ...

    def finish(self) -> None: ...

    def cut(self) -> None:
        """Cut the response without an end, like a network failure."""
        ...


class Inlet(Protocol):
    """Receives the body of one request."""

    def on_data(self, data: bytes) -> None: ...

    def on_end(self) -> None:
        """Called when the client's body is complete."""
        ...

    def on_gone(self) -> None:
        """Called when the stream was reset, or the connection lost, before the response was complete."""
        ...


Accept = Callable[[Request, SimExchange], Inlet]


def answer(exchange: SimExchange, status: int, content_type: str, body: bytes) -> None:
    exchange.start(status, [("content-type", content_type), ("content-length", str(len(body)))])
    if body:
        exchange.write(body)
    exchange.finish()


class Deaf:
    """An inlet that ignores the rest of a request's body."""

    def on_data(self, data: bytes) -> None:
        pass

    def on_end(self) -> None:
        pass

    def on_gone(self) -> None:
        pass
