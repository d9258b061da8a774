"""The Protocols between the packages: Backend, Turn, Source, Stage; abilities of a backend, models and variants,
snapshots. No behaviour.

Events travel in batches: the events of one upstream read are passed on, encoded and written together. A reader takes
events when it is ready, so a slow client puts backpressure only on its own run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from .events import Event
from .request import Text, ToolResult, TurnRequest

if TYPE_CHECKING:
    from .request import TurnRequest

Standing = Literal["official", "unofficial", "stand-in", "simulated"]
"""A backend's relation to Cursor. `stand-in`: another address answers instead of Cursor."""
SIMULATED: Final = "answers are simulated; for real ones run `caretway login`"
"""The detail of a status that needs no sign-in."""


class Abilities(Struct, frozen=True):
    """What a backend can do; by default nothing. Code branches on this, never on a backend's name."""

    client_tools: Literal["native", "text", "either", "none"] = "none"
    """`either`: native if possible; `NativeTools` gives the reason for each other request."""
    parks: bool = False
    """Whether a paused turn stays alive and takes results."""
    continues: bool = False
    """Whether a finished conversation can be continued from its `Snapshot`."""
    images: bool = False
    reasoning: bool = False
    usage: bool = False
    searches_web: bool = False
    """Whether Cursor may search the web itself."""


class ModelVariant(Struct, frozen=True):
    """One accepted set of model parameters. Cursor accepts only complete sets."""

    parameters: tuple[tuple[str, str], ...] = ()
    """(id, value), verbatim and in the list's order."""
    slug: str = ""
    """The flat id in older lists; empty if unknown."""
    max_mode: bool = False
    default: bool = False
    name: str = ""


class ModelInfo(Struct, frozen=True):
    id: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    reasoning: bool = False
    context_window: int | None = None
    parameters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Settable parameters with their values, e.g. `("effort", ("low", "high"))`."""
    variants: tuple[ModelVariant, ...] = ()
    """The accepted variants; empty if unknown."""
    max_window: int | None = None
    """The largest window of any variant, if it differs from `context_window`."""
    images: bool | None = None
    """Whether the model accepts images; None: unknown."""
    flat: bool = False
    """Whether the id is from a flat list, so that it may be a variant of another model in the list."""
    stands_for: str = ""
    """The id that this row is only another name for."""


def _no_blob(blob_id: bytes) -> bytes | None:
    return None


class Snapshot(Struct, frozen=True):
    """A backend's state of a finished conversation. Opaque outside the backend that made it."""

    backend: str
    state: bytes
    blobs: Mapping[bytes, bytes] = field(default_factory=dict)
    """Content-addressed pieces that are new since the parent snapshot."""
    fetch: Callable[[bytes], bytes | None] = _no_blob
    """Reads an older piece by id, for a snapshot from a store; returns None if the piece is gone."""
    parent: bytes | None = None
    """The store's key of the parent conversation; backends pass it on unread."""
    conversation: str = ""
    """The gateway's id of the conversation, for accounting; backends ignore it."""

    def of(self, conversation: str) -> Snapshot:
        return Snapshot(self.backend, self.state, self.blobs, self.fetch, self.parent, conversation)


class Source(Protocol):
    """A source of events. It signals new events, and the reader takes them, so unread events put backpressure on
    upstream."""

    def listen(self, ready: Callable[[], None]) -> None:
        """Call `ready` for each new event, in the callback that delivered it. There is one listener; events that can be
        taken already are not signalled.
        Calls nest: `ready` may take events, and these may end the turn. Then the session settles and closes the turn
        inside the same `put`, and the close calls `ready` again before the first call has returned. So a source updates
        its state before it calls `ready`, a closed source never calls it again, and a listener must accept nested
        calls: it marks the end first, and then takes nothing.
        `ready` must not raise: the exception would reach a socket's callback that cannot handle it."""
        ...

    def take(self) -> list[Event]:
        """The events since the last call, possibly none; a terminal event is the last. Raises GatewayError after the
        last event."""
        ...


class Turn(Source, Protocol):
    """One live conversation with upstream. After `TurnPaused`, submitted results lead to further events."""

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        """Answer every open call of a paused turn. `extra`: the user's words next to the results; `demanded`: the only
        tool that may be called next. Raises GatewayError(TURN_GONE), with nothing sent, if the turn cannot take the
        results: then the history is replayed."""
        ...

    def snapshot(self) -> Snapshot | None:
        """The state that continues this conversation in a later turn; None if it cannot be continued."""
        ...

    def close(self) -> None:
        """End the turn upstream, without waiting for it. Idempotent, from any state."""
        ...

    async def aclose(self) -> None:
        """Close, and wait until it is done."""
        ...


class BackendStatus(Struct, frozen=True):
    """Whether a backend can be reached and used, for `/health`, `caretway status` and the banner."""

    signed_in: bool | None
    """None: unknown, because the query got no answer."""
    detail: str = ""
    reachable: bool = True


class Backend(Protocol):
    name: str
    standing: Standing
    abilities: Abilities

    async def models(self) -> Sequence[ModelInfo]: ...

    async def status(self) -> BackendStatus: ...

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        """Open a turn. With a snapshot, only the messages after the last assistant message are sent."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class NativeTools(Protocol):
    """A backend whose client tools are native for some requests and text for others."""

    async def why_text(self, request: TurnRequest, snapshot: Snapshot | None) -> str:
        """Why this request's tools become text; empty if they stay native."""
        ...


def takes_results(turn: Turn, backend: Backend) -> bool:
    """Whether a turn waits for the results of its calls. A turn over text ends with its calls, regardless of its
    backend's abilities."""
    return backend.abilities.parks and getattr(turn, "parks", True)


class Stage(Protocol):
    """A pure event filter, one per response. If it produces a terminal event, the turn ends upstream, too."""

    @property
    def spent(self) -> bool:
        """Whether all further events pass unchanged."""
        ...

    def feed(self, event: Event) -> list[Event]: ...


StageFactory = Callable[[TurnRequest], Stage | None]
"""Builds the stage for one request; returns None if the request needs none."""
Guard = Callable[[TurnRequest], TurnRequest]
"""Makes the request for the model; raises GatewayError(TOOL_LOOP) if a loop must end."""
