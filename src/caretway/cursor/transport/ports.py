"""The interfaces between the Agent API client and a transport: `Transport`, `NewRun`, `RunStream` (send, pause, doubt,
close), `RunHandler`, `UnaryResponse`; between a connection and the owner of one request: `StreamSink`. HTTP/2 and
HTTP/1.1 both fit.

All calls are on the event loop. A handler's methods are plain functions that the socket's callback calls, so a message
is answered at once, without a task in between.
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
    """From an open socket to the peer's HTTP/2 SETTINGS. (The dial limits the time to open the socket.)"""
    dial_again_s: float = 2.0
    """After this time an attempt to connect gets a parallel attempt, which new waiters join."""
    slot_timeout_s: float = 30.0
    """How long a run or a call waits for a free place when every connection is full."""
    call_timeout_s: float = 30.0
    """A unary call, from its start to its last byte."""
    append_timeout_s: float = 60.0
    """One BidiAppend, including its wait for a connection; progress of the upload restarts the time."""
    append_silence_s: float = 10.0
    """After this time without an answer to an append, a silent run is cut. If the run receives data, the append is sent
    again over a new connection."""
    append_linger_s: float = 5.0
    """How long the appends of a closed run may continue."""
    ping_interval_s: float = 10.0
    """HTTP/2 only: a PING this often while streams are open."""
    ping_quiet_s: float = 4.0
    """HTTP/2 only: a PING this long after the last data of a connection."""
    ping_timeout_s: float = 10.0
    """A connection whose PING is unanswered for this long is dead, even if it sends data."""
    doubt_timeout_s: float = 3.0
    """Replaces `ping_timeout_s` after a run timed out on the connection, or began after a silence."""
    sure_s: float = 2.0
    """How long received data proves a connection. On HTTP/2 a run that begins later sends a PING, and a connection with
    an older unanswered PING takes no new runs; on HTTP/1.1 a run takes no kept connection with older data."""
    slowest_bytes_per_s: int = 64 * KIB
    """Bytes in flight extend the time for an answer as on a line of this speed."""
    gather_s: float = 0.016
    """HTTP/2 only: with several runs on a connection, how long reading pauses after small reads in quick succession, to
    handle them together. 0: never."""
    idle_timeout_s: float = 240.0
    """HTTP/2: an unused connection is kept open for this long; its next user tests it with a PING."""
    http1_idle_timeout_s: float = 10.0
    """HTTP/1.1: an unused connection is kept open for this long. Short, because there is no PING to test it."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """One message from upstream."""
    max_unsent_bytes: int = 64 * MIB
    """Bytes that one run may queue to upstream before it fails."""
    max_call_bytes: int = 2 * MIB
    """The body of a unary answer."""
    max_refusal_bytes: int = 64 * KIB
    """How much of the body of a refused run is read for its error."""

    stream_window_bytes: int = 4 * MIB
    """HTTP/2 receive window of one stream: the bytes that a paused stream can still receive."""
    connection_window_bytes: int = 16 * MIB
    """HTTP/2 receive window of a connection. It is reopened at once, even with paused streams."""
    streams_per_connection: int = 100
    """The gateway's limit; the peer's MAX_CONCURRENT_STREAMS may be lower."""
    max_connections: int = 16
    """HTTP/2 connections to one host."""

    appends_in_flight: int = 16
    """HTTP/1.1: unanswered appends of one run, as in the official client."""
    append_bytes_in_flight: int = 8 * MIB
    """HTTP/1.1: bytes of these appends; a larger append is sent alone."""
    http1_call_connections: int = 48
    """HTTP/1.1: connections for appends and unary calls, shared by all runs."""
    http1_run_connections: int = 512
    """HTTP/1.1: connections for runs; each open run holds one."""
    http1_idle_connections: int = 64
    """HTTP/1.1: unused connections that are kept open."""


DEFAULT_LIMITS = TransportLimits()


class RunHandler(Protocol):
    """Receives the messages and the end of a run attempt."""

    def on_messages(self, messages: list[bytes]) -> None:
        """Called with the messages of one read, in order; the stream's last message is an `End`."""
        ...

    def on_closed(self, error: GatewayError | None) -> None:
        """The stream is over; called exactly once, never after `close()`. None: the HTTP stream ended normally (the
        frames say whether the run did). An error: the stream could not be opened, was refused or was cut."""
        ...


class Listening(Protocol):
    """The receiving half of a stream."""

    def pause(self) -> None:
        """Stop reading from upstream soon, because the reader is slow. Other streams are not affected."""
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
        """The run timed out or made no progress: test its connection or retire it, and let no new run use it until
        then. May be called before or after `close()`; it does not end the run."""
        ...


class NewRun(Struct, frozen=True):
    """A run attempt to open."""

    id: str
    headers: Mapping[str, str]
    """The caller's headers (authorization, x-cursor-...), equal for many runs. The transport adds the ids and its own
    headers."""
    original: str = ""
    """The id of the run's first attempt."""
    alone: bool = False
    """Use a new connection that no other run shares meanwhile; at the limit of connections, a healthy shared one."""


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
        """Open a run. The transport repeats nothing and reports every failure. Raises GatewayError(UPSTREAM_DOWN)
        without a connection."""
        ...

    def open_run_now(self, run: NewRun, handler: RunHandler, /) -> RunStream | None:
        """Open a run without waiting, if possible. None: no run was opened; await `open_run`."""
        ...

    async def open_stream(
        self, path: str, headers: Mapping[str, str], message: bytes, handler: RunHandler
    ) -> Listening:
        """Send one message, which a stream of frames answers. Raises like `open_run`."""
        ...

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> UnaryResponse:
        """Make a unary call, with a bounded answer and a time limit."""
        ...

    async def aclose(self) -> None: ...


class StreamSink(Protocol):
    """The owner of one request. `on_end` is called exactly once; no method is called after the owner's `close()`. An
    exception of `on_head` or `on_data` ends only this request: a GatewayError as it is, any other as a bug."""

    def on_head(self, status: int, headers: Mapping[str, str]) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_end(self, error: GatewayError | None) -> None: ...


class _Nobody:
    def on_head(self, status: int, headers: Mapping[str, str]) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_end(self, error: GatewayError | None) -> None: ...


NOBODY: Final[StreamSink] = _Nobody()
