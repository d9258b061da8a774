"""Answers a request that was let in: its request id, its tenant, its handler, how many responses run at once
(`max_concurrent`), and the last net: an unexpected failure is a 500, or a cut stream when it had begun.

It bounds how many answers are made at a time, and is the one place where an unexpected failure becomes a 500.
"""

import logging
import re
import time
from collections.abc import Sequence
from functools import cache
from os import urandom
from typing import Final

import msgspec

from .. import __version__
from ..core.caller import NOBODY, caller_of
from ..core.errors import ErrorKind, GatewayError
from ..core.passing import Elsewhere
from ..core.records import Observer, RefusedRequest
from ..dialects import Dialect
from ..observe.log import one_line
from ..observe.metrics import Metrics
from ..server.exchange import Header, HttpRequest, ResponseWriter
from ..server.shape import ShapeLimits
from .answer import send_error
from .page_files import PageFiles
from .passed import check_passed_body
from .route_table import GatewayState, HttpCall, Matched, Refused, Route, paths_of
from .routes import route_table
from .tenant import TenantResolver

log = logging.getLogger(__name__)

MAX_PATH_TOLD: Final = 200
"""Characters of the path of a refused request."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Application:
    def __init__(
        self,
        *,
        tenants: TenantResolver,
        metrics: Metrics,
        observer: Observer,
        backend: str,
        shape: ShapeLimits,
        max_concurrent: int,
        more: Sequence[Route] = (),
        page: PageFiles | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`more`: paths of other rooms. `page`: what browsers get. `elsewhere`: the other gateways of a cluster."""
        self._tenants = tenants
        self._observer = observer
        self.use_backend(backend)
        self._max_concurrent = max_concurrent
        self.routes = route_table(tenants.default.dialects.values(), more)
        self._state = GatewayState(
            tenants,
            metrics,
            shape,
            created=int(time.time()),
            document=cache(self._document),
            index=msgspec.json.encode(
                {"name": "caretway", "see": [paths_of(route)[0] for route in self.routes.routes]}
            ),
            page=page,
            elsewhere=elsewhere,
        )

    def _document(self) -> bytes:
        from .openapi import document  # few ask for it

        return msgspec.json.encode(document(self.routes.routes, __version__))

    def dialect(self, request: HttpRequest) -> Dialect:
        """Whose words belong to this path; where it is nobody's or several have it, those of the client."""
        tenant, name = self._tenants.default, self.routes.dialect(request.path)
        return tenant.dialect(name) if name else tenant.dialect_of(request.headers)

    def use_backend(self, name: str) -> None:
        """The one that answers from now on."""
        self._backend: Header = (b"x-caretway-backend", name.encode())

    def drain(self) -> None:
        """Start draining: readiness fails, but requests that still arrive are served."""
        self._state.draining = True

    # ---- places

    def check(self, matched: Matched | Refused) -> None:
        """The head is here. When there is no place for its answer, its body is not waited for; it takes none yet."""
        if matched.turn and self._state.running >= self._max_concurrent:
            raise GatewayError(ErrorKind.OVERLOADED, f"{self._max_concurrent} responses are being made already.")

    def begin(self, matched: Matched | Refused) -> None:
        """The body is here too: a turn takes a place until it leaves."""
        self.check(matched)
        if matched.turn:
            self._state.running += 1

    def leave(self, matched: Matched | Refused) -> None:
        if matched.turn:
            self._state.running -= 1

    # ---- answers

    async def answer(self, matched: Matched | Refused, request: HttpRequest, response: ResponseWriter) -> None:
        given = request.headers.get("x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else f"req_{urandom(16).hex()}"
        headers: list[Header] = [(b"x-request-id", request_id.encode()), self._backend]
        try:
            if request.visit is not None:
                await check_passed_body(request)
            async with self._tenants.resolve(request, matched.account) as tenant:
                if isinstance(matched, Refused):
                    headers += matched.headers
                    raise matched.error
                call = HttpCall(self._state, tenant, matched, request, response, request_id, headers)
                await matched.handler(call)
        except GatewayError as error:
            self._refuse(matched, request, response, error, request_id, headers)
        except Exception:  # the last net: logged whole, and the client gets a number to look for
            log.exception("%s %s %s failed", request_id, one_line(request.method), one_line(request.path))
            if response.started:
                response.abort()
                return
            failure = GatewayError(ErrorKind.INTERNAL, f"The gateway failed; its log has the details for {request_id}.")
            self._refuse(matched, request, response, failure, request_id, headers)

    def refuse(self, request: HttpRequest, response: ResponseWriter, error: GatewayError, request_id: str) -> None:
        """For a request that was not let in, or whose body was not taken."""
        if request.caller is NOBODY:
            request.caller = caller_of("", request.headers.get("user-agent", ""))
        headers: list[Header] = [(b"x-request-id", request_id.encode())]
        self._refuse(self.routes.resolve(request), request, response, error, request_id, headers)

    def _refuse(
        self,
        matched: Matched | Refused,
        request: HttpRequest,
        response: ResponseWriter,
        error: GatewayError,
        request_id: str,
        headers: list[Header],
    ) -> None:
        """In the words of whatever API lives at the path."""
        status = send_error(response, self.dialect(request), error, headers)
        request.drop_headers()
        self._observer.request_refused(
            RefusedRequest(
                request_id=request_id,
                method=request.method,
                path=request.path[:MAX_PATH_TOLD],
                status=status,
                kind=error.kind.value,
                code=error.code or "",
                message=error.message,
                at=time.time(),
                caller=request.caller,
                dialect=self.routes.dialect(request.path),
                model=request.model,
                turn=matched.turn,
                hint=error.hint,
                trace=request.trace,
            )
        )
