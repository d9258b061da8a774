"""The ASGI application: one table of routes, one place where an unexpected failure becomes a 500."""

import asyncio
import logging
import re
import time
import uuid
from typing import Final
from urllib.parse import unquote

import msgspec

from .. import __version__
from ..core.errors import ErrorKind, GatewayError
from ..dialects import Dialect
from ..observe.metrics import Metrics
from ..tasks import spawn
from .asgi import Header, HttpRequest, HungUp, Receive, Scope, Send, read_head, send_whole
from .body import BodyReader
from .desk import Desk, Reception
from .openapi import document
from .respond import send_error
from .shape import ShapeLimits, read_json

log = logging.getLogger(__name__)

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Application:
    def __init__(
        self,
        *,
        reception: Reception,
        metrics: Metrics,
        backend: str,
        bodies: BodyReader,
        shape: ShapeLimits,
        max_concurrent: int,
    ) -> None:
        self._reception = reception
        self._metrics = metrics
        self._backend = backend.encode()
        self._bodies = bodies
        self._shape = shape
        self._max_concurrent = max_concurrent
        self._running = 0
        self._created = int(time.time())
        self._document = msgspec.json.encode(document(__version__))

    def dialect(self, path: str) -> Dialect:
        """Whose words belong to this path."""
        return self._reception.lobby.dialect(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"not an HTTP request: {scope['type']}")
        http = read_head(scope)
        given = http.headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        common: list[Header] = [(b"x-request-id", request_id.encode()), (b"x-caretway-backend", self._backend)]
        dialect = self.dialect(http.path)
        try:
            async with self._reception.receive(http) as desk:
                if http.path in desk.routes and http.method == "POST":
                    await self._speak(desk, http, receive, send, request_id)
                elif (runner := desk.errand_runner(http.path)) is not None:
                    await self._run_errand(runner, http, receive, send, common)
                else:
                    await self._look_up(desk, http, send, common)
        except HungUp:
            pass  # nobody is left to answer
        except GatewayError as error:
            await send_error(send, dialect, error, common)
        except Exception:
            log.exception("%s %s %s failed", request_id, http.method, http.path)
            failure = GatewayError(ErrorKind.INTERNAL, f"The gateway failed; its log has the details for {request_id}.")
            await send_error(send, dialect, failure, common)

    async def _speak(self, desk: Desk, http: HttpRequest, receive: Receive, send: Send, request_id: str) -> None:
        if self._running >= self._max_concurrent:
            raise GatewayError(ErrorKind.OVERLOADED, f"{self._max_concurrent} responses are being made already.")
        self._running += 1  # also while the body arrives: it takes room
        try:
            body = await self._bodies.read(http, receive)
            await self._answer(desk, http, body, receive, send, request_id)
        finally:
            self._running -= 1

    async def _answer(
        self, desk: Desk, http: HttpRequest, body: bytes, receive: Receive, send: Send, request_id: str
    ) -> None:
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
        try:
            await desk.responder.answer(desk.routes[http.path], http, body, send, request_id)
        except asyncio.CancelledError:
            if not gone:
                raise
            task.uncancel()
        finally:
            watching.cancel()

    async def _run_errand(
        self, dialect: Dialect, http: HttpRequest, receive: Receive, send: Send, common: list[Header]
    ) -> None:
        body = await self._bodies.read(http, receive)
        if http.method == "POST" and body:
            read_json(body, self._shape)
        answer = dialect.errand(http.method, http.path, http.headers, body)
        if answer is None:
            raise _no_such(http)
        await send_whole(send, *answer, common)

    async def _look_up(self, desk: Desk, http: HttpRequest, send: Send, common: list[Header]) -> None:
        path = http.path.removeprefix("/v1")
        content_type = b"application/json"
        if http.method not in ("GET", "HEAD"):
            known = path in ("/health", "/models", "/tools", "/") or http.path in desk.routes
            raise _wrong_method(http) if known else _no_such(http)
        if path == "/health":
            body = await desk.health.render(parked=self._reception.parked, live=self._reception.live)
        elif path == "/tools":
            body = desk.health.render_tools()
        elif path == "/models":
            body = desk.model_shape(http).render_models(await desk.models.models(), self._created)
        elif path.startswith("/models/"):
            name = unquote(path.removeprefix("/models/"))
            body = desk.model_shape(http).render_model(await desk.known_model(name), self._created)
        elif http.path == "/metrics":
            gauges = {
                "live_turns": self._reception.live,
                "parked_turns": self._reception.parked,
                "running": self._running,
            }
            body, content_type = self._metrics.render(gauges), b"text/plain; version=0.0.4; charset=utf-8"
        elif http.path == "/openapi.json":
            body = self._document
        elif http.path == "/":
            body = b'{"name":"caretway","see":["/health","/v1/models","/v1/chat/completions"]}'
        else:
            raise _wrong_method(http) if http.path in desk.routes else _no_such(http)
        body = b"" if http.method == "HEAD" else body
        await send_whole(send, 200, body, common, content_type=content_type)


def _wrong_method(http: HttpRequest) -> GatewayError:
    return GatewayError(ErrorKind.WRONG_METHOD, f"{http.path} does not take {http.method}.")


def _no_such(http: HttpRequest) -> GatewayError:
    return GatewayError(
        ErrorKind.NOT_FOUND,
        f"There is nothing at {http.method} {http.path}.",
        hint="The base URL of OpenAI clients ends in /v1.",
    )
