"""The interface between the simulator's HTTP servers and its service: a request, its answer (start, write, finish, cut,
congested), and the inlet for its body.

Everything is called on the event loop and nothing blocks; a sender that has much to say looks at `congested`. Nothing
here knows Cursor's protocol.
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
    """Lower-case names; of a repeated header the last one."""
    http: Literal["1.1", "2"]
    scheme: str = "http"
    on_team_host: bool = False
    peer: Any = None
    """The client's address."""

    @property
    def base(self) -> str:
        """Scheme and host, as the client wrote them."""
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
    """The answering half of one request. Calls after the end (ours or the client's) do nothing."""

    @property
    def congested(self) -> bool:
        """The client reads more slowly than we write: wait for `drained` before writing more."""
        ...

    async def drained(self) -> None:
        """Returns when there is room again, or when the exchange is over."""
        ...

    def start(self, status: int, headers: Headers) -> None: ...

    def write(self, data: bytes) -> None:
        """One piece of the body, on its way at once."""
        ...

    def finish(self) -> None: ...

    def cut(self) -> None:
        """Break off without an end, as a failing network would."""
        ...


class Inlet(Protocol):
    """Takes the body of one request."""

    def on_data(self, data: bytes) -> None: ...

    def on_end(self) -> None:
        """The client has said everything it will say."""
        ...

    def on_gone(self) -> None:
        """The stream was reset or the connection was lost before the answer was complete."""
        ...


Accept = Callable[[Request, SimExchange], Inlet]


def answer(exchange: SimExchange, status: int, content_type: str, body: bytes) -> None:
    exchange.start(status, [("content-type", content_type), ("content-length", str(len(body)))])
    if body:
        exchange.write(body)
    exchange.finish()


class Deaf:
    """An inlet for a request whose body does not matter any more."""

    def on_data(self, data: bytes) -> None:
        pass

    def on_end(self) -> None:
        pass

    def on_gone(self) -> None:
        pass
