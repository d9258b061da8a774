"""One request to a dialect, from its JSON body to the last byte of its answer.

Headers wait for the first real event, so that "signed out" is a 401 and not a 200 with an apology inside; a failure
after that is an event in the stream. A client that hangs up cancels the work, whatever it is waiting for.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from ..core.errors import RETRYABLE, ErrorKind, GatewayError, bad_request
from ..core.events import AgentActivity, Event, TurnStarted
from ..core.request import TurnRequest
from ..core.turn import Observer, TurnRecord
from ..dialects import Dialect, ResponseMeta
from ..sessions.manager import Sessions
from ..sessions.response import Response
from .asgi import Header, HttpRequest, Send, header_text, part, send_whole, start
from .models import ModelDesk

_SSE_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_QUIET = (TurnStarted, AgentActivity)


@dataclass(frozen=True, slots=True)
class Pace:
    keep_alive: float
    """Seconds of silence after which a stream gets a sign of life."""
    patience: float
    """Seconds to wait for the first real event before a stream is opened without it."""


class Responder:
    def __init__(
        self,
        sessions: Sessions,
        models: ModelDesk,
        observer: Observer,
        *,
        prepare: Callable[[TurnRequest], TurnRequest],
        backend: str,
        pace: Pace,
    ) -> None:
        self._prepare = prepare
        self._sessions = sessions
        self._models = models
        self._observer = observer
        self._backend = backend
        self._pace = pace

    async def answer(self, dialect: Dialect, http: HttpRequest, body: bytes, send: Send, request_id: str) -> None:
        began = time.perf_counter()
        common: list[Header] = [(b"x-request-id", request_id.encode()), (b"x-caretway-backend", self._backend.encode())]
        try:
            request = dialect.decode(_json(body), http.headers)
            upstream = self._prepare(await self._models.fit(request))
            if upstream.ignored:
                common.append((b"x-caretway-ignored", header_text(", ".join(upstream.ignored))))
            response = await self._sessions.open(upstream)
        except GatewayError as error:
            await send_error(send, dialect, error, common)
            return
        meta = ResponseMeta(uuid.uuid4().hex, int(time.time()), request.model)
        record = TurnRecord(
            request_id=request_id,
            dialect=dialect.name,
            backend=self._backend,
            model=upstream.model,
            session=response.label,
            reason=response.reason,
            stream=request.stream,
            outcome="hung up",
            ignored=upstream.ignored,
        )
        answering = _Answer(dialect, response, meta, common, send, self._pace)
        try:
            await (answering.stream() if request.stream else answering.whole())
        finally:
            await response.aclose()
            reply = response.reply()
            if response.over:
                outcome = reply.error.kind.value if reply.error else "paused" if reply.paused else reply.reason.value
                record = replace(record, outcome=outcome)
            self._observer.response_ended(
                replace(
                    record,
                    session=response.label,
                    reason=response.reason,
                    calls=len(reply.calls),
                    usage=reply.usage,
                    first_event_ms=(answering.first_at - began) * 1000 if answering.first_at else None,
                    total_ms=(time.perf_counter() - began) * 1000,
                )
            )


class _Answer:
    """A response on its way out, in one of two shapes."""

    def __init__(
        self, dialect: Dialect, response: Response, meta: ResponseMeta, common: list[Header], send: Send, pace: Pace
    ) -> None:
        self.first_at: float | None = None
        self._dialect = dialect
        self._response = response
        self._meta = meta
        self._common = common
        self._send = send
        self._pace = pace

    def _headers(self) -> list[Header]:
        response = self._response
        return [
            *self._common,
            (b"x-caretway-session", response.label.encode()),
            (b"x-caretway-session-reason", header_text(response.reason)),
        ]

    async def whole(self) -> None:
        response = self._response
        while not response.over:
            events = await response.receive()
            if self.first_at is None and _real(events):
                self.first_at = time.perf_counter()
        reply = response.reply()
        if reply.error is not None:
            await send_error(self._send, self._dialect, reply.error, self._headers())
        else:
            body = self._dialect.render(reply, response.request, self._meta)
            await send_whole(self._send, 200, body, self._headers())

    async def stream(self) -> None:
        response, send, loop = self._response, self._send, asyncio.get_running_loop()
        events = await self._first()
        if response.over and (error := response.reply().error) is not None and not _shown(events):
            await send_error(send, self._dialect, error, self._headers())
            return
        encoder = self._dialect.encoder(response.request, self._meta)
        await send(start(200, (*_SSE_HEADERS, *self._headers())))
        if data := encoder.feed(events):
            await send(part(data, more=True))
        silent_at = loop.time() + self._pace.keep_alive
        while not response.over:
            try:
                async with asyncio.timeout_at(silent_at):
                    data = encoder.feed(await response.receive())
            except TimeoutError:
                data = encoder.keep_alive
            if data:
                await send(part(data, more=True))
                silent_at = loop.time() + self._pace.keep_alive
        await send(part(b"", more=False))

    async def _first(self) -> list[Event]:
        """Everything up to the first real event, or what there is when patience ends."""
        response = self._response
        events: list[Event] = []
        try:
            async with asyncio.timeout(self._pace.patience):
                while not _real(events):
                    events += await response.receive()
            self.first_at = time.perf_counter()
        except TimeoutError:
            response.commit()
        return events


def _real(events: list[Event]) -> bool:
    return any(not isinstance(event, _QUIET) for event in events)


def _shown(events: list[Event]) -> bool:
    """True when something stands before the failure that a client should get."""
    return any(not isinstance(event, _QUIET) for event in events[:-1])


def _json(body: bytes) -> object:
    if not body.strip():
        raise bad_request("The request has no body.", code="invalid_json", hint="Send a JSON object.")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
        raise bad_request(f"The request body is not valid JSON: {broken}.", code="invalid_json") from broken


async def send_error(send: Send, dialect: Dialect, error: GatewayError, headers: list[Header]) -> None:
    status, body = dialect.error(error)
    if error.retry_after is not None:
        headers = [*headers, (b"retry-after", str(max(1, round(error.retry_after))).encode())]
    elif error.kind is ErrorKind.OVERLOADED:
        headers = [*headers, (b"retry-after", b"1")]
    if error.kind not in RETRYABLE:
        headers = [*headers, (b"x-should-retry", b"false")]  # the official SDKs would repeat 409 and 5xx by themselves
    await send_whole(send, status, body, headers)
