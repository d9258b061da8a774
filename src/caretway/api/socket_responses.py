"""Responses over one WebSocket: each `response.create` message becomes a request, and each event of its stream a
message. Responses run one after the other, or in parallel where the client names a `stream_id`. Steering is refused.

A message passes the same access check as a request over HTTP, and the same handler answers it with the same stream; the
events are taken out of their SSE frames here. A hang-up cancels the running responses.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import urandom
from typing import Final

import msgspec
from websockets.frames import CloseCode

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..dialects.headers import SOCKET
from ..server.connection import PendingRequest, ServerState
from ..server.exchange import NEVER, Header, HttpRequest, MakeSuccessor, ResponseWriter
from ..server.shape import SMALL, check_count
from ..server.socket import Socket, text_frame

# ---- A null connection, for responses that travel as messages of a WebSocket.


class _Nowhere:
    def write(self, data: bytes) -> None: ...

    def date(self) -> bytes:
        return b""

    def wake_at(self, when: float, wake: Callable[[], None] | None) -> None: ...

    def answered(self) -> None: ...

    def abort(self) -> None: ...


NOWHERE: Final = _Nowhere()


MAX_WAITING: Final = 16
"""Messages of one connection that wait for a running response."""
MAX_WAITING_BYTES: Final = 32 * 2**20
MAX_LANES: Final = 16
"""Concurrent streams of one connection."""
MAX_LANE_CHARS: Final = 128
MAX_VALUES: Final = 500_000
"""The limit of values in a message's JSON, even if HTTP allows more: to skip more takes longer than a few
milliseconds."""
_DROPPED: Final = frozenset({"connection", "upgrade", "x-request-id", "content-length", "content-encoding"})
_TOLD: Final = frozenset({b"retry-after", b"x-should-retry", b"x-request-id"})
"""Headers of an error that clients use."""
_DATA: Final = b"data: "

_json = msgspec.json.Encoder().encode


class _Event(msgspec.Struct):
    """The fields of a message that are read before it becomes a request."""

    type: str
    stream_id: str | None = None
    previous_response_id: msgspec.Raw = msgspec.Raw(b"null")
    input: msgspec.Raw = msgspec.Raw(b"null")


_EVENT: Final = msgspec.json.Decoder(_Event)


def new_connection() -> str:
    return f":{urandom(12).hex()}"


def responses_socket(
    path: str, headers: Mapping[str, str], scheme: str, name: str, closed: Callable[[str], None]
) -> MakeSuccessor:
    """A function that makes the protocol of the WebSocket. `name`: unique name of the connection. `closed` is called
    with this name when the connection ends."""
    kept = {header: value for header, value in headers.items() if header not in _DROPPED}
    kept = {header: value for header, value in kept.items() if not header.startswith("sec-websocket-")}
    return lambda server: ResponsesSocket(server, path, {**kept, SOCKET: name}, scheme, partial(closed, name))


class ResponsesSocket(Socket):
    def __init__(
        self, server: ServerState, path: str, headers: Mapping[str, str], scheme: str, closed: Callable[[], None]
    ) -> None:
        super().__init__(server)
        self._handler = server.handler
        self._path = path
        self._headers = headers
        self._scheme = scheme
        self._closed = closed
        self._running: dict[str, MessageWriter] = {}
        """The running response of each lane; the lane without a name is the empty string."""
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._waiting_bytes = 0
        self._unread_bytes = 0
        """Bytes of input that was sent back and that the client has not read yet."""
        self._retires = False

    @property
    def busy(self) -> bool:
        return bool(self._running)

    # ---- messages

    def look(self, data: bytes) -> "_Event | GatewayError":
        try:
            return _read(data)
        except GatewayError as error:
            return error

    def message(self, data: bytes, seen: "_Event | GatewayError") -> None:
        if isinstance(seen, GatewayError):
            self._refuse("", seen)
            return
        lane, event = "", seen
        try:
            lane = event.stream_id or ""
            if event.type == "response.steer":
                self._send_back(_no_steering(event))
            elif event.type != "response.create":
                raise bad_request(
                    f"A message of the type {event.type[:60]!r} is not known here.",
                    hint="Send `response.create`; close the connection to cancel.",
                    param="type",
                    code="unknown_event",
                )
            elif len(lane) > MAX_LANE_CHARS:
                lane = ""
                raise bad_request(f"A stream_id has at most {MAX_LANE_CHARS} characters.", param="stream_id")
            elif self._retires or lane in self._running or len(self._running) >= MAX_LANES:
                self._wait(lane, data)
            else:
                self._begin(lane, data)
        except GatewayError as error:
            self._refuse(lane, error)

    def _wait(self, lane: str, data: bytes) -> None:
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
            raise GatewayError(
                ErrorKind.RATE_LIMITED,
                f"{len(self._waiting)} messages of this connection wait already.",
                hint="Wait for a response to end before you ask for the next one.",
                code="too_many_waiting_requests",
                retry_after=1.0,
            )
        self._keep(len(data))
        self._waiting.append((lane, data))
        self._waiting_bytes += len(data)

    def _send_back(self, payload: bytes) -> None:
        self._keep(len(payload))
        self._unread_bytes += len(payload)
        self.say(payload)
        if not self.paused:
            self._taken()

    def _taken(self) -> None:
        self._server.bodies.release(self._unread_bytes)
        self._unread_bytes = 0

    def _keep(self, size: int) -> None:
        if not self._server.bodies.keep(size):
            raise GatewayError(
                ErrorKind.RATE_LIMITED,
                "Too much waits on the WebSockets of all clients together.",
                hint="Wait for a response to end before you ask for the next one.",
                code="too_many_waiting_requests",
                retry_after=1.0,
            )

    def _begin(self, lane: str, data: bytes) -> None:
        request = HttpRequest("POST", self._path, self._headers, self._scheme)
        writer = self._running[lane] = MessageWriter(self, lane)
        if self.paused:
            writer.pause()
        try:
            pending = writer.pending = self._handler.accept(request, writer)
            assert pending is not None  # only an OPTIONS is answered at once
            request.body = data
            writer.request_body(data)
            pending.begin()
        except GatewayError as error:
            self._handler.refuse(self._path, writer, error, request)
            return
        writer.task = self._loop.create_task(pending.answer())
        writer.task.add_done_callback(partial(self._task_done, writer))

    def _refuse(self, lane: str, error: GatewayError) -> None:
        """Send an error for a message that is no request, or one too many."""
        writer = MessageWriter(self, lane)
        self._handler.refuse(self._path, writer, error, HttpRequest("POST", self._path, self._headers, self._scheme))

    def _task_done(self, writer: "MessageWriter", task: asyncio.Task[None]) -> None:
        if writer.pending is not None:
            writer.pending.leave()
        failed = not task.cancelled() and task.exception() is not None
        if failed:
            self._loop.call_exception_handler({"message": "an answer failed", "exception": task.exception()})
        if failed or not writer.complete:
            self.close(CloseCode.INTERNAL_ERROR, "The answer failed; the gateway's log has the details.")

    def answered(self, writer: "MessageWriter") -> None:
        if writer.pending is not None:
            writer.pending.leave()
        if self._running.get(writer.lane) is writer:
            del self._running[writer.lane]
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin the oldest message whose lane is free."""
        if self._retires and not self._running:
            self.close(CloseCode.GOING_AWAY, "The gateway stops.")
        if self.gone or self._closing or self._retires or len(self._running) >= MAX_LANES:
            return
        for index, (lane, data) in enumerate(self._waiting):
            if lane not in self._running:
                del self._waiting[index]
                self._waiting_bytes -= len(data)
                self._server.bodies.release(len(data))
                self._begin(lane, data)
                break
        else:
            return
        if self._waiting:
            self._loop.call_soon(self._next)

    # ---- the connection

    def writable(self, yes: bool) -> None:
        if yes:
            self._taken()
        for writer in list(self._running.values()):
            if yes:
                writer.resume()
            else:
                writer.pause()

    def wake(self, now: float) -> None:
        for writer in list(self._running.values()):
            writer.wake_due(now)

    def hung_up(self) -> None:
        if self.gone:
            self._taken()
        self._server.bodies.release(self._waiting_bytes)
        self._waiting.clear()
        self._waiting_bytes = 0
        running, self._running = self._running, {}
        for writer in running.values():
            writer.hung_up()
            if writer.task is not None:
                writer.task.cancel()  # the client is gone
            elif writer.pending is not None:
                writer.pending.leave()
        closed, self._closed = self._closed, _nothing
        closed()

    def retire(self) -> None:
        """Start no further response; the connection ends after the running ones."""
        self._retires = True
        if not self._running:
            super().retire()


class MessageWriter(ResponseWriter):
    """Writes one response as messages of the socket."""

    __slots__ = ("_socket", "_stream", "_wake", "_wake_at", "lane", "pending", "task")

    def __init__(self, socket: ResponsesSocket, lane: str) -> None:
        super().__init__(NOWHERE, keep_alive=True, chunked=False)
        self._socket = socket
        self.lane = lane
        self._stream = b',"stream_id":' + _json(lane) + b"}" if lane else b""
        """The end of every message of a named lane."""
        self.pending: PendingRequest | None = None
        self.task: asyncio.Task[None] | None = None
        self._wake: Callable[[], None] | None = None
        self._wake_at = NEVER

    def wake_at(self, when: float, wake: Callable[[], None]) -> None:
        if not self.complete:
            self._wake, self._wake_at = wake, when

    def wake_due(self, now: float) -> None:
        if now >= self._wake_at and self._wake is not None:
            wake, self._wake = self._wake, None
            wake()

    def forget(self) -> None:
        self._on_writable = self._wake = None

    def send(
        self, status: int, body: bytes, headers: Iterable[Header] = (), *, content_type: bytes = b"application/json"
    ) -> None:
        """Send `body`, an error, as a message. Called only before anything else of the response was sent."""
        lines = [*headers]
        self._head_sent(status, lines)
        sent = {name.decode(): value.decode() for name, value in lines if name in _TOLD}
        error = {**msgspec.json.decode(body)["error"], "headers": sent}
        # OpenAI's type has the headers in the error; Codex looks for them next to it.
        event = {"type": "error", "status": status, "error": error, "headers": sent}
        payload = _json(event)
        self._socket.say(payload[:-1] + self._stream if self._stream else payload)
        self._over(body)

    def start(self, headers: Iterable[Header], data: bytes) -> None:
        self._head_sent(200, [*headers])
        self.write(data)

    def write(self, data: bytes) -> None:
        if self._observer is not None:
            self._observer.body(data, end=False)
        if not self._socket.gone:
            self._socket.frames(frames_of(data, self._stream))

    def finish(self, data: bytes = b"") -> None:
        if not self._socket.gone:
            self._socket.frames(frames_of(data, self._stream))
        self._over(data)

    def probe(self) -> bool:
        return False

    def abort(self) -> None:
        self._socket.close(CloseCode.INTERNAL_ERROR, "The answer failed; the gateway's log has the details.")

    def _head_sent(self, status: int, headers: list[Header]) -> None:
        self.started = True
        self.status = status
        if self._observer is not None:
            self._observer.head(status, headers)

    def _over(self, data: bytes) -> None:
        self.complete = True
        self.forget()
        if self._observer is not None:
            self._observer.body(data, end=True)
        self._socket.answered(self)


def frames_of(data: bytes, stream: bytes) -> bytes:
    """Each event of a stream as one message. `stream`: replaces the closing brace of each event."""
    frames = []
    for event in data.split(b"\n\n"):
        at = event.find(_DATA)
        if at >= 0:
            payload = event[at + len(_DATA) :]
            frames.append(text_frame(payload[:-1] + stream if stream else payload))
    return b"".join(frames)


def _read(data: bytes) -> _Event:
    try:
        if len(data) > SMALL:
            check_count(data, MAX_VALUES)
        return _EVENT.decode(data)
    except msgspec.ValidationError as wrong:
        raise bad_request(f"The message is no event: {wrong}.", code="invalid_event") from wrong
    except (msgspec.DecodeError, RecursionError) as broken:
        raise bad_request(f"The message is not valid JSON: {broken}.", code="invalid_json") from broken


def _no_steering(event: _Event) -> bytes:
    """The error for `response.steer`, with its input returned: Cursor accepts no input during a run."""
    return _json(
        {
            "type": "response.steer.failed",
            "sequence_number": 0,
            "error": {
                "type": "invalid_request_error",
                "code": "steering_not_supported",
                "message": "A response cannot be steered here; send the input with the next `response.create`.",
            },
            "steer": {"input": event.input, "previous_response_id": event.previous_response_id},
        }
    )


def _nothing() -> None: ...
