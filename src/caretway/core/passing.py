"""What rooms say to each other about a request that another gateway may have to answer: the request as it came, who
asks, where its turn lives, and what a relay needs of a response's writer. Values and Protocols only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

HOP: Final = "x-caretway-hop"
"""The header of a request that was passed on, and of the refusal of one."""
CHALLENGE: Final = "x-caretway-challenge"
"""The header of the first request on a connection between gateways, and of its answer."""


class Asker(Struct, frozen=True):
    """Whom the first gateway let in."""

    key: str = ""
    """The name of the gateway key."""
    agent: str = ""
    owner: str = ""
    """Whose stored responses may be used."""


class Visit(Struct, frozen=True):
    """A request that another gateway let in and passed on."""

    asker: Asker
    came_from: str
    """The id of that gateway."""
    digest: str
    """SHA-256 of the body, in hex."""


class PassedRequest(Struct, frozen=True):
    """A request as it came."""

    method: str
    target: str
    """Path and query, as in a request line."""
    headers: Mapping[str, str]
    body: bytes
    asker: Asker
    request_id: str

    def __repr__(self) -> str:
        """Leaves out the body."""
        return f"PassedRequest({self.method} {self.target}, {self.request_id})"


class Held(Struct, frozen=True):
    """Where the turn of a ticket lives."""

    replica: str
    sid: str


class RelayWriter(Protocol):
    """A response that is written as another gateway gives it."""

    blocked: bool

    def relay(self, status: int, headers: Iterable[tuple[bytes, bytes]], length: int | None) -> None:
        """The head. `length`: of the body, where it is known."""
        ...

    def write(self, data: bytes) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None: ...

    def on_writable(self, wake: Callable[[], None]) -> None: ...


class Elsewhere(Protocol):
    """The other gateways of a cluster, for one of them."""

    @property
    def id(self) -> str:
        """This one's."""
        ...

    @property
    def draining(self) -> bool:
        """Whether it stops soon and begins nothing that another gateway could begin."""
        ...

    def meet(self, challenge: str) -> str:
        """The answer to a challenge. Raises GatewayError where it is not another gateway's."""
        ...

    def visit(self, method: str, target: str, headers: Mapping[str, str]) -> Visit:
        """Who passed this request on, and for whom. Raises GatewayError where that is not proven."""
        ...

    async def lookup(self, made: Held, request: PassedRequest, writer: RelayWriter) -> bool:
        """Whether the gateway that made this response has answered a question about it."""
        ...

    async def answer(self, held: Sequence[Held], request: PassedRequest, writer: RelayWriter) -> str | None:
        """None: another gateway has answered. Otherwise it is to be answered here, and the text says why its turn
        cannot be resumed; empty: there is nothing to say."""
        ...
