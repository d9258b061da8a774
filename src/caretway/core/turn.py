"""The Protocols between the rooms: Backend, Turn, Source, Stage; what a backend can do, models and variants,
snapshots. No behaviour.

Events travel in batches: what arrived in one read upstream is handed on, encoded and written as one piece. A reader
takes events when it is ready, so a slow client is backpressure on its own run and on nothing else.
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
"""What a backend is to Cursor. `stand-in`: an address that is not Cursor's own answers in its place."""
SIMULATED: Final = "answers are simulated; for real ones run `caretway login`"
"""The detail of a status of which nobody needs to be signed in."""


class Abilities(Struct, frozen=True):
    """What a backend can do. Code branches on this, never on a backend's name. By default it cannot."""

    client_tools: Literal["native", "text", "either", "none"] = "none"
    """`either`: natively where it can, and it says for each request why not (`NativeTools`)."""
    parks: bool = False
    """A paused turn stays alive and takes results."""
    continues: bool = False
    """A finished conversation can be continued from its `Snapshot`."""
    images: bool = False
    reasoning: bool = False
    usage: bool = False


class ModelVariant(Struct, frozen=True):
    """One way in which a model may be asked for. Cursor takes such a set as a whole, or not at all."""

    parameters: tuple[tuple[str, str], ...] = ()
    """(id, value), verbatim and in the list's order."""
    slug: str = ""
    """The flat id under which older lists have it; empty when none is known."""
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
    """What may be asked for; empty if unknown."""
    max_window: int | None = None
    """The largest window of any variant, when that is another one."""
    images: bool | None = None
    """None: unknown."""
    flat: bool = False
    """An id of a flat list, which may be one variant of a model in the same list."""
    stands_for: str = ""
    """The id that is really meant: this row is only a name for it."""


def _no_blob(blob_id: bytes) -> bytes | None:
    return None


class Snapshot(Struct, frozen=True):
    """A backend's own memory of a finished conversation. Opaque outside the backend that made it."""

    backend: str
    state: bytes
    blobs: Mapping[bytes, bytes] = field(default_factory=dict)
    """Content-addressed pieces that are new since the snapshot this conversation was continued from."""
    fetch: Callable[[bytes], bytes | None] = _no_blob
    """Older pieces, by id, when a store gives the snapshot back; None when the piece is gone."""
    parent: bytes | None = None
    """The store's key of the conversation that this one continued; backends pass it on unread."""
    conversation: str = ""
    """Our own id of the conversation, for those who account for it; backends leave it alone."""

    def of(self, conversation: str) -> Snapshot:
        return Snapshot(self.backend, self.state, self.blobs, self.fetch, self.parent, conversation)


class Source(Protocol):
    """A source of events. It signals that there are some, and the reader fetches them, so unread events hold upstream
    back."""

    def listen(self, ready: Callable[[], None]) -> None:
        """From now on `ready` is called whenever something new can be taken, in the very callback that brought it.
        There is one listener; what can be taken already is not told of.

        Calls nest: `ready` may take, and what it takes may end the turn. Then the session settles and closes it, all
        inside the `put` that brought the event, and the closing calls `ready` once more before the first call has
        returned. So a source puts its own state in order before it tells, a closed source tells nobody again, and a
        listener expects to be called while it is at work: it has marked what is over, and takes nothing then.
        `ready` raises nothing: it would end in a socket's callback that knows nothing of the reader."""
        ...

    def take(self) -> list[Event]:
        """What came since the last call, if anything; a terminal event comes last. Raises GatewayError when nothing
        will come any more."""
        ...


class Turn(Source, Protocol):
    """One live conversation with upstream. After `TurnPaused` there are events again once results are submitted."""

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        """Answer every open call of a paused turn. `extra` is what the user said beside the results,
        `demanded` the tool that is to be called next: no call of another one is given. Raises
        GatewayError(TURN_GONE), with nothing sent, when the turn cannot take them: then the history is replayed."""
        ...

    def snapshot(self) -> Snapshot | None:
        """What a later turn needs to continue this conversation; None if it cannot be continued."""
        ...

    def close(self) -> None:
        """End the turn upstream, without waiting for it. Idempotent, from any state."""
        ...

    async def aclose(self) -> None:
        """Close, and wait until it is done."""
        ...


class BackendStatus(Struct, frozen=True):
    """For `/health`, `caretway status` and the banner."""

    signed_in: bool | None
    """None: unknown, the question got no answer."""
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
        """Empty: `start` takes the tools of this request as they are."""
        ...


def takes_results(turn: Turn, backend: Backend) -> bool:
    """Whether a turn that has made calls waits for their results. One over text ends with its calls, whatever its
    backend can do for other requests."""
    return backend.abilities.parks and getattr(turn, "parks", True)


class Stage(Protocol):
    """A pure event filter, one per response. If it produces a terminal event, the turn ends upstream, too."""

    @property
    def spent(self) -> bool:
        """Whatever comes would pass it as it is."""
        ...

    def feed(self, event: Event) -> list[Event]: ...


StageFactory = Callable[[TurnRequest], Stage | None]
"""Builds the stage for one request; None when the request does not need it."""
Guard = Callable[[TurnRequest], TurnRequest]
"""The request as the model is to be told it; raises GatewayError(TOOL_LOOP) when the loop must end."""
