"""How a path finds its row, in a small table: prefixes, parameters, methods, and the precedence among rows."""

import pytest

from caretway.api.route_table import HttpCall, Matched, Refused, Route, RouteTable, canonical, paths_of
from caretway.core.errors import ErrorKind
from caretway.dialects import Operation
from caretway.server.exchange import HttpRequest


async def nobody(call: HttpCall) -> None:
    raise AssertionError("a table calls nobody")


def row(path: str, *methods: str, prefixed: bool = True, dialect: str = "") -> Route:
    return Route(path, {name: Operation(name.lower(), "", "") for name in methods}, nobody, prefixed, dialect=dialect)


TABLE = RouteTable(
    [
        row("/things", "GET", "POST", dialect="things"),
        row("/things/new", "GET"),
        row("/things/{id}", "GET", "DELETE"),
        row("/things/{id}/parts/{part}", "GET"),
        row("/docs/{name:path}", "GET"),
        row("/bare", "GET", prefixed=False),
    ]
)


def found(method: str, path: str) -> tuple[str, dict[str, str]] | ErrorKind:
    decision = TABLE.resolve(HttpRequest(method, path, {}))
    if isinstance(decision, Refused):
        return decision.error.kind
    return decision.route.path, dict(decision.params)


NOT_FOUND, WRONG_METHOD = ErrorKind.NOT_FOUND, ErrorKind.WRONG_METHOD
FOUND = [
    ("GET", "/v1/things", ("/things", {})),
    ("POST", "/things", ("/things", {})),
    ("DELETE", "/things", WRONG_METHOD),
    ("GET", "/things/new", ("/things/new", {})),
    ("DELETE", "/things/new", WRONG_METHOD),
    ("GET", "/things/7", ("/things/{id}", {"id": "7"})),
    ("HEAD", "/v1/things/7", ("/things/{id}", {"id": "7"})),
    ("OPTIONS", "/v1/things/7", ("/things/{id}", {"id": "7"})),
    ("POST", "/v1/things/7", WRONG_METHOD),
    ("GET", "/things/7/parts/8", ("/things/{id}/parts/{part}", {"id": "7", "part": "8"})),
    ("GET", "/things/7/parts", NOT_FOUND),
    ("GET", "/things/7/parts/8/9", NOT_FOUND),
    ("GET", "/v1/docs/a/b/c", ("/docs/{name:path}", {"name": "a/b/c"})),
    ("GET", "/docs", NOT_FOUND),
    ("GET", "/bare", ("/bare", {})),
    ("GET", "/v1/bare", NOT_FOUND),
    ("GET", "/v2/things", NOT_FOUND),
    ("GET", "/THINGS", NOT_FOUND),
    ("get", "/things", WRONG_METHOD),
]


@pytest.mark.parametrize(("method", "path", "expected"), FOUND)
def test_which_row(method: str, path: str, expected: object) -> None:
    assert found(method, path) == expected


def test_where_a_row_is_served() -> None:
    assert paths_of(row("/things", "GET")) == ("/v1/things", "/things")
    assert paths_of(row("/", "GET")) == ("/", "/v1")
    assert paths_of(row("/bare", "GET", prefixed=False)) == ("/bare",)


def test_an_exact_row_is_found_without_a_new_object() -> None:
    decision = TABLE.resolve(HttpRequest("POST", "/v1/things", {}))
    assert isinstance(decision, Matched)
    assert TABLE.resolve(HttpRequest("POST", "/v1/things", {})) is decision


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/", "/"),
        ("//", "/"),
        ("/v1", "/v1"),
        ("/v1/", "/v1"),
        ("/v1/v1", "/v1"),
        ("/v1/v1x", "/v1/v1x"),
        ("/v1v1/models", "/v1v1/models"),
        ("/v1//v1///models//", "/v1/models"),
        ("/models/v1/v1", "/models/v1/v1"),
        ("/../v1", "/../v1"),
    ],
)
def test_what_a_path_means(path: str, meant: str) -> None:
    assert canonical(path) == meant
