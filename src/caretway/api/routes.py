"""The table of all paths: methods, handler, whether a path needs a key or an account (`/healthz` and `/readyz` need
neither), and its entry in `/openapi.json`.

Dispatch, 405 with `Allow`, access without a key or an account, the OpenAPI document and the hints of a 404 follow from
these rows. A new path is a new row here, or a row of a dialect's `routes`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.passing import Elsewhere
from ..dialects import Dialect, DialectRoute, Operation, ServesSockets
from ..observe.metrics import Metrics
from ..processes.tasks import aside
from ..server.exchange import OTHER_VERSION, Header, HttpRequest, ResponseWriter, speaks_version, switching
from ..server.shape import ShapeLimits, is_large, read_json
from .documents import MARK as PDF
from .documents import inline_pdfs
from .page_files import PageFiles, wants_page
from .passed import made_by, passed_request
from .tenant import AccountUse, Tenant, TenantResolver

# ---- Which route a request means. Pure; the rows are in `routes`. A path is served with `/v1` in front, without it,
# with `/v1` twice, and with doubled or trailing slashes. A known path with a wrong method is a 405 that names the right
# methods; an unknown path is a 404 with a hint. A GET that asks for a WebSocket has its own row.

# ---- Hints of a 404. Pure. Most wrong paths are a base URL with too much or too little in it, or belong to an API that
# is not served (embeddings, batches, Ollama). Each API has its own hint; a hint shows the base URL as the client has to
# write it.

MAX_COMPARED: Final = 64
"""Longest path, in characters, that is compared with the served paths: longer paths are no typing mistakes."""
MAX_HOST: Final = 128

_NO_FILES: Final = "Files are not kept here. Send their content in the message."
_NO_AGENTS: Final = "OpenAI's Assistants are not served. Use POST /v1/responses."
_NOT_OLLAMA: Final = "This is not Ollama's API. Choose an OpenAI-compatible provider in the client."
ELSEWHERE: Final[dict[str, str]] = {
    "/complete": "The old Text Completions API is not served. Use POST /v1/messages.",
    "/embeddings": "Embeddings are not served: Cursor has none. Use another provider for them.",
    "/moderations": "Moderation is not served: Cursor has none. Use another provider for it.",
    "/rerank": "Reranking is not served: Cursor has none. Use another provider for it.",
    "/images": "Images are not made here: Cursor has no API for them. Use another provider for them.",
    "/videos": "Videos are not made here: Cursor has no API for them. Use another provider for them.",
    "/audio": "Speech is not served: Cursor has none. Use another provider for it.",
    "/realtime": "The Realtime API is not served. Use POST /v1/responses.",
    "/files": _NO_FILES,
    "/uploads": _NO_FILES,
    "/vector_stores": _NO_FILES,
    "/containers": _NO_FILES,
    "/batches": "Batches are not served. Send the requests one by one.",
    "/messages/batches": "Batches are not served. Send the requests one by one to POST /v1/messages.",
    "/conversations": "Conversations are not kept by name. Use `previous_response_id` of POST /v1/responses.",
    "/assistants": _NO_AGENTS,
    "/threads": _NO_AGENTS,
    "/fine_tuning": "Fine-tuning is not served. Cursor's models are used as they are.",
    "/organizations": "The Admin API is not served. Accounts are managed at cursor.com.",
    "/api/chat": _NOT_OLLAMA,
    "/api/generate": _NOT_OLLAMA,
    "/api/tags": _NOT_OLLAMA,
    "/api/show": _NOT_OLLAMA,
    "/api/version": _NOT_OLLAMA,
    "/v1beta": "Google's API is not served. Choose an OpenAI-compatible provider in the client.",
}
"""Prefixes of paths of public APIs that are not served."""


class ServedPaths(Struct, frozen=True):
    """The served paths, for hints."""

    prefix: str
    paths: tuple[str, ...]
    """Without the prefix."""

    def is_elsewhere(self, path: str) -> bool:
        return self._elsewhere(path) is not None

    def hint(self, path: str, base: str) -> str:
        if (sentence := self._elsewhere(path)) is not None:
            return sentence
        bases = f"{base}{self.prefix} for OpenAI's clients, {base} for Anthropic's"
        # `/openai/v1/chat/completions`, `/v1/chat/completions/chat/completions`
        if tails := [served for served in self.paths if "{" not in served and path.endswith(served)]:
            right = self.prefix + max(tails, key=len)
            return f"Did you mean {right}? Then the client's base URL is wrong. It is {bases}."
        from difflib import get_close_matches  # only a mistake pays for this import

        if len(path) <= MAX_COMPARED and (near := get_close_matches(self._plain(path), self.paths, 1, 0.8)):
            return f"Did you mean {self.prefix}{near[0]}?"
        return f"The base URL is {bases}. GET / lists what is served."

    def _plain(self, path: str) -> str:
        return path.removeprefix(self.prefix) if path.startswith(f"{self.prefix}/") else path

    def _elsewhere(self, path: str) -> str | None:
        parts = self._plain(path).split("/", 3)[1:]
        two = "/" + "/".join(parts[:2])
        return ELSEWHERE.get(two) or ELSEWHERE.get("/" + parts[0] if parts else "")


def not_found(request: HttpRequest, path: str, served: ServedPaths) -> GatewayError:
    """The 404 of a path. `path` is canonical."""
    host = request.headers.get("host", "")
    base = f"{request.scheme}://{host if host and len(host) <= MAX_HOST else 'HOST:PORT'}"
    return GatewayError(ErrorKind.NOT_FOUND, f"No route for {request.method} {path}.", hint=served.hint(path, base))


PREFIX: Final = "/v1"
PAGE_PREFIX: Final = "/caretway/"
MAX_TOLD: Final = 200
"""Characters of a path that an error message shows."""
MAX_PATH: Final = 4096
"""Characters: a longer path is not normalised."""
_SLASHES: Final = re.compile("/{2,}")
_PREFIXES: Final = re.compile(f"^(?:{PREFIX}){{2,}}(?=/|$)")
PARAMETER: Final = re.compile(r"\{(\w+)(:path)?\}")
"""One parameter in a row's path: its name, and a marker if it takes the rest of the path."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_SOCKET: Final = Operation("socket", "A WebSocket for many responses", "101, then messages")
_OPTIONS: Final = Operation("options", "The methods of a path", "Nothing; see the Allow header")


class GatewayState(Struct):
    """What handlers can read of the whole gateway."""

    tenants: TenantResolver
    metrics: Metrics
    shape: ShapeLimits
    created: int
    """Unix seconds."""
    document: Callable[[], bytes] = bytes
    """`/openapi.json`"""
    index: bytes = b""
    page: PageFiles | None = None
    """Files of the dashboard; None: the dashboard is off."""
    elsewhere: Elsewhere | None = None
    """The other gateways of a cluster."""
    draining: bool = False
    """The gateway is stopping: `/readyz` fails, so that balancers send new requests elsewhere."""
    running: int = 0
    """Responses in progress."""


class HttpCall(Struct):
    """One request at its handler."""

    gateway: GatewayState
    tenant: Tenant
    matched: "Matched"
    request: HttpRequest
    response: ResponseWriter
    request_id: str
    headers: list[Header]
    """Headers of every response to this request."""


Handler = Callable[[HttpCall], Awaitable[None]]


class Route(Struct, frozen=True):
    """One row of the table: a path with its methods and handler."""

    path: str
    """`{id}` matches one segment, `{id:path}` the rest of the path."""
    operations: Mapping[str, Operation]
    """By method. A path with GET also serves HEAD; every path serves OPTIONS."""
    handler: Handler
    prefixed: bool = True
    """Also served below `/v1`."""
    account: AccountUse = AccountUse.REQUIRED
    keyless: frozenset[str] = frozenset()
    """Methods that need no gateway key."""
    dialect: str = ""
    """The dialect of the path; empty for the gateway's own paths."""
    socket: Handler | None = None
    """Opens a WebSocket for the turns of this path."""
    page: bool = False
    """The path belongs to the dashboard, which has its own access rules (`dashboard_access`)."""
    browsers: bool = False
    """A browser gets the dashboard here, without a key."""

    @property
    def allow(self) -> tuple[str, ...]:
        methods = {*self.operations, "OPTIONS"} | ({"HEAD"} if "GET" in self.operations else set())
        return tuple(sorted(methods))


class Matched(Struct, frozen=True):
    route: Route
    operation: Operation
    handler: Handler
    params: Mapping[str, str]
    keyless: bool = False
    turn: bool = False
    account: AccountUse = AccountUse.REQUIRED
    page: bool = False
    browsers: bool = False


class Refused(Struct, frozen=True):
    error: GatewayError
    headers: tuple[Header, ...] = ()
    keyless: bool = False
    turn: bool = False
    account: AccountUse = AccountUse.REQUIRED
    """REQUIRED, so that a client without an account cannot probe for paths where every client has its own account."""
    page: bool = False
    browsers: bool = False


class RouteTable:
    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._exact: dict[str, tuple[Route, dict[str, Matched]]] = {}
        self._patterns: list[tuple[re.Pattern[str], Route, dict[str, Matched]]] = []
        self._owners: dict[str, str] = {}
        for route in self.routes:
            if route.dialect:
                self._owners[_first_segment(route.path)] = route.dialect
            if PARAMETER.search(route.path):
                self._patterns.append((_pattern(route), route, _matches(route)))
            else:
                for path in paths_of(route):
                    self._exact[path] = route, _matches(route)
        self._served = ServedPaths(
            PREFIX, tuple(route.path for route in self.routes if route.prefixed and route.path != "/")
        )

    def resolve(self, request: HttpRequest) -> Matched | Refused:
        found = self._exact.get(request.path)
        matched = found[1].get(request.method) if found is not None else None
        return matched if matched is not None else self._search(request)

    def dialect(self, path: str) -> str:
        """The dialect that owns a path, served or not; empty if no single dialect owns it."""
        return self._owners.get(_first_segment(canonical(path).removeprefix(PREFIX)), "")

    def _search(self, request: HttpRequest) -> Matched | Refused:
        path = canonical(request.path)
        if (exact := self._exact.get(path)) is not None:
            return _with_method(request, path, *exact, _NONE)
        if not self._served.is_elsewhere(path):
            for pattern, route, methods in self._patterns:
                if found := pattern.fullmatch(path):
                    return _with_method(request, path, route, methods, found.groupdict())
        missing = not_found(request, path[:MAX_TOLD], self._served)
        if path.startswith(PAGE_PREFIX):  # the dashboard's cookie is valid: a 401 would make the page sign in again
            return Refused(missing, page=True, account=AccountUse.NONE)
        return Refused(missing)


def canonical(path: str) -> str:
    """The normal form of a path: single slashes, no trailing slash, `/v1` at most once."""
    if len(path) > MAX_PATH:
        return path
    path = _SLASHES.sub("/", path).rstrip("/") or "/"
    return _PREFIXES.sub(PREFIX, path)


def paths_of(route: Route) -> tuple[str, ...]:
    """All paths of a row; the path to display comes first."""
    if not route.prefixed:
        return (route.path,)
    return ("/", PREFIX) if route.path == "/" else (PREFIX + route.path, route.path)


def _matches(route: Route) -> dict[str, Matched]:
    operations = dict(route.operations)
    if "GET" in operations:
        operations["HEAD"] = operations["GET"]
    found = {
        method: Matched(
            route,
            operation,
            route.handler,
            _NONE,
            method in route.keyless,
            operation.turn,
            route.account,
            route.page,
            route.browsers,
        )
        for method, operation in operations.items()
    }
    return found | {"OPTIONS": Matched(route, _OPTIONS, _tell_methods, _NONE, account=route.account)}


def _with_method(
    request: HttpRequest, path: str, route: Route, methods: Mapping[str, Matched], params: Mapping[str, str]
) -> Matched | Refused:
    """Choose the method of a known path."""
    if (matched := methods.get(request.method)) is not None:
        return replace(matched, params=params) if params else matched
    if route.socket is not None and _wants_websocket(request):
        return Matched(route, _SOCKET, route.socket, params, account=route.account)
    return _wrong_method(request, path[:MAX_TOLD], route)


async def _tell_methods(call: HttpCall) -> None:
    call.response.send(204, b"", [*call.headers, _allow(call.matched.route)])


def _pattern(route: Route) -> re.Pattern[str]:
    pattern, at = "", 0
    for parameter in PARAMETER.finditer(route.path):
        pattern += re.escape(route.path[at : parameter.start()])
        pattern += f"(?P<{parameter[1]}>{'.+' if parameter[2] else '[^/]+'})"
        at = parameter.end()
    prefix = f"(?:{PREFIX})?" if route.prefixed else ""
    return re.compile(prefix + pattern + re.escape(route.path[at:]), re.DOTALL)


def _first_segment(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


def _allow(route: Route) -> Header:
    return b"allow", ", ".join(route.allow).encode()


def _wrong_method(request: HttpRequest, path: str, route: Route) -> Refused:
    error = GatewayError(
        ErrorKind.WRONG_METHOD,
        f"{path} does not take {request.method}.",
        hint=f"Send {' or '.join(route.operations)}.",
    )
    return Refused(error, (_allow(route),))


def _wants_websocket(request: HttpRequest) -> bool:
    return request.method == "GET" and "websocket" in request.headers.get("upgrade", "").lower()


# ---- The handlers of the gateway's paths and of lookups. Each writes one whole response or raises; `respond` makes the
# responses of models.

_MAX_QUERY_FIELDS: Final = 100
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_encode: Final = msgspec.json.Encoder().encode
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"


# ---- of dialects


def turn(call: HttpCall) -> Awaitable[None]:
    dialect = call.tenant.dialects[call.matched.route.dialect]
    return call.tenant.responder.answer(dialect, call.request, call.response, call.request_id, call.headers)


async def socket(call: HttpCall) -> None:
    """Open a WebSocket for many turns. Each of its messages is a request."""
    request, dialect = call.request, call.tenant.dialects[call.matched.route.dialect]
    if not speaks_version(request.headers):
        call.headers += OTHER_VERSION
    headers = switching(request.headers)
    from .socket_responses import new_connection, responses_socket  # only where it is used: it takes a while to load

    assert isinstance(dialect, ServesSockets)
    opened = responses_socket(request.path, request.headers, request.scheme, new_connection(), dialect.forget)
    call.response.switch([*headers, *call.headers], opened)


async def lookup(call: HttpCall) -> None:
    """Serve a request that needs no turn: a token count, a stored object."""
    request, matched = call.request, call.matched
    dialect = call.tenant.dialects[matched.route.dialect]
    if (name := matched.params.get("id")) is not None and await _answered_by_maker(call, name):
        return
    find = dialect.lookups[matched.operation.id]
    body = request.take_body()
    read: list[object] = []
    if PDF in body:  # the text of the PDFs is sent, so the text is counted
        read.append(await aside(read_json, body, call.gateway.shape))
        await inline_pdfs(read[0])

    def run() -> bytes:
        parsed = read[0] if read else read_json(body, call.gateway.shape) if body else None
        return find(matched.params, request.headers, parsed)

    # Token counts that refer to earlier responses run in a thread too: these may be large, or in a file.
    apart = bool(read) or request.method != "POST" or bool(matched.params) or is_large(body) or dialect.recalls(body)
    found = await aside(run) if apart else run()
    call.response.send(200, found, call.headers)


async def _answered_by_maker(call: HttpCall, name: str) -> bool:
    """Pass a lookup to the gateway that made the response `name`, which may be the only one that has the response.
    True if that gateway has answered the client."""
    elsewhere, request, made = call.gateway.elsewhere, call.request, made_by(name)
    if elsewhere is None or request.visit is not None or made is None:
        return False
    return await elsewhere.lookup(made, passed_request(request, request.body, call.request_id), call.response)


# ---- of the gateway


async def models(call: HttpCall) -> None:
    listed = call.tenant.responder.visible(call.request.caller, await call.tenant.models.models())
    dialect = call.tenant.dialect_of(call.request.headers)
    wanted = _query(call.request)
    call.response.send(200, dialect.render_models(listed, call.gateway.created, wanted), call.headers)


def _query(request: HttpRequest) -> Mapping[str, str]:
    return dict(parse_qsl(request.query, max_num_fields=_MAX_QUERY_FIELDS)) if request.query else _NOTHING


async def model(call: HttpCall) -> None:
    found = await call.tenant.known_model(call.matched.params["id"], call.request.caller)
    dialect = call.tenant.dialect_of(call.request.headers)
    call.response.send(200, dialect.render_model(found, call.gateway.created), call.headers)


async def health(call: HttpCall) -> None:
    tenants = call.gateway.tenants
    status, body = await call.tenant.health.render(parked=tenants.parked, live=tenants.live)
    call.response.send(status, body, call.headers)


async def alive(call: HttpCall) -> None:
    call.response.send(200, await call.tenant.health.alive(), call.headers)


async def ready(call: HttpCall) -> None:
    """For load balancers: 200 if the gateway takes new requests, 503 while it drains."""
    draining = call.gateway.draining
    call.response.send(
        503 if draining else 200, b'{"status":"%b"}' % (b"draining" if draining else b"ready"), call.headers
    )


async def tools(call: HttpCall) -> None:
    call.response.send(200, call.tenant.health.render_tools(), call.headers)


async def metrics(call: HttpCall) -> None:
    """Metrics of all keys for callers that may see the dashboard; otherwise of the caller's own key."""
    gateway = call.gateway
    key = call.tenant.responder.named(call.request.caller)
    if key is not None and not key.page:
        own = gateway.metrics.render_for(key.name)
        call.response.send(200, own, call.headers, content_type=_PROMETHEUS)
        return
    gauges = {
        "live_turns": gateway.tenants.live,
        "parked_turns": gateway.tenants.parked,
        "running": gateway.running,
        "tasks": len(asyncio.all_tasks()),
    }
    call.response.send(200, gateway.metrics.render(gauges), call.headers, content_type=_PROMETHEUS)


async def account(call: HttpCall) -> None:
    call.response.send(200, _encode({"object": "account", **await call.tenant.account.current()}), call.headers)


async def openapi(call: HttpCall) -> None:
    call.response.send(200, call.gateway.document(), call.headers)


async def index(call: HttpCall) -> None:
    """Send the dashboard to a browser, and the list of paths to other clients."""
    files = call.gateway.page
    if files is not None and "index.html" in files and wants_page(call.request.headers):
        files.send("index.html", call)
        return
    call.response.send(200, call.gateway.index, call.headers)


OWN: Final = (
    Route(
        "/models",
        {"GET": Operation("models", "Models", "The list, in the shape of the API that asks", "ModelList")},
        models,
    ),
    Route(
        "/models/{id:path}",
        {"GET": Operation("model", "One model", "The model, in the shape of the API that asks")},
        model,
    ),
    Route(
        "/tools",
        {"GET": Operation("tools", "Tools that the gateway runs itself", "The list of tools and of MCP servers")},
        tools,
    ),
    Route(
        "/caretway/v1/account",
        {
            "GET": Operation(
                "account", "What the account has used of its plan", "Both pools, money, the reset", "Account"
            )
        },
        account,
        prefixed=False,
    ),
    Route(
        "/health",
        {"GET": Operation("health", "State of the gateway and the account", "Cursor can be reached", "Health")},
        health,
        account=AccountUse.IF_SENT,
    ),
    Route(
        "/healthz",
        {"GET": Operation("healthz", "A sign of life, without a key", "`alive`, or `ready` when signed in")},
        alive,
        prefixed=False,
        account=AccountUse.NONE,
        keyless=frozenset({"GET", "HEAD"}),
    ),
    Route(
        "/readyz",
        {"GET": Operation("readyz", "Whether it takes new requests", "`ready`; 503 and `draining` when it stops")},
        ready,
        prefixed=False,
        account=AccountUse.NONE,
        keyless=frozenset({"GET", "HEAD"}),
    ),
    Route(
        "/metrics",
        {"GET": Operation("metrics", "Counters for Prometheus", "The counters, as text", schema="")},
        metrics,
        prefixed=False,
        account=AccountUse.NONE,
    ),
    Route(
        "/openapi.json",
        {"GET": Operation("openapi", "This document", "The OpenAPI document of this gateway")},
        openapi,
        prefixed=False,
        account=AccountUse.NONE,
    ),
    Route(
        "/",
        {"GET": Operation("root", "Where to look", "The gateway's name and its paths")},
        index,
        account=AccountUse.NONE,
        keyless=frozenset({"HEAD"}),
        browsers=True,
    ),
)
"""Paths that belong to no single dialect."""


def route_table(dialects: Iterable[Dialect], more: Iterable[Route] = ()) -> RouteTable:
    """`more`: routes of other packages."""
    return RouteTable([*(_row(dialect, route) for dialect in dialects for route in dialect.routes), *OWN, *more])


def _row(dialect: Dialect, route: DialectRoute) -> Route:
    runs = any(operation.turn for operation in route.operations.values())
    return Route(
        route.path,
        route.operations,
        turn if runs else lookup,
        dialect=dialect.name,
        socket=socket if route.websocket else None,
    )
