"""Receives the bytes of a client's request, within limits: collected for a call, message by message for a run. The
service makes the responses."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from caretway.cursor.wire import paths
from caretway.cursor.wire.embedding import AppendOutOfRange, AppendReader
from caretway.cursor.wire.envelope import ConnectError, End, EnvelopeError, EnvelopeReader, write_unary
from caretway.cursor.wire.messages import ai, pb

from . import catalogue, faults, updates
from .exchange import Request, SimExchange, answer
from .legacy import LegacyRun
from .model_input import Recent
from .run import SimRun
from .shared import Shared

# ---- replies

# The simulator's unary responses: JSON or protobuf as in the request, error statuses, period usage, NameAgent,
# malformed bodies, 415 for a wrong content type.

_STATUS: Final = {"unauthenticated": 401, "unimplemented": 404, "invalid_argument": 400, "permission_denied": 403}

Reply = tuple[int, str, bytes]


class BrokenBody(ValueError):
    """A malformed request body."""


def as_json(status: int, value: Any) -> Reply:
    return status, paths.JSON_TYPE, msgspec.json.encode(value)


def as_error(error: ConnectError) -> Reply:
    return _STATUS.get(error.code, 500), paths.JSON_TYPE, write_unary(error)


def as_message(request: Request, message: Message) -> Reply:
    """The message as a reply, in protobuf or JSON like the request."""
    if request.content_type == paths.JSON_TYPE:
        return 200, paths.JSON_TYPE, json_format.MessageToJson(message, indent=None).encode()
    return 200, paths.UNARY_TYPE, message.SerializeToString()


def empty(request: Request, _: bytes) -> Reply:
    is_json = request.content_type == paths.JSON_TYPE
    return (200, paths.JSON_TYPE, b"{}") if is_json else (200, paths.UNARY_TYPE, b"")


def unknown(request: Request) -> Reply:
    if request.content_type.startswith("application/") and request.path.count("/") == 2 and "." in request.path:
        return as_error(faults.unimplemented(request.path))
    return as_json(404, {"error": f"{request.method} {request.path} is not simulated"})


def as_tokens(tokens: dict[str, str] | None) -> Reply:
    return as_json(401, {"error": "the key is not accepted"}) if tokens is None else as_json(200, tokens)


def as_grant(tokens: dict[str, str] | None) -> Reply:
    """The OAuth endpoint's reply. `tokens` None: an expired refresh token, which this endpoint reports in a 200."""
    if tokens is None:
        return as_json(200, {"access_token": "", "id_token": "", "shouldLogout": True})
    given = {"access_token": tokens["accessToken"], "id_token": tokens["accessToken"], "shouldLogout": False}
    return as_json(200, given | ({"refresh_token": tokens["refreshToken"]} if "refreshToken" in tokens else {}))


def read_query(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.query).items()}


def read_object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError as broken:
        raise BrokenBody(f"the body is not JSON: {broken}") from broken
    if not isinstance(value, dict):
        raise BrokenBody("the body is not a JSON object")
    return value


def read_text(body: bytes, name: str) -> str:
    value = read_object(body).get(name)
    return value if isinstance(value, str) else ""


def available_models(request: Request, _: bytes) -> Reply:
    if request.content_type != paths.UNARY_TYPE:
        return 415, "text/plain", b"expected application/proto\n"
    return 200, paths.UNARY_TYPE, catalogue.available().SerializeToString()


def name_agent(request: Request, body: bytes) -> Reply:
    try:
        if request.content_type == paths.JSON_TYPE:
            said = str(read_object(body).get("userMessage", ""))
        else:
            said = pb.NameAgentRequest.FromString(body).user_message
    except DecodeError as broken:
        raise BrokenBody("the body is not a NameAgentRequest") from broken
    return as_message(request, pb.NameAgentResponse(name=" ".join(said.split()[:4]) or "Simulated chat"))


# ---- inlets


MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
MAX_BODY_BYTES: Final = 2 * MAX_MESSAGE_BYTES + 1024 * 1024
"""Size limit of a unary body: the largest message in hex, and its envelope."""
MAX_REQUEST_ID_BYTES: Final = 4096


class BodyInlet:
    """Collects a body and then calls `complete`. When the client disconnects, stops the run that `complete` started."""

    def __init__(self, exchange: SimExchange, complete: Callable[[bytes], SimRun | LegacyRun | None]) -> None:
        self._exchange = exchange
        self._complete = complete
        self._body = bytearray()
        self._refused = False
        self._started: SimRun | LegacyRun | None = None

    def on_data(self, data: bytes) -> None:
        if self._refused:
            return
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            self._refused = True
            self._body.clear()
            answer(self._exchange, 413, "text/plain", b"the body is too large\n")

    def on_end(self) -> None:
        if not self._refused:
            self._started = self._complete(bytes(self._body))

    def on_gone(self) -> None:
        self._body.clear()
        if self._started is not None:
            self._started.stop()


class RunInlet:
    """The client's half of a Run over HTTP/2."""

    def __init__(self, run: SimRun) -> None:
        self._run = run
        self._reader = EnvelopeReader(MAX_MESSAGE_BYTES)

    def on_data(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                if not isinstance(frame, End):
                    self._run.feed(frame)
        except EnvelopeError as wrong:
            self._run.end(faults.bad_request(str(wrong)))

    def on_end(self) -> None:
        self._run.end(faults.CANCELLED)

    def on_gone(self) -> None:
        self._run.stop()


def read_request_id(body: bytes) -> str:
    try:
        frames = EnvelopeReader(MAX_REQUEST_ID_BYTES).feed(body)
        request_id = ai.BidiRequestId.FromString(frames[0]).request_id if frames else ""
    except (EnvelopeError, DecodeError) as wrong:
        raise BrokenBody(f"the RunSSE request is not readable: {wrong}") from wrong
    if not request_id:
        raise BrokenBody("RunSSE needs a request id")
    return request_id


def end_stream(exchange: SimExchange, error: ConnectError) -> None:
    exchange.write(updates.end(error))
    exchange.finish()


# ---- channels

# Joins RunSSE with BidiAppend: appends before their RunSSE, out of order or doubled, reused request ids, limits of what
# waits.

MAX_WAITING_CHANNELS: Final = 1024
"""Request ids with appends but no RunSSE yet."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Limit, per request id, of messages that came before their RunSSE."""
MAX_REMEMBERED: Final = 4096


class _Channel:
    def __init__(self) -> None:
        self.reader = AppendReader()
        self.early: list[bytes] = []
        self.early_bytes = 0
        self.run: SimRun | None = None


class ChannelBusy(ValueError):
    """A request id that already has or had a RunSSE."""


class Channels:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._waiting: Recent[str, _Channel] = Recent(MAX_WAITING_CHANNELS)
        self._open: dict[str, _Channel] = {}
        self._ended: Recent[str, None] = Recent(MAX_REMEMBERED)

    def append(self, request_id: str, seqno: int, message: bytes) -> None:
        """Pass a message to its run in the order of the numbers, or keep it until RunSSE opens the run. Raises
        AppendOutOfRange if the message can be neither used nor kept."""
        stats = self._shared.stats
        stats.appends += 1
        if request_id in self._ended:
            return  # a last heartbeat, too late to matter
        channel = self._open.get(request_id) or self._waiting.get(request_id) or self._wait(request_id)
        if channel.reader.seen(seqno):
            stats.appends_duplicate += 1
            return
        if not channel.reader.expected(seqno):
            stats.appends_out_of_order += 1
        for ready in channel.reader.feed(seqno, message):
            if channel.run is not None:
                channel.run.feed(ready)
                continue
            channel.early_bytes += len(ready)
            if channel.early_bytes > MAX_WAITING_BYTES:
                self._waiting.pop(request_id, None)
                raise AppendOutOfRange("too many bytes before RunSSE")
            channel.early.append(ready)

    def open(self, request_id: str, exchange: SimExchange, owner: str, *, abroad: bool = False) -> SimRun:
        if request_id in self._open or request_id in self._ended:
            raise ChannelBusy(f"request id {request_id} was used before")
        channel = self._waiting.pop(request_id, None) or _Channel()
        self._open[request_id] = channel
        run = channel.run = SimRun(self._shared, exchange, request_id, owner, abroad=abroad)
        run.task.add_done_callback(lambda _: self._close(request_id))
        early, channel.early = channel.early, []
        for message in early:
            run.feed(message)
        return run

    def _wait(self, request_id: str) -> _Channel:
        channel = self._waiting[request_id] = _Channel()
        return channel

    def _close(self, request_id: str) -> None:
        self._open.pop(request_id, None)
        self._ended[request_id] = None
