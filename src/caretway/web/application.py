"""The ASGI application: one table of routes, one place where an unexpected failure becomes a 500."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from ..core.errors import ErrorKind, GatewayError
from ..core.turn import ModelInfo
from ..dialects import Dialect
from ..sessions.manager import Sessions
from ..tasks import spawn
from .asgi import Header, HttpRequest, HungUp, Receive, Scope, Send, read_body, read_head, send_whole
from .models import Health, ModelDesk
from .respond import Responder, send_error

log = logging.getLogger(__name__)

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Application:
    def __init__(
        self,
        *,
        dialects: Sequence[Dialect],
        responder: Responder,
        sessions: Sessions,
        models: ModelDesk,
        health: Health,
        backend: str,
        max_body_bytes: int,
        max_concurrent: int,
    ) -> None:
        self._dialects = {route: dialect for dialect in dialects for route in dialect.routes}
        self._errands = [(prefix, dialect) for dialect in dialects for prefix in dialect.errands]
        self._default = dialects[0]
        self._responder = responder
        self._sessions = sessions
        self._models = models
        self._health = health
        self._backend = backend.encode()
        self._max_body_bytes = max_body_bytes
        self._max_concurrent = max_concurrent
        self._running = 0
        self._created = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"not an HTTP request: {scope['type']}")
        http = read_head(scope)
        given = http.headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        common: list[Header] = [(b"x-request-id", request_id.encode()), (b"x-caretway-backend", self._backend)]
        dialect = self._dialects.get(http.path) or self._errand_runner(http.path) or self._default
        try:
            if http.path in self._dialects and http.method == "POST":
                await self._speak(dialect, http, receive, send, request_id)
            elif self._errand_runner(http.path) is dialect:
                await self._run_errand(dialect, http, receive, send, common)
            else:
                await self._look_up(http, send, common)
        except HungUp:
            pass  # nobody is left to answer
        except GatewayError as error:
            await send_error(send, dialect, error, common)
        except Exception:
            log.exception("%s %s %s failed", request_id, http.method, http.path)
            failure = GatewayError(ErrorKind.INTERNAL, f"The gateway failed; its log has the details for {request_id}.")
            await send_error(send, dialect, failure, common)

    async def _speak(self, dialect: Dialect, http: HttpRequest, receive: Receive, send: Send, request_id: str) -> None:
        body = await read_body(http, receive, self._max_body_bytes)
        if self._running >= self._max_concurrent:
            raise GatewayError(ErrorKind.OVERLOADED, f"{self._max_concurrent} responses are being made already.")
        task = asyncio.current_task()
        assert task is not None
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True
            task.cancel()  # whatever the answer is waiting for, it is not wanted any more

        watching = spawn(watch(), "watch-for-hang-up")
        self._running += 1
        try:
            await self._responder.answer(dialect, http, body, send, request_id)
        except asyncio.CancelledError:
            if not gone:
                raise
            task.uncancel()
        finally:
            self._running -= 1
            watching.cancel()

    def _errand_runner(self, path: str) -> Dialect | None:
        return next((dialect for prefix, dialect in self._errands if path.startswith(prefix)), None)

    async def _run_errand(
        self, dialect: Dialect, http: HttpRequest, receive: Receive, send: Send, common: list[Header]
    ) -> None:
        body = await read_body(http, receive, self._max_body_bytes)
        answer = dialect.errand(http.method, http.path, http.headers, body)
        if answer is None:
            raise _no_such(http, None)
        await send_whole(send, *answer, common)

    async def _look_up(self, http: HttpRequest, send: Send, common: list[Header]) -> None:
        path = http.path.removeprefix("/v1")
        if http.method not in ("GET", "HEAD"):
            known = path in ("/health", "/models", "/") or http.path in self._dialects
            raise _no_such(http, "method_not_allowed" if known else None)
        if path == "/health":
            body = await self._health.render(parked=self._sessions.parked, live=self._sessions.live)
        elif path == "/models":
            body = self._model_shape(http).render_models(await self._models.models(), self._created)
        elif path.startswith("/models/"):
            name = unquote(path.removeprefix("/models/"))
            body = self._model_shape(http).render_model(await self._known_model(name), self._created)
        elif http.path == "/":
            body = b'{"name":"caretway","see":["/health","/v1/models","/v1/chat/completions"]}'
        else:
            raise _no_such(http, "method_not_allowed" if http.path in self._dialects else None)
        await send_whole(send, 200, b"" if http.method == "HEAD" else body, common)

    def _model_shape(self, http: HttpRequest) -> Dialect:
        """The same list in two shapes: Anthropic's clients say who they are."""
        asked = "anthropic_messages" if "anthropic-version" in http.headers else ""
        return next((dialect for dialect in self._dialects.values() if dialect.name == asked), self._default)

    async def _known_model(self, name: str) -> ModelInfo:
        model = await self._models.find(name)
        if model is None:
            raise GatewayError(
                ErrorKind.NOT_FOUND, f"There is no model `{name}`.", hint="See /v1/models.", code="model_not_found"
            )
        return model


def _no_such(http: HttpRequest, code: str | None) -> GatewayError:
    if code is not None:
        return GatewayError(ErrorKind.NOT_FOUND, f"{http.path} does not take {http.method}.", code=code)
    return GatewayError(
        ErrorKind.NOT_FOUND,
        f"There is nothing at {http.method} {http.path}.",
        hint="The base URL of OpenAI clients ends in /v1.",
    )
