"""Public APIs, one folder each: they translate between an API and core. A dialect is pure: ids and times are arguments,
and nothing is awaited.

`decode` reads the raw body, which is not used after that; `Encoder` makes the stream's bytes; `render` makes the whole
answer from the same events, folded. What a decoder understood but cannot honour goes into `request.ignored`.

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
    """Unique. Of a dialect: a key of its `lookups`, unless the operation is a turn."""
    summary: str
    answers: str
    """What a 200 brings, in words."""
    schema: str = ANY_OBJECT
    """Of the answer, by its name in `api/openapi.py`; empty: it is plain text."""
    body: str = ""
    """Schema of the request's body; empty: none."""
    error: str = "OpenAIError"
    """Schema of an error."""
    turn: bool = False
    """The model is asked: the answer may be a stream and takes one of the `max_concurrent` places."""
    links: tuple[str, ...] = ()
    """Operations on what this one made, by its `id`."""


class DialectRoute(Struct, frozen=True):
    """One path of a public API."""

    path: str
    operations: Mapping[str, Operation]
    """By method."""
    websocket: bool = False
    """The turns of this path may also be asked for over a WebSocket."""


class ResponseMeta(Struct, frozen=True, gc=False):
    """What an answer needs beside its events."""

    id: str
    """Random and unique, without a dialect's prefix."""
    created: int
    """Unix seconds."""
    model: str
    """The model as the client named it."""


class Encoder(Protocol):
    """One streamed response."""

    @property
    def keep_alive(self) -> bytes:
        """What to send while upstream is silent; harmless to every client. Read each time."""
        ...

    def feed(self, events: Sequence[Event]) -> bytes:
        """The bytes for these events: one write. After a terminal event the stream is complete, end marker included."""
        ...


class Dialect(Protocol):
    name: str
    routes: tuple[DialectRoute, ...]
    """Its paths. What is below the first segment of one is answered in this API's words, if only by an error."""
    lookups: Mapping[str, Lookup]
    """The operations that need no turn (a token count, a stored object), by their id."""
    mark: str
    """A header that only this API's clients send, in lower case; empty: there is none."""
    repeats: int
    """How often a stream repeats every word, its end included. The more often, the shorter an answer must be."""

    def recalls(self, body: bytes) -> bool:
        """True when a body may refer to large earlier responses. (`decode` then runs aside.)"""
        ...

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        """The parsed JSON body -> a request, or GatewayError(BAD_REQUEST | UNSUPPORTED). Header names: lower case."""
        ...

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder: ...

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        """The whole answer as JSON. `reply.error` is None here: errors go through `error`."""
        ...

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        """HTTP status and JSON body."""
        ...

    def render_models(self, models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
        """The model list, as this API's clients read it. `created`: unix seconds. `query`: which page, where the API
        has pages."""
        ...

    def render_model(self, model: ModelInfo, created: int) -> bytes: ...


@runtime_checkable
class ServesSockets(Protocol):
    """A dialect whose turns may be asked for over a WebSocket."""

    def forget(self, connection: str) -> None:
        """The connection is closed, and what was kept for it alone is not needed any more."""
        ...
