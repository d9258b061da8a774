"""The interfaces between the Agent API client and a transport: `Transport`, `NewRun`, `RunStream` (send, pause, doubt,
close), `RunHandler`, `UnaryResponse`; between a connection and the owner of one request: `StreamSink`. HTTP/2 and
HTTP/1.1 both fit.

Everything here is called on the event loop. A handler's methods are plain functions: they are called from the socket's
own callback, so a message that needs an answer is answered before anything else happens, without a task in between.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct

from ...core.errors import GatewayError


class RunHandler(Protocol):
    """The opener of a run attempt."""

    def on_messages(self, messages: list[bytes]) -> None:
        """What arrived in one read, in order; the last of all is an `End`."""
        ...

    def on_closed(self, error: GatewayError | None) -> None:
        """The stream is over; called exactly once, never after `close()`. None: the HTTP stream ended in order (whether
        the run did is in the frames). An error: it could not be opened, was refused, or was cut."""
        ...


class Listening(Protocol):
    """The answering half of a stream."""

    def pause(self) -> None:
        """Stop taking more from upstream soon: the reader is slow. Other streams are not affected."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Give the stream up. Idempotent; the handler receives nothing more."""
        ...


class RunStream(Listening, Protocol):
    """One attempt at a run. One ordered writer: `send` never blocks and never reorders."""

    def send(self, message: bytes) -> None:
        """Queue one serialised AgentClientMessage (without envelope)."""
        ...

    def doubt(self) -> None:
        """The run timed out or made no progress: prove the connection under it or retire it, and let no new run use it
        until then. Before or after `close()`; it ends no run by itself."""
        ...


class NewRun(Struct, frozen=True):
    """A run attempt to open."""

    id: str
    headers: Mapping[str, str]
    """The caller's (authorization, x-cursor-...), the same for many runs. The transport adds the ids and what its
    carrier needs."""
    original: str = ""
    """The id of the run's first attempt."""
    alone: bool = False
    """On a new connection, which no other run shares while this one lives; when there are as many connections as there
    may be, on one that is in order."""


class UnaryResponse(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Warm, shared connections to one base URL."""

    @property
    def name(self) -> str:
        """`h2` or `http1`."""
        ...

    async def open_run(self, run: NewRun, handler: RunHandler, /) -> RunStream:
        """Below a run nothing is repeated: whatever breaks is told. Raises GatewayError(UPSTREAM_DOWN) when no
        connection can be had."""
        ...

    def open_run_now(self, run: NewRun, handler: RunHandler, /) -> RunStream | None:
        """The same without waiting, where that can be. None: nothing was done, `open_run` has to be awaited."""
        ...

    async def open_stream(
        self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler
    ) -> Listening:
        """One message, answered by a stream of frames. Raises as `open_run` does."""
        ...

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        """One unary call, with a bounded answer and a time limit."""
        ...

    async def aclose(self) -> None: ...


class StreamSink(Protocol):
    """The owner of one request. `on_end` is called exactly once, and nothing after the owner's own `close()`. What
    `on_head` and `on_data` raise ends this request only: a GatewayError as it is, anything else as a bug."""

    def on_head(self, status: int, headers: Mapping[str, str]) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_end(self, error: GatewayError | None) -> None: ...


class _Nobody:
    def on_head(self, status: int, headers: Mapping[str, str]) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_end(self, error: GatewayError | None) -> None: ...


NOBODY: Final[StreamSink] = _Nobody()
