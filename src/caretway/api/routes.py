"""The table of all paths: methods, handler, whether a key or an account is needed (`/healthz` and `/readyz` need
neither), what `/openapi.json` says of it.

Dispatch, 405 and its `Allow`, what is open without a key or an account, the document and the hints of a 404 all follow
from these rows. A new path is a new row here, or a row of a dialect's `routes`.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from ..dialects import Dialect, DialectRoute, Operation, ServesSockets
from ..processes.tasks import aside
from ..server.exchange import OTHER_VERSION, HttpRequest, speaks_version, switching
from ..server.shape import is_large, read_json
from .documents import MARK as PDF
from .documents import inline_pdfs
from .page_files import wants_page
from .passed import made_by, passed_request
from .route_table import HttpCall, Route, RouteTable
from .tenant import AccountUse

# ---- The handlers of all paths: `/v1/models`, `/health`, `/healthz`, `/metrics`, `/v1/tools`, `/caretway/v1/account`,
# `/openapi.json`, lookups that need no model. Each writes one whole answer, or raises; answers of a model are left to
# `respond`.
#
# What the model is asked for is `respond`'s business; here are the lookups and the gateway's own pages.

_MAX_QUERY_FIELDS: Final = 100
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_encode: Final = msgspec.json.Encoder().encode
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"


# ---- of dialects


def turn(call: HttpCall) -> Awaitable[None]:
    dialect = call.tenant.dialects[call.matched.route.dialect]
    return call.tenant.responder.answer(dialect, call.request, call.response, call.request_id, call.headers)


async def socket(call: HttpCall) -> None:
    """A WebSocket, for many turns. Each of its messages is a request of its own."""
    request, dialect = call.request, call.tenant.dialects[call.matched.route.dialect]
    if not speaks_version(request.headers):
        call.headers += OTHER_VERSION
    headers = switching(request.headers)
    from .socket_responses import new_connection, responses_socket  # only where it is used: it takes a while to load

    assert isinstance(dialect, ServesSockets)
    opened = responses_socket(request.path, request.headers, request.scheme, new_connection(), dialect.forget)
    call.response.switch([*headers, *call.headers], opened)


async def lookup(call: HttpCall) -> None:
    """What needs no turn: a token count, a stored object."""
    request, matched = call.request, call.matched
    dialect = call.tenant.dialects[matched.route.dialect]
    if (name := matched.params.get("id")) is not None and await _answered_by_maker(call, name):
        return
    find = dialect.lookups[matched.operation.id]
    body = request.take_body()
    read: list[object] = []
    if PDF in body:  # what would be sent is their text
        read.append(await aside(read_json, body, call.gateway.shape))
        await inline_pdfs(read[0])

    def run() -> bytes:
        parsed = read[0] if read else read_json(body, call.gateway.shape) if body else None
        return find(matched.params, request.headers, parsed)

    # Also those about earlier responses, which may be large, or in a file.
    apart = bool(read) or request.method != "POST" or bool(matched.params) or is_large(body) or dialect.recalls(body)
    found = await aside(run) if apart else run()
    call.response.send(200, found, call.headers)


async def _answered_by_maker(call: HttpCall, name: str) -> bool:
    """The gateway that made a response has it for certain; the others have what reached Redis."""
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
    """For balancers: whether it takes new requests."""
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
    call.response.send(200, _encode({"object": "account", **await call.tenant.account.told()}), call.headers)


async def openapi(call: HttpCall) -> None:
    call.response.send(200, call.gateway.document(), call.headers)


async def index(call: HttpCall) -> None:
    """The page for a browser; for others where to look."""
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
"""What belongs to no single API."""


def route_table(dialects: Iterable[Dialect], more: Iterable[Route] = ()) -> RouteTable:
    """`more`: what other rooms serve."""
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
