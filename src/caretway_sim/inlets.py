"""Where the bytes of a client's request go: collected for a call, read message by message for a run.

Bounded, and without knowing what the answers are: the service says.
"""

import logging
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from caretway.cursor.wire import paths
from caretway.cursor.wire.envelope import End, EnvelopeError, EnvelopeReader, gunzip
from caretway.cursor.wire.errors import ConnectError
from caretway.cursor.wire.messages import ai

from . import faults, updates
from .exchange import Request, SimExchange, answer
from .legacy import LegacyRun
from .replies import BrokenBody, Reply, as_error
from .run import SimRun

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
MAX_BODY_BYTES: Final = 2 * MAX_MESSAGE_BYTES + 1024 * 1024
"""A unary body: the largest message, in hex, with what goes around it."""
MAX_REQUEST_ID_BYTES: Final = 4096


class Answering(Protocol):
    """The service, as far as it is needed here."""

    def reply(self, request: Request, body: bytes) -> Reply: ...

    def stays_silent(self, request: Request) -> bool: ...

    def open_channel(self, request: Request, exchange: SimExchange, request_id: str) -> SimRun | None: ...

    def open_chat(self, request: Request, exchange: SimExchange, body: bytes) -> LegacyRun | None: ...


class UnaryInlet:
    """Collects a body, then answers."""

    def __init__(self, service: Answering, request: Request, exchange: SimExchange) -> None:
        self._service = service
        self._request = request
        self._exchange = exchange
        self._body = bytearray()
        self._refused = False

    def on_data(self, data: bytes) -> None:
        if self._refused:
            return
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            self._refused = True
            self._body.clear()
            answer(self._exchange, 413, "text/plain", b"the body is too large\n")

    def on_end(self) -> None:
        if self._refused or self._service.stays_silent(self._request):
            return
        try:
            body = bytes(self._body)
            if self._request.header("content-encoding") == "gzip" and body:
                body = gunzip(body, MAX_BODY_BYTES)
            reply = self._service.reply(self._request, body)
        except (BrokenBody, EnvelopeError) as wrong:
            reply = as_error(faults.bad_request(str(wrong)))
        except Exception:  # the edge of a call: a bug of the simulator must not take the other streams along
            log.exception("the simulated call %s failed", self._request.path)
            reply = as_error(faults.SCRIPTED["internal"])
        answer(self._exchange, *reply)

    def on_gone(self) -> None:
        self._body.clear()


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


class SseInlet:
    """RunSSE: one enveloped request id, then the client only listens."""

    def __init__(self, service: Answering, request: Request, exchange: SimExchange) -> None:
        self._service = service
        self._request = request
        self._exchange = exchange
        self._body = bytearray()
        self._run: SimRun | None = None

    def on_data(self, data: bytes) -> None:
        if len(self._body) <= MAX_REQUEST_ID_BYTES:
            self._body += data

    def on_end(self) -> None:
        try:
            request_id = _read_request_id(bytes(self._body))
        except BrokenBody as wrong:
            self._exchange.start(200, [("content-type", paths.STREAM_TYPE)])
            end_stream(self._exchange, faults.bad_request(str(wrong)))
            return
        self._run = self._service.open_channel(self._request, self._exchange, request_id)

    def on_gone(self) -> None:
        if self._run is not None:
            self._run.stop()


class ChatInlet:
    """StreamChat: one enveloped request, then the client only listens."""

    def __init__(self, service: Answering, request: Request, exchange: SimExchange) -> None:
        self._service = service
        self._request = request
        self._exchange = exchange
        self._body = bytearray()
        self._chat: LegacyRun | None = None

    def on_data(self, data: bytes) -> None:
        if len(self._body) <= MAX_BODY_BYTES:
            self._body += data

    def on_end(self) -> None:
        self._chat = self._service.open_chat(self._request, self._exchange, bytes(self._body))

    def on_gone(self) -> None:
        if self._chat is not None:
            self._chat.stop()


def _read_request_id(body: bytes) -> str:
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
