"""Responses that are made in the background (`background: true`): how many at once, polling, cancelling, streams that
are taken up again by `starting_after`, how long their events are kept.

A response in the background is a request like any other, answered into a list of events instead of a socket. Whoever
asks for it later gets them from there, as often as they like; when it is over, its object is in the store. Nobody but
its owner finds it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..dialects import AnswersLater, sse
from ..dialects.headers import BACKGROUND, OWNER
from ..tasks import aside, spawn
from .answer import SSE_HEADERS
from .exchange import Header, HttpRequest, ResponseWriter, Stay
from .nowhere import NOWHERE
from .shape import is_large

MAX_RUNNING: Final = 32
"""Responses that are made at once for one account."""
MAX_PER_KEY: Final = 16
"""Of those, for one key: none can take all places."""
EVENTS_AT_ONCE: Final = 64
"""That are written to whoever follows a stream before looking whether they are taken."""
MAX_KEPT: Final = 256
MAX_KEPT_BYTES: Final = 64 * 2**20
"""Of events of responses that are over; the oldest go first. Their objects stay in the store."""
_DATA: Final = b"data: "
_END: Final = b"\n\n"
_DROPPED: Final = frozenset({"content-length", "transfer-encoding", "connection", "expect"})
_CUT_OFF: Final = frozenset({"cancelled", "failed"})
"""Ends that the answer did not store itself."""
_FAILED: Final = {"code": "server_error", "message": "The answer failed; the gateway's log has the details."}

Answering = Callable[[HttpRequest, ResponseWriter], Any]


class BackgroundWriter(ResponseWriter):
    """A response whose events are kept."""

    __slots__ = ("_followers", "_timer", "events", "refusal", "response", "size")

    def __init__(self) -> None:
        super().__init__(NOWHERE, keep_alive=True, chunked=False)
        self.events: list[bytes] = []
        """SSE frames. The index of one is its sequence number."""
        self.size = 0
        self.refusal: tuple[int, bytes, list[Header]] | None = None
        """It did not even begin."""
        self.response: dict[str, Any] = {}
        """The object as it was when the response began."""
        self._followers: set[asyncio.Event] = set()
        self._timer: asyncio.TimerHandle | None = None

    def wake_at(self, when: float, wake: Callable[[], None]) -> None:
        self.forget_timer()
        if not self.complete:
            self._timer = asyncio.get_running_loop().call_at(when, wake)

    def forget(self) -> None:
        self._on_writable = None
        self.forget_timer()

    def forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(
        self, status: int, body: bytes, headers: Iterable[Header] = (), *, content_type: bytes = b"application/json"
    ) -> None:
        self.status, self.started = status, True
        self.refusal = status, body, [*headers]
        self.over()

    def start(self, headers: Iterable[Header], data: bytes) -> None:
        self.status, self.started = 200, True
        self._add(data)
        self.response = msgspec.json.decode(self.events[0].partition(_DATA)[2])["response"]
        self._wake()

    def write(self, data: bytes) -> None:
        self._add(data)
        self._wake()

    def finish(self, data: bytes = b"") -> None:
        self._add(data)
        self.over()

    def abort(self) -> None:
        self.end("response.failed", status="failed", error=_FAILED)

    def end(self, kind: str, **changed: object) -> None:
        """The last event, where the answer cannot give one any more."""
        if self.complete:
            return
        if self.response:
            self.response = {**self.response, **changed}
            told = {"type": kind, "sequence_number": len(self.events), "response": self.response}
            self._add(sse.event(kind, msgspec.json.encode(told)))
        self.over()

    def over(self) -> None:
        self.complete = True
        self.forget()
        self._wake()

    def _add(self, data: bytes) -> None:
        self.size += len(data)
        self.events += [event + _END for event in data.split(_END) if event]

    def _wake(self) -> None:
        for follower in self._followers:
            follower.set()

    # ---- for those who ask later

    async def begun(self) -> None:
        await self._changed(lambda: self.started)

    async def _changed(self, enough: Callable[[], bool]) -> None:
        news = asyncio.Event()
        self._followers.add(news)
        try:
            while not enough() and not self.complete:
                news.clear()
                await news.wait()
        finally:
            self._followers.discard(news)

    async def follow(self, response: ResponseWriter, headers: Iterable[Header], after: int) -> None:
        """All events behind that number, and those that are still to come."""
        at = after + 1
        news = asyncio.Event()
        self._followers.add(news)
        response.on_writable(news.set)
        try:
            response.start((*SSE_HEADERS, *headers), b"")
            while not self.complete or at < len(self.events):
                if response.blocked or at >= len(self.events):
                    news.clear()
                    await news.wait()
                else:
                    some = self.events[at : at + EVENTS_AT_ONCE]
                    response.write(b"".join(some))
                    at += len(some)
            response.finish()
        finally:
            self._followers.discard(news)


class _Response:
    __slots__ = ("owner", "task", "writer")

    def __init__(self, owner: str, writer: BackgroundWriter, task: asyncio.Task[None]) -> None:
        self.owner = owner
        self.writer = writer
        self.task = task


class BackgroundResponses:
    """Those of one account."""

    def __init__(self) -> None:
        self._running: set[_Response] = set()
        self._known: OrderedDict[str, _Response] = OrderedDict()
        """By id, as soon as they have one; the oldest first."""

    async def begin(
        self,
        dialect: AnswersLater,
        request: HttpRequest,
        answering: Answering,
        response: ResponseWriter,
        headers: list[Header],
        stay: Stay,
    ) -> None:
        """Answer with what is there as soon as it has begun, or with its stream; it goes on without the client, in the
        places that `stay` keeps."""
        body = request.take_body()
        streamed = await aside(dialect.streams, body) if is_large(body) else dialect.streams(body)
        owner = request.headers.get(OWNER, "")
        own = sum(made.owner == owner for made in self._running) if owner else 0
        if len(self._running) >= MAX_RUNNING or own >= MAX_PER_KEY:
            raise GatewayError(
                ErrorKind.RATE_LIMITED,
                f"{own if own >= MAX_PER_KEY else MAX_RUNNING} responses are being made in the background already.",
                hint="Wait for one to end, or cancel one.",
                code="too_many_background_responses",
                retry_after=5.0,
            )
        given = {name: value for name, value in request.headers.items() if name not in _DROPPED}
        inner = HttpRequest(request.method, request.path, {**given, BACKGROUND: "1"}, request.scheme)
        inner.caller = request.caller
        inner.body = body
        del body
        writer = BackgroundWriter()
        task = spawn(self._make(writer, answering(inner, writer)), "a response in the background")
        made = _Response(owner, writer, task)
        self._running.add(made)
        leave = stay()
        task.add_done_callback(lambda _: self._ended(made, dialect, leave))
        try:
            await writer.begun()
        except asyncio.CancelledError:  # the client is gone and knows no name to ask for: nobody could ever find it
            task.cancel()
            raise
        if writer.refusal is not None:
            status, body, told = writer.refusal
            response.send(status, body, [header for header in told if header[0] != b"content-type"])
            return
        name = writer.response["id"]
        self._known[name] = made
        if not writer.complete:
            dialect.remember(writer.response, owner)
        if streamed:
            await writer.follow(response, headers, -1)
        else:
            response.send(200, msgspec.json.encode(writer.response), headers)

    @staticmethod
    async def _make(writer: BackgroundWriter, answer: Any) -> None:
        try:
            await answer
        finally:
            writer.end("response.incomplete", status="cancelled")

    def _ended(self, made: _Response, dialect: AnswersLater, leave: Callable[[], None]) -> None:
        leave()
        self._running.discard(made)
        if made.writer.response.get("status") in _CUT_OFF:
            dialect.remember(made.writer.response, made.owner)
        over = [name for name, one in self._known.items() if one.writer.complete]
        held = sum(self._known[name].writer.size for name in over)
        for index, name in enumerate(over):
            if len(over) - index <= MAX_KEPT and held <= MAX_KEPT_BYTES:
                return
            held -= self._known.pop(name).writer.size

    async def answer(
        self,
        dialect: AnswersLater,
        operation: str,
        name: str,
        request: HttpRequest,
        wanted: Mapping[str, str],
        response: ResponseWriter,
        headers: list[Header],
    ) -> bool:
        """Whether this lookup was answered here: while it is being made, and its stream also later."""
        made = self._known.get(name)
        if made is None or made.owner != request.headers.get(OWNER, ""):
            return False
        writer = made.writer
        if operation == "getResponse" and wanted.get("stream", "").lower() == "true":
            await writer.follow(response, headers, _number(wanted.get("starting_after", "-1")))
            return True
        if writer.complete:
            if operation == "deleteResponse":
                self._known.pop(name, None)
            return False
        if operation == "getResponse":
            response.send(200, msgspec.json.encode(writer.response), headers)
            return True
        if operation in ("cancelResponse", "deleteResponse"):
            made.task.cancel()
            await asyncio.wait([made.task])
            if operation == "deleteResponse":
                self._known.pop(name, None)
        return False


def _number(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or len(text) > 9:
        raise bad_request("starting_after is the number of an event.", param="starting_after")
    return max(-1, int(text))
