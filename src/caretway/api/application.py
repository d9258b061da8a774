"""Answers an admitted request: request id, tenant, handler, the limit of concurrent responses (`max_concurrent`).

Only here does an unexpected failure become a 500, or a cut stream if the response had begun.
"""

import logging
import re
import secrets
import time
from collections.abc import Coroutine, Sequence
from functools import cache
from os import urandom
from typing import Any, Final

import msgspec

from .. import __version__
from ..core.caller import NOBODY, caller_of
from ..core.errors import ErrorKind, GatewayError
from ..core.json_bounds import crowded
from ..core.passing import CHALLENGE, HOP, Elsewhere
from ..core.records import Observer, RefusedRequest
from ..dialects import Dialect
from ..dialects.headers import OWNER
from ..observe.log import one_line
from ..observe.metrics import Metrics
from ..observe.trace import Trace
from ..server.access import Access, Admission, SharedAdmission, admit, preflight
from ..server.exchange import NO_CONTENT, Header, HttpRequest, ResponseWriter, header_text
from ..server.shape import ShapeLimits
from ..usage.key_file import KeyRegistry
from .answer import send_error
from .dashboard_access import DashboardAccess
from .page_files import PageFiles, wants_page
from .passed import check_passed_body
from .routes import GatewayState, HttpCall, Matched, Refused, Route, paths_of, route_table
from .tenant import TenantResolver

log = logging.getLogger(__name__)

MAX_PATH_TOLD: Final = 200
"""Characters of a refused request's path in its record."""
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
        """`more`: routes of other packages. `page`: files of the dashboard. `elsewhere`: the other gateways of a
        cluster."""
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
        """The dialect that owns the path; if none or several do, the client's dialect."""
        tenant, name = self._tenants.default, self.routes.dialect(request.path)
        return tenant.dialect(name) if name else tenant.dialect_of(request.headers)

    def use_backend(self, name: str) -> None:
        """Set the backend that the response header names."""
        self._backend: Header = (b"x-caretway-backend", name.encode())

    def drain(self) -> None:
        """Start draining: readiness fails, but requests that still arrive are served."""
        self._state.draining = True

    # ---- places

    def check(self, matched: Matched | Refused) -> None:
        """Refuse a turn at its head if `max_concurrent` responses are running. Takes no place yet."""
        if matched.turn and self._state.running >= self._max_concurrent:
            raise self._full()

    def begin(self, matched: Matched | Refused) -> None:
        """The body is complete: a turn takes a place until `leave`. Raises GatewayError if none is free."""
        if matched.turn:
            if self._state.running >= self._max_concurrent:
                raise self._full()
            self._state.running += 1

    def _full(self) -> GatewayError:
        return GatewayError(ErrorKind.OVERLOADED, f"{self._max_concurrent} responses are being made already.")

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
        except Exception:  # the last net: the traceback is logged, and the client gets the request id to search for
            log.exception("%s %s %s failed", request_id, one_line(request.method), one_line(request.path))
            if response.started:
                response.abort()
                return
            failure = GatewayError(ErrorKind.INTERNAL, f"The gateway failed; its log has the details for {request_id}.")
            self._refuse(matched, request, response, failure, request_id, headers)

    def refuse(self, request: HttpRequest, response: ResponseWriter, error: GatewayError, request_id: str) -> None:
        """Refuse a request that was not admitted, or whose body was refused."""
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
        """Send the error in the format of the API at the path, and record it."""
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


# ---- The order of checks at a request's head: CORS preflight, route, access, the caller's rate, free places; and the
# release of places at the end. `access`, `admission` and `routes` decide. A refusal has a new request id and the format
# of the API at the path.

# ---- Records one client's exchange in the trace (`--trace`): heads, the shape of bodies, the events of a stream,
# hang-ups; all redacted.

_LOOKED_AT: Final = 64 * 2**10
"""Bytes that are digested of a body that is too large to record field by field."""


class TraceRecorder:
    def __init__(self, trace: Trace, request: HttpRequest) -> None:
        self._trace = trace
        self._number = trace.number()
        headers = trace.redact.headers(request.headers.items())
        trace.write("request", exchange=self._number, method=request.method, path=request.path, headers=headers)

    def request_body(self, body: bytes) -> None:
        if body:
            self._trace.write("request body", exchange=self._number, bytes=len(body), json=_shape(self._trace, body))

    def hung_up(self) -> None:
        self._trace.write("hung up", exchange=self._number)

    def head(self, status: int, headers: Sequence[Header]) -> None:
        head = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        self._trace.write("response", exchange=self._number, status=status, headers=self._trace.redact.headers(head))

    def body(self, data: bytes, *, end: bool) -> None:
        events = _events(self._trace, data)
        self._trace.write("response body", exchange=self._number, bytes=len(data), json=events, end=end)


def _shape(trace: Trace, data: bytes) -> object:
    if crowded(data):
        return trace.redact.digest(data[:_LOOKED_AT].decode("latin-1"))
    try:
        return trace.redact.value(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return trace.redact.digest(data.decode("latin-1"))


def _events(trace: Trace, data: bytes) -> object:
    """The content of one write: an object, or whole events of a stream (a write never cuts an event)."""
    lines = data.split(b"\n")
    events = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    if not events:
        return _shape(trace, data) if data.startswith(b"{") else None
    return [_shape(trace, event) if event.startswith(b"{") else event.decode("latin-1") for event in events]


class AccessLayer:
    def __init__(
        self,
        application: Application,
        *,
        access: Access,
        admission: Admission,
        keys: KeyRegistry | None = None,
        trace: Trace | None = None,
        dashboard_access: DashboardAccess | None = None,
        elsewhere: Elsewhere | None = None,
        shared: SharedAdmission | None = None,
    ) -> None:
        """`dashboard_access`: access rules of the dashboard. `elsewhere`: the other gateways, which may pass requests
        to this one. `shared`: limits that all gateways count together."""
        self._elsewhere = elsewhere
        self._shared = shared
        self._application = application
        self._keys = keys
        self._access = access
        self._admission = admission
        self._trace = trace
        self._dashboard_access = dashboard_access or DashboardAccess(access, keys)

    def accept(self, request: HttpRequest, response: ResponseWriter) -> "AcceptedRequest | None":
        """Called at the end of a head. Returns None if the request is answered already, without its body. Raises
        GatewayError."""
        if self._trace is not None:
            response.observe(TraceRecorder(self._trace, request))
        if request.method == "OPTIONS":
            asked = preflight(self._access, request.scheme, request.headers)
            if asked is not None:
                response.send(NO_CONTENT, b"", asked)
                return None
        if self._elsewhere is not None and CHALLENGE in request.headers:
            self._accept_challenge(self._elsewhere, request, response)
            return None
        matched = self._application.routes.resolve(request)
        if self._elsewhere is not None and HOP in request.headers:
            return self._accept_passed(self._elsewhere, matched, request, response)
        if matched.page:
            return self._accept_visitor(matched, request, response)
        named = self._keys.current() if self._keys is not None else None
        admitted = admit(
            self._access,
            request.scheme,
            request.headers,
            keyless=matched.keyless or (matched.browsers and wants_page(request.headers)),
            named=named,
            now=time.time() if named is not None else 0.0,
        )
        request.caller = caller_of(admitted.caller, request.headers.get("user-agent", ""))
        if admitted.owner:
            request.headers = {**request.headers, OWNER: admitted.owner}
        if admitted.headers:
            response.add_headers(admitted.headers)
        if admitted.caller:
            self._admission.ask(admitted.caller)
        self._application.check(matched)
        return self._accepted(admitted.caller, matched, request, response)

    def _accept_challenge(self, elsewhere: Elsewhere, request: HttpRequest, response: ResponseWriter) -> None:
        try:
            answer = elsewhere.meet(request.headers[CHALLENGE])
        except GatewayError as problem:
            response.add_headers([(HOP.encode(), header_text(problem.message))])
            raise
        response.go_on()
        response.send(NO_CONTENT, b"", [(CHALLENGE.encode(), answer.encode())])

    def _accept_passed(
        self, elsewhere: Elsewhere, matched: Matched | Refused, request: HttpRequest, response: ResponseWriter
    ) -> "AcceptedRequest":
        """Accept a request from another gateway, which has checked its key and counted it."""
        try:
            visit = elsewhere.visit(request.method, request.target, request.headers)
        except GatewayError as problem:
            response.add_headers([(HOP.encode(), header_text(problem.message))])
            raise
        request.visit = visit
        request.caller = caller_of(visit.asker.key, visit.asker.agent)
        if visit.asker.owner:
            request.headers = {**request.headers, OWNER: visit.asker.owner}
        self._application.check(matched)
        return AcceptedRequest(self._application, self._admission, "", matched, request, response)

    def _accept_visitor(
        self, matched: Matched | Refused, request: HttpRequest, response: ResponseWriter
    ) -> "AcceptedRequest":
        """Admit a request of the dashboard. The dashboard polls often, so only its turns count against its key's
        limits."""
        admitted = self._dashboard_access.admit(request, keyless=matched.keyless)
        request.caller = caller_of(admitted.caller, request.headers.get("user-agent", ""))
        counted = admitted.caller if matched.turn else ""
        self._admission.ask(counted)
        self._application.check(matched)
        return self._accepted(counted, matched, request, response)

    def _accepted(
        self, caller: str, matched: Matched | Refused, request: HttpRequest, response: ResponseWriter
    ) -> "AcceptedRequest":
        if self._shared is not None and caller:
            return SharedRequest(self._application, self._admission, caller, matched, request, response, self._shared)
        return AcceptedRequest(self._application, self._admission, caller, matched, request, response)

    def refuse(
        self, path: str, response: ResponseWriter, error: GatewayError, request: HttpRequest | None = None
    ) -> None:
        """Send an error in the format of the API at the path. `request` is None if it could not be read."""
        self._application.refuse(request or HttpRequest("", path, {}), response, error, f"req_{secrets.token_hex(16)}")


class AcceptedRequest:
    """An admitted request, with the places that it takes while it is answered."""

    __slots__ = ("_admission", "_application", "_begun", "_caller", "_matched", "_request", "_response")

    def __init__(
        self,
        application: Application,
        admission: Admission,
        caller: str,
        matched: Matched | Refused,
        request: HttpRequest,
        response: ResponseWriter,
    ) -> None:
        self._application = application
        self._admission = admission
        self._caller = caller
        """Empty: the caller has no key and is not counted."""
        self._matched = matched
        self._request = request
        self._response = response
        self._begun = False

    def begin(self) -> None:
        """The body is complete: take a place for the caller and for the turn. Raises GatewayError if none is free."""
        if self._caller:
            self._admission.enter(self._caller)
        try:
            self._application.begin(self._matched)
        except GatewayError:
            if self._caller:
                self._admission.leave(self._caller)
            raise
        self._begun = True

    def answer(self) -> Coroutine[Any, Any, None]:
        return self._application.answer(self._matched, self._request, self._response)

    def leave(self) -> None:
        """Release the places of the request. Idempotent, and allowed before `begin`."""
        if self._begun:
            self._begun = False
            self._application.leave(self._matched)
            if self._caller:
                self._admission.leave(self._caller)


class SharedRequest(AcceptedRequest):
    """A request whose caller is limited across gateways."""

    __slots__ = ("_lease", "_shared")

    def __init__(
        self,
        application: Application,
        admission: Admission,
        caller: str,
        matched: Matched | Refused,
        request: HttpRequest,
        response: ResponseWriter,
        shared: SharedAdmission,
    ) -> None:
        super().__init__(application, admission, caller, matched, request, response)
        self._shared = shared
        self._lease = b""

    async def answer(self) -> None:
        refused, wait, self._lease = await self._shared.enter(self._caller, turn=self._matched.turn)
        if refused:
            error = self._admission.too_early(wait) if refused == "early" else self._admission.too_many()
            self._application.refuse(self._request, self._response, error, f"req_{secrets.token_hex(16)}")
            return
        await super().answer()

    def leave(self) -> None:
        super().leave()
        if self._lease:
            self._shared.leave(self._caller, self._lease)
            self._lease = b""
