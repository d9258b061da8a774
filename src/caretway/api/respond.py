"""Answers one request for a model, from body to last byte: decodes it, chooses the model, opens a response of a
session, writes it streamed or whole with the `x-caretway-*` headers.

A hang-up cancels the work at any point. Observers are notified exactly once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from os import urandom
from typing import Final

from msgspec.structs import replace

from ..accounts.catalogue import ModelCatalogue
from ..accounts.names import spelled
from ..core.caller import Caller
from ..core.errors import ErrorKind
from ..core.events import StopReason, TurnEnded, TurnStarted
from ..core.fold import Reply
from ..core.passing import Elsewhere
from ..core.records import Observer, RequestOrigin, TurnRecord
from ..core.request import Image, ToolResult, TurnRequest
from ..core.tally import history_tokens
from ..core.turn import ModelInfo
from ..dialects import Dialect, ResponseMeta
from ..dialects.headers import OWNER
from ..processes.tasks import aside
from ..server.exchange import Header, HttpRequest, ResponseWriter, header_text
from ..server.shape import ShapeLimits, is_large, read_json, too_much_text
from ..sessions.manager import Sessions
from ..sessions.response import Response
from ..usage.key_file import NamedKey, restricted, visible
from .answer import Pace, StreamedAnswer, Unwritten, WholeAnswer, model_headers
from .documents import MARK as PDF
from .documents import inline_pdfs
from .images import ImageFetcher
from .passed import passed_request

# ---- Decodes a large body in short steps, outside the event loop, and limits its text without images.


def decode_large(dialect: Dialect, body: bytes, headers: Mapping[str, str], limits: ShapeLimits) -> TurnRequest:
    """Decode a body in short steps, for `aside`."""
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
    """Size of the images in the body's base64."""
    parts = [part for message in request.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.content]
    return sum(len(part.data) * 4 // 3 for part in parts if isinstance(part, Image))


HOLDS: Final = frozenset({"resumed", "continued"})
"""Sessions that held the conversation already; any other session gets the whole history."""
ELSEWHERE: Final = "its turn is on another replica"
"""The reason to replay results that come over a WebSocket."""
MAX_MODEL_CHARS: Final = 200
"""Characters of a requested model's name that observers get."""

Content = Callable[[TurnRequest, Reply], tuple[str, str]]
"""Prompt and reply as text, for `TurnRecord.content`."""


FindNamedKey = Callable[[str], NamedKey | None]
"""Finds a named key; None for any other name."""


Hear = Callable[[str, TurnRequest, Reply, float], None]
"""(conversation, request, reply, unix seconds): stores the conversation's text, if that is switched on."""


class Responder:
    def __init__(
        self,
        sessions: Sessions,
        models: ModelCatalogue,
        observer: Observer,
        *,
        prepare: Callable[[TurnRequest], TurnRequest],
        backend: str,
        pace: Pace,
        images: ImageFetcher | None = None,
        shape: ShapeLimits | None = None,
        content: Content | None = None,
        find_key: FindNamedKey | None = None,
        hear: Hear | None = None,
        elsewhere: Elsewhere | None = None,
        unwritten: Unwritten | None = None,
    ) -> None:
        """`elsewhere`: the other gateways of a cluster."""
        self._elsewhere = elsewhere
        self._hear = hear
        self._unwritten = unwritten
        self._find_key = find_key
        self._prepare = prepare
        self._sessions = sessions
        self._models = models
        self._observer = observer
        self._backend = backend
        self._pace = pace
        self._images = images
        self._shape = shape or ShapeLimits()
        self._content = content

    async def answer(
        self, dialect: Dialect, http: HttpRequest, writer: ResponseWriter, request_id: str, common: list[Header]
    ) -> None:
        began, started_at = time.perf_counter(), time.time()
        body = http.take_body()
        if is_large(body) or self._images is not None or PDF in body or dialect.recalls(body):
            request = await self._decode(dialect, body, http.headers)
        else:
            request = dialect.decode(read_json(body, self._shape), http.headers)
        gone = ""
        if self._elsewhere is not None:
            answered = await self._answered_elsewhere(self._elsewhere, request, http, body, writer, request_id)
            if answered is None:
                return
            gone = answered
        del body
        owner = http.headers.get(OWNER, "")
        http.drop_headers()
        http.model = request.model[:MAX_MODEL_CHARS]
        upstream = await self._models.fit(request)
        upstream = await aside(self._prepare, upstream) if upstream.large else self._prepare(upstream)
        history = await aside(history_tokens, upstream) if upstream.large else None
        if not request.generate:
            self._remember(dialect, request, writer, common, int(started_at))
            return
        if http.caller.key and (key := self.named(http.caller)) is not None:
            upstream = restricted(key, request.model, upstream)
        chosen = upstream.choice
        if (chosen.exactly or upstream.model) != request.model:
            common += model_headers(upstream)
        if upstream.ignored:
            common.append((b"x-caretway-ignored", header_text(", ".join(upstream.ignored))))
        origin = RequestOrigin(http.caller, request_id, dialect.name, http.model, owner, request.kind)
        response = await self._sessions.open(upstream, origin, gone)
        if budget := response.budget:
            common.append((b"x-caretway-budget", header_text(budget)))
        if request.stream:
            response.shorten(dialect.repeats)
        meta = ResponseMeta(self._new_id(), int(started_at), chosen.answers_as or request.model)
        kind = StreamedAnswer if request.stream else WholeAnswer
        answer = kind(dialect, response, meta, common, writer, self._pace, self._unwritten)
        try:
            await answer.run_to_end()
        finally:
            answer.stop()
            response.close()
            upstream = response.request  # a fallback may have changed the model
            reply = response.reply()
            error = reply.error
            if self._hear is not None and response.conversation:
                self._hear(response.conversation, request, reply, started_at)
            self._observer.response_ended(
                TurnRecord(
                    request_id=request_id,
                    dialect=dialect.name,
                    backend=self._backend,
                    model=upstream.model,
                    session=response.label,
                    reason=response.reason,
                    stream=request.stream,
                    outcome=_outcome(response, reply, late=answer.late),
                    calls=len(reply.calls),
                    first_event_ms=(answer.first_at - began) * 1000 if answer.first_at else None,
                    total_ms=(time.perf_counter() - began) * 1000,
                    usage=reply.usage,
                    ignored=upstream.ignored,
                    recoveries=tuple(response.recoveries),
                    caller=http.caller,
                    asked=http.model,
                    variant=spelled(upstream.model, upstream.parameters, upstream.choice.max_mode),
                    conversation=response.conversation,
                    run=response.run,
                    error="" if error is None else error.code or error.kind.value,
                    message="" if error is None else error.message,
                    hint="" if error is None else error.hint,
                    held=_held(response, history) if response.label in HOLDS else None,
                    started_at=started_at,
                    status=writer.status,
                    called=tuple([(call.id, call.name) for call in reply.calls]),
                    trace=http.trace,
                    kind=request.kind,
                    content=self._content(request, reply) if self._content is not None else None,
                )
            )

    async def _answered_elsewhere(
        self,
        elsewhere: Elsewhere,
        request: TurnRequest,
        http: HttpRequest,
        body: bytes,
        writer: ResponseWriter,
        request_id: str,
    ) -> str | None:
        """None: another gateway has answered. Otherwise the reason why a turn that is not here cannot be resumed, or
        empty."""
        held = self._sessions.held_elsewhere(request, http.headers.get(OWNER, ""))
        if http.visit is not None or held is None or not (held or elsewhere.draining):
            return ""
        if type(writer) is not ResponseWriter:  # a message of a WebSocket
            return ELSEWHERE if held and held[0].replica != elsewhere.id else ""
        return await elsewhere.answer(held, passed_request(http, body, request_id), writer)

    def _remember(
        self, dialect: Dialect, request: TurnRequest, writer: ResponseWriter, common: list[Header], created: int
    ) -> None:
        """A warm-up: checks the model and stores the request so that it can be continued. Runs and charges nothing."""
        encoder = dialect.encoder(request, ResponseMeta(self._new_id(), created, request.model))
        writer.start(common, encoder.feed([TurnStarted(), TurnEnded(StopReason.END)]))
        writer.finish()

    def _new_id(self) -> str:
        """A new response id. In a cluster it begins with the id of this gateway."""
        return urandom(16).hex() if self._elsewhere is None else self._elsewhere.id + urandom(14).hex()

    def visible(self, caller: Caller, models: Sequence[ModelInfo]) -> Sequence[ModelInfo]:
        """The models of a list that this caller may use."""
        key = self.named(caller) if caller.key else None
        return visible(key, models) if key is not None else models

    def named(self, caller: Caller) -> NamedKey | None:
        return self._find_key(caller.key) if self._find_key is not None else None

    async def _decode(self, dialect: Dialect, body: bytes, headers: Mapping[str, str]) -> TurnRequest:
        """Decode a body that is large, or may become large when images, PDFs or earlier responses are added."""
        has_pdf = PDF in body
        if self._images is None and not has_pdf:
            return await aside(decode_large, dialect, body, headers, self._shape)
        parsed = await aside(read_json, body, self._shape)
        size = len(body) - (await inline_pdfs(parsed) if has_pdf else 0)
        fetched = self._images is not None and await self._images.inline(parsed)
        if fetched or has_pdf or is_large(body) or dialect.recalls(body):
            return await aside(decode_parsed, dialect, parsed, size, headers, self._shape)
        return dialect.decode(parsed, headers)


def _held(response: Response, history: int | None) -> int:
    """Tokens of the history that the session had already. `history`: the count, if a thread has made it already."""
    if history is None:
        history = response.live.held
    return history_tokens(response.request) if history is None else history


def _outcome(response: Response, reply: Reply, *, late: bool) -> str:
    if not response.over:
        return ErrorKind.TIMEOUT.value if late else "hung up"
    return reply.error.kind.value if reply.error else "paused" if reply.paused else reply.reason.value
