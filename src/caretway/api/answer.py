"""Writes one response to its client, whole or streamed: keep-alives, the time limit (`response_timeout`), backpressure,
and failures before the first byte (a status) or after it (an event).

Headers wait for the first real event, so that "signed out" is a 401 and not an error inside a 200. Backpressure: while
a client does not read, nothing is written to it and no events are taken; the turn's buffer fills, and Cursor's stream
is held back.
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
from ..core.recovery import in_words
from ..core.request import TurnRequest
from ..dialects import Dialect, Encoder, ResponseMeta
from ..dialects.in_turn import one_line
from ..server.exchange import Header, ResponseWriter, header_text
from ..sessions.response import Response

# ---- Sends an error as an HTTP response: the dialect's status and body, `retry-after`, and `x-should-retry`, which
# controls the retries of official SDKs.


def send_error(response: ResponseWriter, dialect: Dialect, error: GatewayError, headers: Sequence[Header]) -> int:
    """Returns the status that was sent."""
    status, body = dialect.error(error)
    answer = [*headers]
    # Only where a retry helps: Codex waits silently for as long as this header says, even two weeks for a quota.
    if error.may_repeat and error.retry_after is not None:
        answer.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
    elif error.may_repeat and error.kind in SOON:
        answer.append((b"retry-after", b"1"))
    # The official SDKs retry 409 and 5xx by default; this header says whether a retry helps.
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
"""Returns a future for which the end of a response waits, so that the client's next request finds the stored response;
None: no wait. The future is done soon in any case."""


class Pace(Struct, frozen=True):
    keep_alive: float
    """Seconds of silence after which a stream gets a keep-alive."""
    patience: float
    """Seconds to wait for the first real event before a stream is opened without it."""
    total: float = 7200.0
    """Time limit of one response in seconds."""


class Answer(ABC):
    """A response in progress. Callbacks for new events write it; the request's task only waits for the end."""

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
        """Wait until the response is complete. Cancelled when the client hangs up."""
        self._writer.on_writable(self._pump)
        self._response.listen(self._pump)
        self._pump()
        if not self._over:
            self._writer.wake_at(self._next_deadline(), self._check_deadline)
        await self._done

    def stop(self) -> None:
        """End the response. Later callbacks (from a parked turn or a kept connection) do nothing. References are
        dropped, so that the memory of the response is freed without the cycle collector."""
        self._over = True
        self._writer.forget()
        del self._response, self._writer

    def _last(self, send: Callable[[ResponseWriter], None]) -> None:
        """Send the end of the response, once its stored copy can be found by others."""
        waiting = self._unwritten() if self._unwritten is not None else None
        if waiting is None:
            send(self._writer)
            self._end()
            return
        self._over = True  # nothing else is taken or written meanwhile

        def go_on(_: "asyncio.Future[None]") -> None:
            if self._done.done():
                return  # the client is gone
            try:
                send(self._writer)
            except Exception as failure:  # any failure ends the response with an error
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
        """Take and write events. Called from socket callbacks, so it never raises: the caller could not relate an
        exception to this response."""

    def _next_deadline(self) -> float:
        """The time, on the loop's clock, of the next action if no event comes."""
        return self._ends_at

    def _check_deadline(self) -> None:
        if self._over:
            return
        try:
            self._on_deadline()
        except Exception as failure:  # any failure ends the response with an error
            self._end(failure)
        self._writer.wake_at(self._next_deadline(), self._check_deadline)

    @abstractmethod
    def _on_deadline(self) -> None:
        """Called at a time that `_next_deadline` has returned; the deadline may have moved since."""

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
        if response.recoveries:
            headers.append((b"x-caretway-recovered", header_text("; ".join(in_words(response.recoveries)))))
        if response.note:  # a retry would cost two more runs with the same result
            headers += [(b"x-caretway-tool-choice", header_text(response.note)), (b"x-should-retry", b"false")]
        return headers

    def _names_model(self) -> ResponseMeta:
        """The metadata of the response, with the substitute model if the requested one was refused."""
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
                return  # the turn may also be closing because of this `take`
            if self.first_at is None and _real(events):
                self.first_at = time.perf_counter()
            if self._response.over:
                self._answer()
        except Exception as failure:  # any failure ends the response with an error
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
        """Events before the first real one."""
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
                if data:  # some events show nothing; the client must not wait through them without a keep-alive
                    if not data.isascii():
                        data = one_line(data)
                    self._writer.write(data)
                    self._spoken = self._loop.time()
        except Exception as failure:  # any failure ends the response with an error
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
            self._writer.wake_at(self._next_deadline(), self._check_deadline)  # the keep-alive timer starts now

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
            if not self._writer.blocked:  # the client is slow; upstream is not silent
                self._writer.write(encoder.keep_alive)
            self._spoken = now


def model_headers(request: TurnRequest) -> list[Header]:
    """Headers that name the chosen model and the reason for the choice."""
    chosen = request.choice
    headers = [(_MODEL, header_text(chosen.exactly or request.model))]
    return [*headers, (_MODEL + b"-reason", header_text(chosen.why))] if chosen.why else headers


def _real(events: list[Event]) -> bool:
    return not _QUIET.issuperset(map(type, events))


def _shown(events: list[Event]) -> bool:
    """Whether an event for the client precedes the failure, which is the last of `events`."""
    return _real(events[:-1])
