"""The types with which a dialect declares its paths and operations, for dispatch and `/openapi.json`. No paths and no
behaviour.

Paths stand below the base URL (`/chat/completions`); whoever serves them decides about prefixes. A path may hold
parameters: `{id}` is one segment, `{id:path}` is the rest. Knows no socket and no handler.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

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
    """Of the answer, by its name in `web/openapi.py`; empty: it is plain text."""
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
