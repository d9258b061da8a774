"""Which route a request means: with or without `/v1`, twice, with doubled or trailing slashes; 404, 405 with `Allow`,
OPTIONS, HEAD where GET is, GET for a WebSocket. Pure; the rows are in `routes`.

What a client most likely meant is served: with `/v1` in front, without it, with it twice, with doubled slashes. A path
that is there and does not take the method is a 405 that names the methods it takes; one that is not is a 404 that says
what to type. A GET that asks for a WebSocket is a row of its own.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.passing import Elsewhere
from ..dialects import Operation
from ..observe.metrics import Metrics
from ..server.exchange import Header, HttpRequest, ResponseWriter
from ..server.shape import ShapeLimits
from .page_files import PageFiles
from .tenant import AccountUse, Tenant, TenantResolver

# ---- The words of a 404: a wrong base URL, a typing mistake, an API that is not served (embeddings, batches, Ollama
# ...), and what to type instead. Pure.
#
# Most wrong paths are a base URL with too much or too little in it, or a part of an API that is not served here. Each
# gets a sentence of its own; the base URL is shown as the client would have to write it.

MAX_COMPARED: Final = 64
"""Characters of a path that is compared with those that are served: longer ones are no typing mistake."""
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
"""Known paths of public APIs, and all below them, that are not served."""


class ServedPaths(Struct, frozen=True):
    """What there is, as far as hints need it."""

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
    """`path`: as it was understood."""
    host = request.headers.get("host", "")
    base = f"{request.scheme}://{host if host and len(host) <= MAX_HOST else 'HOST:PORT'}"
    return GatewayError(ErrorKind.NOT_FOUND, f"No route for {request.method} {path}.", hint=served.hint(path, base))


PREFIX: Final = "/v1"
PAGE_PREFIX: Final = "/caretway/"
MAX_TOLD: Final = 200
"""Characters of a path in a message."""
MAX_PATH: Final = 4096
"""Characters of a path that could mean something. Longer ones are not looked at closely."""
_SLASHES: Final = re.compile("/{2,}")
_PREFIXES: Final = re.compile(f"^(?:{PREFIX}){{2,}}(?=/|$)")
PARAMETER: Final = re.compile(r"\{(\w+)(:path)?\}")
"""One parameter in the path of a row: its name, and whether it is the rest of the path."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_SOCKET: Final = Operation("socket", "A WebSocket for many responses", "101, then messages")
_OPTIONS: Final = Operation("options", "The methods of a path", "Nothing; see the Allow header")


class GatewayState(Struct):
    """What handlers may know of the gateway as a whole."""

    tenants: TenantResolver
    metrics: Metrics
    shape: ShapeLimits
    created: int
    """Unix seconds."""
    document: Callable[[], bytes] = bytes
    """`/openapi.json`"""
    index: bytes = b""
    page: PageFiles | None = None
    """What browsers get."""
    elsewhere: Elsewhere | None = None
    """The other gateways of a cluster."""
    draining: bool = False
    """It stops: balancers should send new requests to others."""
    running: int = 0
    """Answers that are being made."""


class HttpCall(Struct):
    """One request at its handler."""

    gateway: GatewayState
    tenant: Tenant
    matched: "Matched"
    request: HttpRequest
    response: ResponseWriter
    request_id: str
    headers: list[Header]
    """Of whatever answer is given."""


Handler = Callable[[HttpCall], Awaitable[None]]


class Route(Struct, frozen=True):
    """One path."""

    path: str
    """`{id}` is one segment, `{id:path}` the rest."""
    operations: Mapping[str, Operation]
    """By method. HEAD is taken wherever GET is, OPTIONS everywhere."""
    handler: Handler
    prefixed: bool = True
    """Served below `/v1`, too."""
    account: AccountUse = AccountUse.REQUIRED
    keyless: frozenset[str] = frozenset()
    """Methods that need no key of the gateway."""
    dialect: str = ""
    """Whose path it is; empty: the gateway's own."""
    socket: Handler | None = None
    """Opens a WebSocket for the turns of this path."""
    page: bool = False
    """Of the page, which has a door of its own (`page_door`)."""
    browsers: bool = False
    """A browser gets the page here, without a key."""

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
    """Where every client brings its own account, others do not learn what there is."""
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
        """The name of the API whose words belong to a path, served or not; empty: nobody's."""
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
        if path.startswith(PAGE_PREFIX):  # the page's cookie counts: with a 401 the page would sign in again and again
            return Refused(missing, page=True, account=AccountUse.NONE)
        return Refused(missing)


def canonical(path: str) -> str:
    """The path that was meant: single slashes, none at the end, and `/v1` once at most."""
    if len(path) > MAX_PATH:
        return path
    path = _SLASHES.sub("/", path).rstrip("/") or "/"
    return _PREFIXES.sub(PREFIX, path)


def paths_of(route: Route) -> tuple[str, ...]:
    """The paths of a row. The one to show comes first."""
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
    """The path is there: is the method?"""
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
