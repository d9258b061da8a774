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
from ..wire.envelope import MAX_FRAME_BYTES

# ---- All limits of the transports: timeouts, PING intervals, window sizes, connections for each host, streams for each
# connection, appends in flight, bytes that are queued or received.

KIB = 1024
MIB = 1024 * KIB


class TransportLimits(Struct, frozen=True):
    ready_timeout_s: float = 5.0
    """From an open socket to the peer's HTTP/2 SETTINGS. (Opening the socket is the dial's own business.)"""
    dial_again_s: float = 2.0
    """An attempt to connect that is older than this gets another one beside it, and nobody joins it any more."""
    slot_timeout_s: float = 30.0
    """How long a run or a call waits for a free place when every connection is full."""
    call_timeout_s: float = 30.0
    """A unary call, from its start to its last byte."""
    append_timeout_s: float = 60.0
    """One BidiAppend, its wait for a connection included; an upload that moves has it anew."""
    append_silence_s: float = 10.0
    """A run whose append is not answered for this long, and which brings nothing meanwhile either, is cut. When the run
    speaks, the append is sent again over a new connection."""
    append_linger_s: float = 5.0
    """How long the appends of a run that was closed in order may go on."""
    ping_interval_s: float = 10.0
    """HTTP/2 only: a PING this often while streams are open."""
    ping_quiet_s: float = 4.0
    """HTTP/2 only: a PING this long after the last word of a connection that fell silent."""
    ping_timeout_s: float = 10.0
    """A connection whose PING was not answered for this long is dead, whatever else it says."""
    doubt_timeout_s: float = 3.0
    """The same after a run timed out on the connection, or began after a silence."""
    sure_s: float = 2.0
    """How long a sign of life is good for. On HTTP/2 a run that begins later asks for a new one, and a connection whose
    PING is out for longer takes no new runs; on HTTP/1.1 a run takes no kept connection whose last word is older."""
    slowest_bytes_per_s: int = 64 * KIB
    """What is under way may delay an answer by as much as a line of this speed would."""
    gather_s: float = 0.016
    """HTTP/2 only: with several runs on a connection, how long reading pauses after small reads in quick succession, to
    handle them together. 0: never."""
    idle_timeout_s: float = 240.0
    """HTTP/2: an unused connection is kept warm for this long; its next user then checks whether it lives."""
    http1_idle_timeout_s: float = 10.0
    """HTTP/1.1: the same. Nobody can ask there, so a connection is used again only soon after its last sign of life."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """One message from upstream."""
    max_unsent_bytes: int = 64 * MIB
    """What one run may have queued towards upstream before the run fails."""
    max_call_bytes: int = 2 * MIB
    """The body of a unary answer."""
    max_refusal_bytes: int = 64 * KIB
    """How much of the body of a refused run is read for its error."""

    stream_window_bytes: int = 4 * MIB
    """HTTP/2 receive window of one stream: what a paused stream can still receive."""
    connection_window_bytes: int = 16 * MIB
    """HTTP/2 receive window of a connection. It is opened again at once, paused streams or not."""
    streams_per_connection: int = 100
    """Our cap; the peer's MAX_CONCURRENT_STREAMS may be lower."""
    max_connections: int = 16
    """HTTP/2 connections to one host."""

    appends_in_flight: int = 16
    """HTTP/1.1: unanswered appends of one run, as the official client has them."""
    append_bytes_in_flight: int = 8 * MIB
    """HTTP/1.1: how much they may have together; a larger one goes alone."""
    http1_call_connections: int = 48
    """HTTP/1.1: connections for appends and unary calls, shared by all runs."""
    http1_run_connections: int = 512
    """HTTP/1.1: every open run holds one of these."""
    http1_idle_connections: int = 64
    """HTTP/1.1: how many unused connections are kept warm."""


DEFAULT_LIMITS = TransportLimits()


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
        """Open a run without waiting, if possible. None: nothing was done, await `open_run`."""
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
