"""Values and Protocols for requests that another gateway of a cluster may have to answer: the request, its caller, the
holder of its turn, and the writer of a relayed response.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

HOP: Final = "x-caretway-hop"
"""The header of a forwarded request, and of its refusal."""
CHALLENGE: Final = "x-caretway-challenge"
"""The header of the first request on a connection between gateways, and of its answer."""


class Asker(Struct, frozen=True):
    """The caller that the first gateway admitted."""

    key: str = ""
    """The name of the gateway key."""
    agent: str = ""
    owner: str = ""
    """The owner of the stored responses that the request may use."""


class Visit(Struct, frozen=True):
    """A request that another gateway admitted and forwarded."""

    asker: Asker
    came_from: str
    """The id of that gateway."""
    digest: str
    """SHA-256 of the body, in hex."""


class PassedRequest(Struct, frozen=True):
    """A request as the client sent it."""

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
    """The gateway and the turn, by their ids, that a ticket names."""

    replica: str
    sid: str


class RelayWriter(Protocol):
    """The writer of a response that is relayed from another gateway."""

    blocked: bool

    def relay(self, status: int, headers: Iterable[tuple[bytes, bytes]], length: int | None) -> None:
        """Write the head. `length`: the body's length, if known."""
        ...

    def write(self, data: bytes) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None: ...

    def on_writable(self, wake: Callable[[], None]) -> None: ...


class Elsewhere(Protocol):
    """The other gateways of a cluster, as one gateway sees them."""

    @property
    def id(self) -> str:
        """The id of this gateway."""
        ...

    @property
    def draining(self) -> bool:
        """Whether this gateway stops soon and leaves new turns to other gateways."""
        ...

    def meet(self, challenge: str) -> str:
        """The answer to a challenge. Raises GatewayError if the challenge is not from another gateway."""
        ...

    def visit(self, method: str, target: str, headers: Mapping[str, str]) -> Visit:
        """The gateway that forwarded a request, and its caller. Raises GatewayError without proof."""
        ...

    async def lookup(self, made: Held, request: PassedRequest, writer: RelayWriter) -> bool:
        """Let the gateway that made a response answer a lookup. True if that gateway has answered."""
        ...

    async def answer(self, held: Sequence[Held], request: PassedRequest, writer: RelayWriter) -> str | None:
        """Let the turn's gateway answer. None if that gateway has answered; otherwise the caller must answer, and the
        text, possibly empty, says why the turn cannot be resumed."""
        ...
