"""One request for a model, from body to last byte: decode, choose the model, open a session's response, stream or
whole, the `x-caretway-*` response headers; cancelled when the client hangs up. Tells the observers once how it ended.

A client that hangs up cancels the work, whatever it is waiting for. However it ends, the observers are told once.
"""

import time
from collections.abc import Callable, Mapping
from os import urandom

from ..core.errors import ErrorKind
from ..core.fold import Reply
from ..core.request import TurnRequest
from ..core.turn import Observer, TurnRecord
from ..dialects import Dialect, ResponseMeta
from ..sessions.manager import Sessions
from ..sessions.response import Response
from ..tasks import aside
from .answer import Pace, StreamedAnswer, WholeAnswer
from .decoding import decode_large, decode_parsed
from .exchange import Header, HttpRequest, ResponseWriter, header_text
from .images import ImageFetcher
from .models import ModelSource
from .shape import ShapeLimits, is_large, read_json


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

    async def answer(
        self, dialect: Dialect, http: HttpRequest, writer: ResponseWriter, request_id: str, common: list[Header]
    ) -> None:
        began = time.perf_counter()
        body = http.take_body()
        if is_large(body) or self._images is not None or dialect.recalls(body):
            request = await self._decode(dialect, body, http.headers)
        else:
            request = dialect.decode(read_json(body, self._shape), http.headers)
        del body
        http.drop_headers()
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
        kind = StreamedAnswer if request.stream else WholeAnswer
        answer = kind(dialect, response, meta, common, writer, self._pace)
        try:
            await answer.run_to_end()
        finally:
            answer.stop()
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
                    outcome=_outcome(response, reply, late=answer.late),
                    calls=len(reply.calls),
                    first_event_ms=(answer.first_at - began) * 1000 if answer.first_at else None,
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


def _outcome(response: Response, reply: Reply, *, late: bool) -> str:
    if not response.over:
        return ErrorKind.TIMEOUT.value if late else "hung up"
    return reply.error.kind.value if reply.error else "paused" if reply.paused else reply.reason.value
