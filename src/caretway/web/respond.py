"""One request to a dialect, from its JSON body to the last byte of its answer.

Headers wait for the first real event, so that "signed out" is a 401 and not a 200 with an apology inside; a failure
after that is an event in the stream. A client that hangs up cancels the work, whatever it is waiting for.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import urandom
from typing import Any

from msgspec.structs import replace

from ..core.errors import SOON, ErrorKind, GatewayError
from ..core.events import AgentActivity, Event, TurnFailed, TurnStarted
from ..core.fold import Reply
from ..core.request import Image, ToolResult, TurnRequest
from ..core.turn import Observer, TurnRecord
from ..dialects import Dialect, Encoder, ResponseMeta
from ..sessions.manager import Sessions
from ..sessions.response import Response
from ..tasks import aside
from .exchange import NO_HEADERS, Exchange, Header, header_text
from .images import ImageFetcher
from .models import ModelSource
from .shape import ShapeLimits, is_large, read_json, too_much_text

_SSE_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_QUIET = (TurnStarted, AgentActivity)
_LINE = "\u2028".encode()
_PARAGRAPH = "\u2029".encode()
_NEXT = "\u0085".encode()


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
        models: ModelSource,
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

    async def answer(self, dialect: Dialect, exchange: Exchange, request_id: str, common: list[Header]) -> None:
        began = time.perf_counter()
        http = exchange.http
        body, exchange.body = exchange.body, b""
        if is_large(body) or self._images is not None or dialect.recalls(body):
            request = await self._decode(dialect, body, http.headers)
        else:
            request = dialect.decode(read_json(body, self._shape), http.headers)
        del body
        http.headers = NO_HEADERS  # they have been read, and an answer may take long
        upstream = await self._models.fit(request)
        upstream = await aside(self._prepare, upstream) if upstream.large else self._prepare(upstream)
        chosen = upstream.choice
        if (exactly := chosen.exactly or upstream.model) != request.model:
            common.append((b"x-caretway-model", header_text(exactly)))
            if chosen.why:
                common.append((b"x-caretway-model-reason", header_text(chosen.why)))
        if upstream.ignored:
            common.append((b"x-caretway-ignored", header_text(", ".join(upstream.ignored))))
        response = await self._sessions.open(upstream)
        if request.stream:
            response.shorten(dialect.repeats)
        meta = ResponseMeta(urandom(16).hex(), int(time.time()), chosen.answers_as or request.model)
        answering = (Streamed if request.stream else Whole)(dialect, response, meta, common, exchange, self._pace)
        try:
            await answering.made()
        finally:
            answering.stop()
            response.close()
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
                    recoveries=tuple(response.recoveries),
                )
            )

    async def _decode(self, dialect: Dialect, body: bytes, headers: Mapping[str, str]) -> TurnRequest:
        """What is large, or may become it by what is fetched."""
        if self._images is None:
            return await aside(decode_large, dialect, body, headers, self._shape)
        parsed = await aside(read_json, body, self._shape)
        if await self._images.inline(parsed) or is_large(body) or dialect.recalls(body):
            return await aside(decode_parsed, dialect, parsed, len(body), headers, self._shape)
        return dialect.decode(parsed, headers)


def decode_large(dialect: Dialect, body: bytes, headers: Mapping[str, str], limits: ShapeLimits) -> TurnRequest:
    """Body -> request, in steps that are short each; for `aside`."""
    return decode_parsed(dialect, read_json(body, limits), len(body), headers, limits)


def decode_parsed(
    dialect: Dialect, parsed: object, size: int, headers: Mapping[str, str], limits: ShapeLimits
) -> TurnRequest:
    request = dialect.decode(parsed, headers)
    text = size - _image_bytes(request)
    if text > limits.text:
        raise too_much_text(text, limits.text)
    return replace(request, large=True)


def _image_bytes(request: TurnRequest) -> int:
    """What the images took in the body."""
    parts = [part for message in request.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.content]
    return sum(len(part.data) * 4 // 3 for part in parts if isinstance(part, Image))


def _outcome(response: Response, reply: Reply, *, late: bool) -> str:
    if not response.over:
        return ErrorKind.TIMEOUT.value if late else "hung up"
    return reply.error.kind.value if reply.error else "paused" if reply.paused else reply.reason.value


class _Answer(ABC):
    """A response on its way out. It works in the callbacks that bring events; its task only waits for the end."""

    __slots__ = (
        "_common",
        "_dialect",
        "_done",
        "_ends_at",
        "_exchange",
        "_loop",
        "_meta",
        "_over",
        "_pace",
        "_response",
        "first_at",
        "late",
    )

    def __init__(
        self,
        dialect: Dialect,
        response: Response,
        meta: ResponseMeta,
        common: list[Header],
        exchange: Exchange,
        pace: Pace,
    ) -> None:
        self.first_at: float | None = None
        self.late = False
        self._dialect = dialect
        self._response = response
        self._meta = meta
        self._common = common
        self._exchange = exchange
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._ends_at = self._loop.time() + pace.total
        self._over = False
        self._done: asyncio.Future[None] = self._loop.create_future()

    async def made(self) -> None:
        """Until the answer is complete. Cancelled when its client hangs up."""
        self._exchange.on_writable = self._go_on
        self._response.listen(self._go_on)
        self._go_on()
        if not self._over:
            self._exchange.wake_at(self._due(), self._ring)
        await self._done

    def stop(self) -> None:
        """It is over, however it ended. Whoever may still call it (a turn that is parked, a connection that is kept)
        holds an empty shell from now on: an answer is freed when its task is, without a search for cycles."""
        self._over = True
        self._exchange.forget()
        del self._response, self._exchange

    def _end(self, failure: Exception | None = None) -> None:
        self._over = True
        if self._done.done():
            return
        if failure is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(failure)

    @abstractmethod
    def _go_on(self) -> None:
        """There is something to take, or the client can take more. Called from sockets' callbacks: nothing may get
        out of here, it would end in a place that knows nothing of this answer."""

    def _due(self) -> float:
        """When, on the loop's clock, something must be done even if nothing comes."""
        return self._ends_at

    def _ring(self) -> None:
        if self._over:
            return
        try:
            self._ringing()
        except Exception as failure:
            self._end(failure)
        self._exchange.wake_at(self._due(), self._ring)

    @abstractmethod
    def _ringing(self) -> None:
        """`_due` may have come."""

    def _refuse(self, error: GatewayError) -> None:
        send_error(self._exchange, self._dialect, error, self._headers())
        self._end()

    def _headers(self) -> list[Header]:
        response = self._response
        return [
            *self._common,
            (b"x-caretway-session", response.label.encode()),
            (b"x-caretway-session-reason", header_text(response.reason)),
        ]

    def _too_late(self) -> GatewayError:
        self.late = True
        return GatewayError(
            ErrorKind.TIMEOUT,
            f"The response took longer than {self._pace.total:g} s.",
            hint="Raise `response_timeout` if that is intended.",
        )


class Whole(_Answer):
    __slots__ = ()

    def _go_on(self) -> None:
        if self._over:
            return
        try:
            events = self._response.take()
            if not events:
                return  # also when the turn is being closed by what is just being taken
            if self.first_at is None and _real(events):
                self.first_at = time.perf_counter()
            if self._response.over:
                self._answer()
        except Exception as failure:
            self._end(failure)

    def _answer(self) -> None:
        response = self._response
        reply = response.reply()
        if reply.error is not None:
            self._refuse(reply.error)
        else:
            self._exchange.send(200, self._dialect.render(reply, response.request, self._meta), self._headers())
            self._end()

    def _ringing(self) -> None:
        self._refuse(self._too_late())


class Streamed(_Answer):
    __slots__ = ("_early", "_encoder", "_opens_at", "_spoken")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._encoder: Encoder | None = None
        self._early: list[Event] = []
        """What came before the first real event."""
        self._spoken = self._loop.time()
        self._opens_at = self._spoken + self._pace.patience

    def stop(self) -> None:
        super().stop()
        self._encoder, self._early = None, []

    def _go_on(self) -> None:
        if self._over or self._exchange.blocked:
            return
        try:
            events = self._response.take()
            if not events:
                return
            encoder = self._encoder
            if encoder is None:
                self._begin(events)
            elif self._response.over:
                self._finish(encoder.feed(events))
            else:
                data = encoder.feed(events)
                if data:  # not all that comes is shown, and a client must not take that for silence
                    if _LINE in data or _PARAGRAPH in data or _NEXT in data:
                        data = one_line(data)
                    self._exchange.write(data)
                    self._spoken = self._loop.time()
        except Exception as failure:
            self._end(failure)

    def _begin(self, events: list[Event]) -> None:
        self._early += events
        if not _real(self._early):
            return
        self.first_at = time.perf_counter()
        error = self._response.reply().error if self._response.over else None
        if error is not None and not _shown(self._early):
            self._refuse(error)
        else:
            self._open()

    def _open(self) -> None:
        encoder = self._encoder = self._dialect.encoder(self._response.request, self._meta)
        self._exchange.start((*_SSE_HEADERS, *self._headers()), one_line(encoder.feed(self._early)))
        self._early = []
        self._spoken = self._loop.time()
        if self._response.over:
            self._finish(b"")
        else:
            self._exchange.wake_at(self._due(), self._ring)  # from now on silence counts

    def _finish(self, data: bytes) -> None:
        self._exchange.finish(one_line(data))
        self._end()

    def _due(self) -> float:
        return min(self._ends_at, self._opens_at if self._encoder is None else self._spoken + self._pace.keep_alive)

    def _ringing(self) -> None:
        now, encoder = self._loop.time(), self._encoder
        if now < self._due():
            return
        if encoder is None:
            if now >= self._ends_at:
                self._refuse(self._too_late())
            else:
                self._open()
        elif now >= self._ends_at:
            self._finish(encoder.feed([TurnFailed(self._too_late())]))
        else:
            if not self._exchange.blocked:  # a slow client: its silence is not upstream's
                self._exchange.write(encoder.keep_alive)
            self._spoken = now


def one_line(data: bytes) -> bytes:
    """Events without the characters that some clients take for the end of a line (Python's `splitlines` does): what is
    in an event is JSON, where they can be escaped."""
    for raw, escaped in ((_LINE, b"\\u2028"), (_PARAGRAPH, b"\\u2029"), (_NEXT, b"\\u0085")):
        if raw in data:
            data = data.replace(raw, escaped)
    return data


def _real(events: list[Event]) -> bool:
    return any(not isinstance(event, _QUIET) for event in events)


def _shown(events: list[Event]) -> bool:
    """True when something stands before the failure that a client should get."""
    return any(not isinstance(event, _QUIET) for event in events[:-1])


def send_error(exchange: Exchange, dialect: Dialect, error: GatewayError, headers: list[Header]) -> None:
    status, body = dialect.error(error)
    if error.retry_after is not None:
        headers = [*headers, (b"retry-after", str(max(1, round(error.retry_after))).encode())]
    elif error.kind in SOON and error.may_repeat:
        headers = [*headers, (b"retry-after", b"1")]
    # The official SDKs repeat 409 and 5xx by themselves; here they are told whether it helps.
    again = b"true" if error.may_repeat else b"false"
    headers = [*headers, (b"x-should-retry", again)]
    exchange.send(status, body, headers)
