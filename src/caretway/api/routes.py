"""The table of all paths: methods, handler, whether a key or an account is needed (`/healthz` and `/readyz` need
neither), what `/openapi.json` says of it.

Dispatch, 405 and its `Allow`, what is open without a key or an account, the document and the hints of a 404 all follow
from these rows. A new path is a new row here, or a row of a dialect's `routes`.
"""

from collections.abc import Iterable
from typing import Final

from ..dialects import Dialect, DialectRoute, Operation
from . import endpoints
from .route_table import Route, RouteTable
from .tenant import AccountUse

OWN: Final = (
    Route(
        "/models",
        {"GET": Operation("models", "Models", "The list, in the shape of the API that asks", "ModelList")},
        endpoints.models,
    ),
    Route(
        "/models/{id:path}",
        {"GET": Operation("model", "One model", "The model, in the shape of the API that asks")},
        endpoints.model,
    ),
    Route(
        "/tools",
        {"GET": Operation("tools", "Tools that the gateway runs itself", "The list of tools and of MCP servers")},
        endpoints.tools,
    ),
    Route(
        "/caretway/v1/account",
        {
            "GET": Operation(
                "account", "What the account has used of its plan", "Both pools, money, the reset", "Account"
            )
        },
        endpoints.account,
        prefixed=False,
    ),
    Route(
        "/health",
        {"GET": Operation("health", "State of the gateway and the account", "Cursor can be reached", "Health")},
        endpoints.health,
        account=AccountUse.IF_SENT,
    ),
    Route(
        "/healthz",
        {"GET": Operation("healthz", "A sign of life, without a key", "`alive`, or `ready` when signed in")},
        endpoints.alive,
        prefixed=False,
        account=AccountUse.NONE,
        keyless=frozenset({"GET", "HEAD"}),
    ),
    Route(
        "/readyz",
        {"GET": Operation("readyz", "Whether it takes new requests", "`ready`; 503 and `draining` when it stops")},
        endpoints.ready,
        prefixed=False,
        account=AccountUse.NONE,
        keyless=frozenset({"GET", "HEAD"}),
    ),
    Route(
        "/metrics",
        {"GET": Operation("metrics", "Counters for Prometheus", "The counters, as text", schema="")},
        endpoints.metrics,
        prefixed=False,
        account=AccountUse.NONE,
    ),
    Route(
        "/openapi.json",
        {"GET": Operation("openapi", "This document", "The OpenAPI document of this gateway")},
        endpoints.openapi,
        prefixed=False,
        account=AccountUse.NONE,
    ),
    Route(
        "/",
        {"GET": Operation("root", "Where to look", "The gateway's name and its paths")},
        endpoints.index,
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
    turn = any(operation.turn for operation in route.operations.values())
    return Route(
        route.path,
        route.operations,
        endpoints.turn if turn else endpoints.lookup,
        dialect=dialect.name,
        socket=endpoints.socket if route.websocket else None,
    )
