"""One request to a dialect, from its JSON body to the last byte of its answer.

Headers wait for the first real event, so that "signed out" is a 401 and not a 200 with an apology inside; a failure
after that is an event in the stream. A client that hangs up cancels the work, whatever it is waiting for.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from ..core.errors import RETRYABLE, ErrorKind, GatewayError
from ..core.events import AgentActivity, Event, TurnFailed, TurnStarted
from ..core.fold import Reply
from ..core.request import TurnRequest
from ..core.turn import Observer, TurnRecord
from ..dialects import Dialect, ResponseMeta
from ..sessions.manager import Sessions
from ..sessions.response import Response
from .asgi import Header, HttpRequest, Send, header_text, part, send_whole, start
from .images import ImageFetcher
from .models import ModelDesk
from .shape import ShapeLimits, read_json
from .silence import SilenceWatch

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
    total: float = 7200.0
    """Seconds that one response may take."""


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
        images: ImageFetcher | None = None,
        shape: ShapeLimits | None = None,
    ) -> None:
        self._prepare = prepare
        self._sessions = sessions
        self._models = models
        self._observer = observer
        self._backend = backend
        self._pace = pace
        self._images = images
        self._shape = shape or ShapeLimits()

    async def answer(self, dialect: Dialect, http: HttpRequest, body: bytes, send: Send, request_id: str) -> None:
        began = time.perf_counter()
        common: list[Header] = [(b"x-request-id", request_id.encode()), (b"x-caretway-backend", self._backend.encode())]
        try:
            parsed = read_json(body, self._shape)
            if self._images is not None:
                parsed = await self._images.inline(parsed)
            request = dialect.decode(parsed, http.headers)
            upstream = self._prepare(await self._models.fit(request))
            if upstream.model != request.model:
                common.append((b"x-caretway-model", header_text(upstream.model)))
            if upstream.ignored:
                common.append((b"x-caretway-ignored", header_text(", ".join(upstream.ignored))))
            response = await self._sessions.open(upstream)
        except GatewayError as error:
            await send_error(send, dialect, error, common)
            return
        meta = ResponseMeta(uuid.uuid4().hex, int(time.time()), request.model)
        answering = _Answer(dialect, response, meta, common, send, self._pace)
        try:
            await (answering.stream() if request.stream else answering.whole())
        finally:
            await response.aclose()
            reply = response.reply()
            self._observer.response_ended(
                TurnRecord(
                    request_id=request_id,
                    dialect=dialect.name,
                    backend=self._backend,
                    model=upstream.model,
                    session=response.label,
                    reason=response.reason,
                    stream=request.stream,
                    outcome=_outcome(response, reply, late=answering.late),
                    calls=len(reply.calls),
                    first_event_ms=(answering.first_at - began) * 1000 if answering.first_at else None,
                    total_ms=(time.perf_counter() - began) * 1000,
                    usage=reply.usage,
                    ignored=upstream.ignored,
                )
            )


def _outcome(response: Response, reply: Reply, *, late: bool) -> str:
    if not response.over:
        return ErrorKind.TIMEOUT.value if late else "hung up"
    return reply.error.kind.value if reply.error else "paused" if reply.paused else reply.reason.value


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
        self.late = False
        self._end = asyncio.get_running_loop().time() + pace.total

    def _headers(self) -> list[Header]:
        response = self._response
        return [
            *self._common,
            (b"x-caretway-session", response.label.encode()),
            (b"x-caretway-session-reason", header_text(response.reason)),
        ]

    async def whole(self) -> None:
        response = self._response
        try:
            async with asyncio.timeout_at(self._end):
                while not response.over:
                    events = await response.receive()
                    if self.first_at is None and _real(events):
                        self.first_at = time.perf_counter()
        except TimeoutError:
            await send_error(self._send, self._dialect, self._too_late(), self._headers())
            return
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
        data = encoder.feed(events)
        silence = SilenceWatch(self._pace.keep_alive, self._end)
        try:
            while not response.over:
                if data:
                    await send(part(data, more=True))
                    silence.spoke()
                silence.waiting = True
                try:
                    data = encoder.feed(await response.receive())
                except asyncio.CancelledError:
                    if not silence.interrupted():
                        raise
                    data = encoder.keep_alive
                    if loop.time() >= self._end:
                        data = encoder.feed([TurnFailed(self._too_late())])
                        break
                silence.waiting = False
        finally:
            silence.stop()
        await send(part(data, more=False))

    def _too_late(self) -> GatewayError:
        self.late = True
        return GatewayError(
            ErrorKind.TIMEOUT,
            f"The response took longer than {self._pace.total:g} s.",
            hint="Raise `response_timeout` if that is intended.",
        )

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


async def send_error(send: Send, dialect: Dialect, error: GatewayError, headers: list[Header]) -> None:
    status, body = dialect.error(error)
    if error.retry_after is not None:
        headers = [*headers, (b"retry-after", str(max(1, round(error.retry_after))).encode())]
    elif error.kind is ErrorKind.OVERLOADED:
        headers = [*headers, (b"retry-after", b"1")]
    if error.kind not in RETRYABLE:
        headers = [*headers, (b"x-should-retry", b"false")]  # the official SDKs would repeat 409 and 5xx by themselves
    await send_whole(send, status, body, headers)
