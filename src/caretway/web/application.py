"""The application: one table of routes, one place where an unexpected failure becomes a 500."""

import asyncio
import logging
import re
import time
from os import urandom
from typing import Final
from urllib.parse import unquote

import msgspec

from .. import __version__
from ..core.errors import ErrorKind, GatewayError
from ..dialects import Dialect
from ..observe.metrics import Metrics
from ..tasks import aside
from .access import ALIVE
from .exchange import Exchange, Header, HttpRequest
from .openapi import document
from .respond import send_error
from .shape import ShapeLimits, is_large, read_json
from .tenant import Tenant, TenantResolver

log = logging.getLogger(__name__)

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Application:
    def __init__(
        self,
        *,
        reception: TenantResolver,
        metrics: Metrics,
        backend: str,
        shape: ShapeLimits,
        max_concurrent: int,
    ) -> None:
        self._reception = reception
        self._metrics = metrics
        self._backend: Header = (b"x-caretway-backend", backend.encode())
        self._shape = shape
        self._max_concurrent = max_concurrent
        self._running = 0
        self._created = int(time.time())
        self._document = msgspec.json.encode(document(__version__))

    def dialect(self, path: str) -> Dialect:
        """Whose words belong to this path."""
        return self._reception.lobby.dialect(path)

    # ---- what a connection asks for

    def enter(self, exchange: Exchange) -> None:
        """The head is here. When there is no place for its answer, its body is not waited for; it takes none yet."""
        if self._running >= self._max_concurrent and self._makes(exchange):
            raise GatewayError(ErrorKind.OVERLOADED, f"{self._max_concurrent} responses are being made already.")

    def begin(self, exchange: Exchange) -> None:
        """The body is here too: whoever wants an answer made takes a place until it leaves."""
        self.enter(exchange)
        if self._makes(exchange):
            self._running += 1

    def _makes(self, exchange: Exchange) -> bool:
        return exchange.http.method == "POST" and exchange.http.path in self._reception.lobby.routes

    def leave(self, exchange: Exchange) -> None:
        if self._makes(exchange):
            self._running -= 1

    async def answer(self, exchange: Exchange) -> None:
        http = exchange.http
        given = http.headers.get("x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else f"req_{urandom(16).hex()}"
        common: list[Header] = [(b"x-request-id", request_id.encode()), self._backend]
        try:
            async with self._reception.receive(http) as desk:
                dialect = desk.routes.get(http.path)
                if dialect is not None and http.method == "POST":
                    await desk.responder.answer(dialect, exchange, request_id, common)
                elif (runner := desk.errand_runner(http.path)) is not None:
                    await self._run_errand(runner, exchange, common)
                else:
                    await self._look_up(desk, exchange, common)
        except GatewayError as error:
            send_error(exchange, self.dialect(http.path), error, common)
        except Exception:
            log.exception("%s %s %s failed", request_id, http.method, http.path)
            if exchange.started:
                exchange.abort()
                return
            failure = GatewayError(ErrorKind.INTERNAL, f"The gateway failed; its log has the details for {request_id}.")
            send_error(exchange, self.dialect(http.path), failure, common)

    async def _run_errand(self, dialect: Dialect, exchange: Exchange, common: list[Header]) -> None:
        http, body, exchange.body = exchange.http, exchange.body, b""

        def run() -> tuple[int, bytes] | None:
            parsed = read_json(body, self._shape) if body else None
            return dialect.errand(http.method, http.path, http.headers, parsed)

        # Also those about earlier responses, which may be large.
        answer = await aside(run) if is_large(body) or http.method == "GET" else run()
        if answer is None:
            raise _no_such(http)
        status, told = answer
        exchange.send(status, told, common)

    async def _look_up(self, desk: Tenant, exchange: Exchange, common: list[Header]) -> None:
        http = exchange.http
        path = http.path.removeprefix("/v1")
        status, content_type = 200, b"application/json"
        if http.method not in ("GET", "HEAD"):
            known = path in ("/health", "/models", "/tools", "/") or http.path in (*desk.routes, ALIVE)
            raise _wrong_method(http) if known else _no_such(http)
        if path == "/health":
            status, body = await desk.health.render(parked=self._reception.parked, live=self._reception.live)
        elif http.path == ALIVE:
            body = await desk.health.alive()
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
                "tasks": len(asyncio.all_tasks()),
            }
            body, content_type = self._metrics.render(gauges), b"text/plain; version=0.0.4; charset=utf-8"
        elif http.path == "/openapi.json":
            body = self._document
        elif http.path == "/":
            body = b'{"name":"caretway","see":["/health","/v1/models","/v1/chat/completions"]}'
        else:
            raise _wrong_method(http) if http.path in desk.routes else _no_such(http)
        exchange.send(status, body, common, content_type=content_type)


def _wrong_method(http: HttpRequest) -> GatewayError:
    return GatewayError(ErrorKind.WRONG_METHOD, f"{http.path} does not take {http.method}.")


def _no_such(http: HttpRequest) -> GatewayError:
    return GatewayError(
        ErrorKind.NOT_FOUND,
        f"There is nothing at {http.method} {http.path}.",
        hint="The base URL of OpenAI clients ends in /v1.",
    )
