"""Public APIs, one folder each, translated to and from core. A dialect is pure: ids and times are arguments, and
nothing is awaited.

`decode` reads the raw body, which is not used after that; `Encoder` makes the stream's bytes; `render` makes the whole
answer from the same events, folded. Known fields without effect go into `request.ignored`.

A dialect declares its paths and operations for dispatch and `/openapi.json`. Paths stand below the base URL
(`/chat/completions`); the server decides about prefixes. A path may hold parameters: `{id}` is one segment, `{id:path}`
is the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from ..core.errors import GatewayError
from ..core.events import Event
from ..core.fold import Reply
from ..core.request import TurnRequest
from ..core.turn import ModelInfo

Lookup = Callable[[Mapping[str, str], Mapping[str, str], object], bytes]
"""(the path's parameters, headers, parsed JSON body or None) -> JSON. Raises GatewayError."""

ANY_OBJECT: Final = "Any"


class Operation(Struct, frozen=True):
    """One method of one path."""

    id: str
    """Unique; also the key in the dialect's `lookups`, unless the operation is a turn."""
    summary: str
    answers: str
    """A description of the answer with status 200."""
    schema: str = ANY_OBJECT
    """Schema of the answer, by its name in `api/openapi.py`; empty: plain text."""
    body: str = ""
    """Schema of the request's body; empty: none."""
    error: str = "OpenAIError"
    """Schema of an error."""
    turn: bool = False
    """Whether a model answers: the answer may be a stream and takes one of the `max_concurrent` places."""
    links: tuple[str, ...] = ()
    """Ids of operations on the created object."""


class DialectRoute(Struct, frozen=True):
    """One path of a public API."""

    path: str
    operations: Mapping[str, Operation]
    """Method -> operation."""
    websocket: bool = False
    """Whether turns of this path may also be requested over a WebSocket."""


class ResponseMeta(Struct, frozen=True, gc=False):
    """The facts that an answer needs in addition to its events."""

    id: str
    """Random and unique, without a dialect's prefix."""
    created: int
    """Unix seconds."""
    model: str
    """The model as the client named it."""


class Encoder(Protocol):
    """Encodes the events of one streamed response."""

    @property
    def keep_alive(self) -> bytes:
        """The bytes to send while upstream is silent, harmless to every client. Read it before each use."""
        ...

    def feed(self, events: Sequence[Event]) -> bytes:
        """The bytes for these events, for one write. After a terminal event the stream is complete, including its end
        marker."""
        ...


class Dialect(Protocol):
    name: str
    routes: tuple[DialectRoute, ...]
    """Its paths. Unknown paths below their first segments get errors in this API's form."""
    lookups: Mapping[str, Lookup]
    """The operations that need no turn (a token count, a stored object), by their id."""
    mark: str
    """A header that only this API's clients send, in lower case; empty if there is none."""
    repeats: int
    """How often a stream sends each word, its last events included; divides the length limit of an answer."""

    def recalls(self, body: bytes) -> bool:
        """Whether a body may refer to large earlier responses. (`decode` then runs in a thread.)"""
        ...

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        """Decode the parsed JSON body. Raises GatewayError(BAD_REQUEST | UNSUPPORTED). Header names: lower case."""
        ...

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder: ...

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        """The whole answer as JSON. `reply.error` is None here: errors go through `error`."""
        ...

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        """HTTP status and JSON body."""
        ...

    def render_models(self, models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
        """The model list in this API's form. `created`: unix seconds. `query`: the page, if the API has pages."""
        ...

    def render_model(self, model: ModelInfo, created: int) -> bytes: ...


@runtime_checkable
class ServesSockets(Protocol):
    """A dialect whose turns may be requested over a WebSocket."""

    def forget(self, connection: str) -> None:
        """Drop the data of a closed connection."""
        ...
