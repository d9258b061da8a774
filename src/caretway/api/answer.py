"""Writes one answer to its client, whole or streamed: keep-alives on a silent stream, when headers are sent, the time
limit of a response (`response_timeout`), backpressure from a slow client, a failure before the first byte (a status) or
after it (an event).

Headers wait for the first real event, so that "signed out" is a 401 and not a 200 with an apology inside; a failure
after that is an event in the stream. Backpressure: a client that does not take what was written is not written to, and
its events are not taken; the turn's buffer fills, and Cursor's stream is held back.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import SOON, ErrorKind, GatewayError
from ..core.events import AgentActivity, Event, TurnFailed, TurnStarted
from ..core.request import TurnRequest
from ..dialects import Dialect, Encoder, ResponseMeta
from ..dialects.in_turn import one_line
from ..server.exchange import Header, ResponseWriter, header_text
from ..sessions.response import Response

# ---- Sends an error as an HTTP answer: the dialect's status and body, `retry-after`, and `x-should-retry`, which tells
# official SDKs whether to repeat the request.


def send_error(response: ResponseWriter, dialect: Dialect, error: GatewayError, headers: Sequence[Header]) -> int:
    """The status that was sent."""
    status, body = dialect.error(error)
    answer = [*headers]
    # Only where repeating helps: Codex waits as long as it is told, also two weeks for a quota, without a word.
    if error.may_repeat and error.retry_after is not None:
        answer.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
    elif error.may_repeat and error.kind in SOON:
        answer.append((b"retry-after", b"1"))
    # The official SDKs repeat 409 and 5xx by themselves; here they are told whether it helps.
    answer.append((b"x-should-retry", b"true" if error.may_repeat else b"false"))
    response.send(status, body, answer)
    return status


SSE_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_MODEL: Final = b"x-caretway-model"
_QUIET: Final = frozenset({TurnStarted, AgentActivity})

Unwritten = Callable[[], "asyncio.Future[None] | None"]
"""What the end of an answer waits for, so that its reader finds what is kept of it; None: nothing. It ends by
itself, soon."""


class Pace(Struct, frozen=True):
    keep_alive: float
    """Seconds of silence after which a stream gets a sign of life."""
    patience: float
    """Seconds to wait for the first real event before a stream is opened without it."""
    total: float = 7200.0
    """Seconds that one response may take."""


class Answer(ABC):
    """A response on its way out. It works in the callbacks that bring events; its task only waits for the end."""

    __slots__ = (
        "_common",
        "_dialect",
        "_done",
        "_ends_at",
        "_loop",
        "_meta",
        "_over",
        "_pace",
        "_response",
        "_unwritten",
        "_writer",
        "first_at",
        "late",
    )

    def __init__(
        self,
        dialect: Dialect,
        response: Response,
        meta: ResponseMeta,
        common: list[Header],
        writer: ResponseWriter,
        pace: Pace,
        unwritten: Unwritten | None = None,
    ) -> None:
        self.first_at: float | None = None
        self.late = False
        self._dialect = dialect
        self._response = response
        self._meta = meta
        self._common = common
        self._writer = writer
        self._pace = pace
        self._unwritten = unwritten
        self._loop = asyncio.get_running_loop()
        self._ends_at = self._loop.time() + pace.total
        self._over = False
        self._done: asyncio.Future[None] = self._loop.create_future()

    async def run_to_end(self) -> None:
        """Until the answer is complete. Cancelled when its client hangs up."""
        self._writer.on_writable(self._pump)
        self._response.listen(self._pump)
        self._pump()
        if not self._over:
            self._writer.wake_at(self._next_deadline(), self._check_deadline)
        await self._done

    def stop(self) -> None:
        """The answer is over. Later calls (from a parked turn or a kept connection) do nothing, so that its memory is
        freed without a search for cycles."""
        self._over = True
        self._writer.forget()
        del self._response, self._writer

    def _last(self, send: Callable[[ResponseWriter], None]) -> None:
        """The end of the answer, when what is kept of it is where others find it."""
        waiting = self._unwritten() if self._unwritten is not None else None
        if waiting is None:
            send(self._writer)
            self._end()
            return
        self._over = True  # nothing else is taken or written meanwhile

        def go_on(_: "asyncio.Future[None]") -> None:
            if self._done.done():
                return  # its client is gone
            try:
                send(self._writer)
            except Exception as failure:  # whatever it is, the client is told
                self._end(failure)
            else:
                self._end()

        waiting.add_done_callback(go_on)

    def _end(self, failure: Exception | None = None) -> None:
        self._over = True
        if self._done.done():
            return
        if failure is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(failure)

    @abstractmethod
    def _pump(self) -> None:
        """Take and write events. Called from socket callbacks, so it never raises: nothing above it would know this
        answer."""

    def _next_deadline(self) -> float:
        """When, on the loop's clock, something must be done even if no event comes."""
        return self._ends_at

    def _check_deadline(self) -> None:
        if self._over:
            return
        try:
            self._on_deadline()
        except Exception as failure:  # whatever it is, the client is told
            self._end(failure)
        self._writer.wake_at(self._next_deadline(), self._check_deadline)

    @abstractmethod
    def _on_deadline(self) -> None:
        """The time given by `_next_deadline` has come, unless it has moved since."""

    def _refuse(self, error: GatewayError) -> None:
        send_error(self._writer, self._dialect, error, self._headers())
        self._end()

    def _headers(self) -> list[Header]:
        response = self._response
        common = self._common
        if response.request.choice.instead_of:
            common = [header for header in common if not header[0].startswith(_MODEL)] + model_headers(response.request)
        headers = [
            *common,
            (b"x-caretway-session", response.label.encode()),
            (b"x-caretway-session-reason", header_text(response.reason)),
        ]
        if response.adapted:
            headers.append((b"x-caretway-tools", header_text(response.adapted)))
        if response.pictures:
            headers.append((b"x-caretway-pictures", header_text(response.pictures)))
        if response.note:  # another request would cost two more runs, and bring the same
            headers += [(b"x-caretway-tool-choice", header_text(response.note)), (b"x-should-retry", b"false")]
        return headers

    def _names_model(self) -> ResponseMeta:
        """What the answer says of itself, the model of a refused one's place included."""
        request = self._response.request
        if not request.choice.instead_of:
            return self._meta
        return replace(self._meta, model=request.choice.answers_as or request.model)

    def _too_late(self) -> GatewayError:
        self.late = True
        return GatewayError(
            ErrorKind.TIMEOUT,
            f"The response took longer than {self._pace.total:g} s.",
            hint="Raise `response_timeout` if that is intended.",
        )


class WholeAnswer(Answer):
    __slots__ = ()

    def _pump(self) -> None:
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
        except Exception as failure:  # whatever it is, the client is told
            self._end(failure)

    def _answer(self) -> None:
        response = self._response
        reply = response.reply()
        if reply.error is not None:
            self._refuse(reply.error)
        else:
            body = self._dialect.render(reply, response.request, self._names_model())
            headers = self._headers()
            self._last(lambda writer: writer.send(200, body, headers))

    def _on_deadline(self) -> None:
        self._refuse(self._too_late())


class StreamedAnswer(Answer):
    __slots__ = ("_early", "_encoder", "_opens_at", "_spoken")

    def __init__(
        self,
        dialect: Dialect,
        response: Response,
        meta: ResponseMeta,
        common: list[Header],
        writer: ResponseWriter,
        pace: Pace,
        unwritten: Unwritten | None = None,
    ) -> None:
        super().__init__(dialect, response, meta, common, writer, pace, unwritten)
        self._encoder: Encoder | None = None
        self._early: list[Event] = []
        """What came before the first real event."""
        self._spoken = self._loop.time()
        self._opens_at = self._spoken + self._pace.patience

    def stop(self) -> None:
        super().stop()
        self._encoder, self._early = None, []

    def _pump(self) -> None:
        if self._over or self._writer.blocked:
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
                    if not data.isascii():
                        data = one_line(data)
                    self._writer.write(data)
                    self._spoken = self._loop.time()
        except Exception as failure:  # whatever it is, the client is told
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
        encoder = self._encoder = self._dialect.encoder(self._response.request, self._names_model())
        self._response.opened()
        self._writer.start((*SSE_HEADERS, *self._headers()), one_line(encoder.feed(self._early)))
        self._early = []
        self._spoken = self._loop.time()
        if self._response.over:
            self._finish(b"")
        else:
            self._writer.wake_at(self._next_deadline(), self._check_deadline)  # from now on silence counts

    def _finish(self, data: bytes) -> None:
        data = one_line(data)
        self._last(lambda writer: writer.finish(data))

    def _next_deadline(self) -> float:
        return min(self._ends_at, self._opens_at if self._encoder is None else self._spoken + self._pace.keep_alive)

    def _on_deadline(self) -> None:
        now, encoder = self._loop.time(), self._encoder
        if now < self._next_deadline():
            return
        if encoder is None:
            if now >= self._ends_at:
                self._refuse(self._too_late())
            else:
                self._open()
        elif now >= self._ends_at:
            self._finish(encoder.feed([TurnFailed(self._too_late())]))
        else:
            if not self._writer.blocked:  # a slow client: its silence is not upstream's
                self._writer.write(encoder.keep_alive)
            self._spoken = now


def model_headers(request: TurnRequest) -> list[Header]:
    """Which model is asked, and why that one."""
    chosen = request.choice
    headers = [(_MODEL, header_text(chosen.exactly or request.model))]
    return [*headers, (_MODEL + b"-reason", header_text(chosen.why))] if chosen.why else headers


def _real(events: list[Event]) -> bool:
    return not _QUIET.issuperset(map(type, events))


def _shown(events: list[Event]) -> bool:
    """True when something stands before the failure that a client should get."""
    return _real(events[:-1])
