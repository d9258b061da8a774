"""Every path and every method: who answers, what a refusal says, and what a wrong path is told to type."""

from itertools import product

import msgspec
import pytest

from caretway.api import routes
from caretway.api.openapi import SCHEMAS
from caretway.api.routes import (
    ELSEWHERE,
    OWN,
    HttpCall,
    Matched,
    Refused,
    Route,
    RouteTable,
    canonical,
    paths_of,
    route_table,
)
from caretway.api.tenant import AccountUse
from caretway.core.errors import ErrorKind
from caretway.core.turn import BackendStatus
from caretway.dialects import Operation
from caretway.dialects.registry import dialects
from caretway.server.exchange import HttpRequest
from unit.api.parts import Parts

HINTED = route_table(dialects())


def hint(path: str, method: str = "POST", host: str = "box:8", scheme: str = "http") -> str:
    decision = HINTED.resolve(HttpRequest(method, path, {"host": host} if host else {}, scheme))
    assert isinstance(decision, Refused), path
    assert decision.error.kind is ErrorKind.NOT_FOUND
    return decision.error.hint


BASES = "http://box:8/v1 for OpenAI's clients, http://box:8 for Anthropic's"
HINTS = [
    ("/v1/embeddings", ELSEWHERE["/embeddings"]),
    ("/embeddings", ELSEWHERE["/embeddings"]),
    ("/v1/v1/embeddings/", ELSEWHERE["/embeddings"]),
    ("/v1/complete", "The old Text Completions API is not served. Use POST /v1/messages."),
    ("/v1/images/generations", ELSEWHERE["/images"]),
    ("/v1/files/file_1/content", "Files are not kept here. Send their content in the message."),
    ("/v1/messages/batches", "Batches are not served. Send the requests one by one to POST /v1/messages."),
    ("/api/chat", "This is not Ollama's API. Choose an OpenAI-compatible provider in the client."),
    ("/v1beta/models/x:generateContent", ELSEWHERE["/v1beta"]),
    (
        "/openai/v1/chat/completions",
        f"Did you mean /v1/chat/completions? Then the client's base URL is wrong. It is {BASES}.",
    ),
    (
        "/v1/chat/completions/chat/completions",
        f"Did you mean /v1/chat/completions? Then the client's base URL is wrong. It is {BASES}.",
    ),
    ("/v1/messages/v1/messages", f"Did you mean /v1/messages? Then the client's base URL is wrong. It is {BASES}."),
    ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
    ("/message", "Did you mean /v1/messages?"),
    ("/v1/response", "Did you mean /v1/responses?"),
    ("/nothing", f"The base URL is {BASES}. GET / lists what is served."),
    ("/v1/" + "x" * 5000, f"The base URL is {BASES}. GET / lists what is served."),
]


@pytest.mark.parametrize(("path", "said"), HINTS, ids=[row[0][:40] for row in HINTS])
def test_hints(path: str, said: str) -> None:
    assert hint(path) == said


def test_nobody_who_is_there_is_sent_there() -> None:
    """Every path that a hint names is served with the method it names."""
    for sentence in ELSEWHERE.values():
        words = sentence.rstrip(".").split()
        for at, word in enumerate(words):
            if word == "POST":
                decision = HINTED.resolve(HttpRequest("POST", words[at + 1], {}))
                assert not isinstance(decision, Refused), sentence


@pytest.mark.parametrize("path", ELSEWHERE)
def test_what_is_elsewhere_is_not_served_here(path: str) -> None:
    for spelled in (path, f"/v1{path}", f"/v1{path}/more"):
        assert hint(spelled) == ELSEWHERE[path]
    assert not any(f"{row.path}/".startswith(f"{path}/") for row in HINTED.routes), "a new row wants this one gone"


def test_the_base_url_is_the_one_that_was_used() -> None:
    assert "https://gateway.example/v1 for" in hint("/x", host="gateway.example", scheme="https")
    assert "http://HOST:PORT/v1 for" in hint("/x", host="")
    assert "http://HOST:PORT/v1 for" in hint("/x", host="a" * 1000)


async def nobody(call: HttpCall) -> None:
    raise AssertionError("a table calls nobody")


def row(path: str, *methods: str, prefixed: bool = True, dialect: str = "") -> Route:
    return Route(path, {name: Operation(name.lower(), "", "") for name in methods}, nobody, prefixed, dialect=dialect)


TABLE_OF_ROUTE_TABLE = RouteTable(
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
    decision = TABLE_OF_ROUTE_TABLE.resolve(HttpRequest(method, path, {}))
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
    decision = TABLE_OF_ROUTE_TABLE.resolve(HttpRequest("POST", "/v1/things", {}))
    assert isinstance(decision, Matched)
    assert TABLE_OF_ROUTE_TABLE.resolve(HttpRequest("POST", "/v1/things", {})) is decision


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


OPENAI, ANTHROPIC = {"object", "data"}, {"data", "has_more", "first_id", "last_id"}


@pytest.mark.parametrize(("headers", "keys"), [({}, OPENAI), ({"anthropic_version": "2023-06-01"}, ANTHROPIC)])
async def test_models_in_the_shape_of_who_asks(headers: dict[str, str], keys: set[str]) -> None:
    written = await Parts().ask("GET", "/v1/models", **headers)
    assert set(msgspec.json.decode(written.body)) == keys


async def test_one_model() -> None:
    assert msgspec.json.decode((await Parts().ask("GET", "/models/vendor/model")).body)["id"] == "vendor/model"
    missing = await Parts().ask("GET", "/models/nope")
    assert (missing.status, msgspec.json.decode(missing.body)["error"]["code"]) == (404, "model_not_found")


async def test_health() -> None:
    parts = Parts()
    written = await parts.ask("GET", "/health")
    told = msgspec.json.decode(written.body)
    assert (written.status, told["status"], told["sessions"]) == (200, "ok", {"live": 3, "parked": 2})
    away = Parts()
    away.backend.answers = BackendStatus(False, "nobody answers", reachable=False)
    assert (await away.ask("GET", "/v1/health")).status == 503
    assert (await away.ask("GET", "/healthz")).body == b'{"status":"alive"}'


async def test_pages_of_the_gateway() -> None:
    parts = Parts()
    assert msgspec.json.decode((await parts.ask("GET", "/openapi.json")).body)["openapi"] == "3.1.0"
    assert "/v1/messages" in msgspec.json.decode((await parts.ask("GET", "/")).body)["see"]
    assert msgspec.json.decode((await parts.ask("GET", "/v1/tools")).body)["data"] == []
    metrics = await parts.ask("GET", "/metrics")
    assert b"content-type: text/plain; version=0.0.4; charset=utf-8" in metrics.head
    assert b"parked_turns 2" in metrics.body


async def test_a_head_is_a_get_without_its_body() -> None:
    get, head = await Parts().ask("GET", "/"), await Parts().ask("HEAD", "/")
    lengths = [[line for line in each.head if line.startswith(b"content-length")] for each in (get, head)]
    assert lengths[0] == lengths[1] != []
    assert head.body == b""


async def test_options_names_the_methods() -> None:
    written = await Parts().ask("OPTIONS", "/v1/responses/resp_1")
    assert (written.status, written.body) == (204, b"")
    assert b"allow: DELETE, GET, HEAD, OPTIONS" in written.head


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"model": "m", "messages": [{"role": "user", "content": "1234"}]}', 200),
        ("", 400),
        ("{", 400),
        ("[" * 100_000, 400),
    ],
)
async def test_a_lookup_reads_its_body_like_a_turn(body: str, status: int) -> None:
    assert (await Parts().ask("POST", "/v1/messages/count_tokens", body)).status == status


async def test_a_lookup_of_what_is_not_there() -> None:
    written = await Parts().ask("GET", "/v1/responses/resp_1")
    assert written.status == 404
    assert b"resp_1" in written.body


TABLE = route_table(dialects())
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READ = ("GET", "HEAD", "OPTIONS")
TURN = ("OPTIONS", "POST")
PATHS: dict[str, tuple[str, ...]] = {
    "/": READ,
    "/chat/completions": TURN,
    "/completions": TURN,
    "/messages": TURN,
    "/messages/count_tokens": TURN,
    "/responses": TURN,
    "/responses/compact": TURN,
    "/responses/input_tokens": TURN,
    "/responses/resp_1": ("DELETE", *READ),
    "/responses/resp_1/input_items": READ,
    "/models": READ,
    "/models/sim-auto": READ,
    "/models/vendor/model": READ,
    "/tools": READ,
    "/health": READ,
}
AT_THE_ROOT: dict[str, tuple[str, ...]] = {
    "/healthz": READ,
    "/readyz": READ,
    "/metrics": READ,
    "/openapi.json": READ,
    "/caretway/v1/account": READ,
}
SPELLINGS = ("{}", "/v1{}", "/v1/v1{}", "/v1/v1/v1{}", "//v1{}", "/v1/{}", "//v1//v1/{}", "{}/", "/v1{}//")
ROWS = [(spelling.format(path), allow) for path, allow in PATHS.items() for spelling in SPELLINGS]
ROWS += [(spelling.format(path), allow) for path, allow in AT_THE_ROOT.items() for spelling in ("{}", "/{}", "{}/")]


def resolve(method: str, path: str, **headers: str) -> Matched | Refused:
    return TABLE.resolve(HttpRequest(method, path, {"host": "localhost:1", **headers}))


def refused(method: str, path: str, **headers: str) -> Refused:
    decision = resolve(method, path, **headers)
    assert isinstance(decision, Refused), path
    return decision


def test_every_path_and_every_method() -> None:
    for (path, allow), method in product(ROWS, METHODS):
        decision = resolve(method, path)
        if method in allow:
            assert isinstance(decision, Matched), (path, method)
        else:
            assert isinstance(decision, Refused), (path, method)
            assert decision.error.kind is ErrorKind.WRONG_METHOD
            assert decision.headers == ((b"allow", ", ".join(sorted(allow)).encode()),), (path, method)


def test_the_table_above_has_all_rows() -> None:
    plain = {row.path.replace("{id:path}", "sim-auto").replace("{id}", "resp_1") for row in TABLE.routes}
    assert plain == {*PATHS, *AT_THE_ROOT} - {"/models/vendor/model"}


def test_what_stands_at_the_root_only() -> None:
    for path in AT_THE_ROOT:
        assert refused("GET", f"/v1{path}").error.kind is ErrorKind.NOT_FOUND


@pytest.mark.parametrize(
    ("path", "name", "params"),
    [
        ("/v1/responses/resp_1", "getResponse", {"id": "resp_1"}),
        ("/responses/resp_1/input_items", "getInput", {"id": "resp_1"}),
        ("/v1/models/vendor/model:thinking", "model", {"id": "vendor/model:thinking"}),
        ("/v1/v1/models/a", "model", {"id": "a"}),
        ("/v1/models/line\nbreak", "model", {"id": "line\nbreak"}),
        ("/v1/models", "models", {}),
    ],
)
def test_parameters(path: str, name: str, params: dict[str, str]) -> None:
    matched = resolve("GET", path)
    assert isinstance(matched, Matched)
    assert (matched.operation.id, dict(matched.params)) == (name, params)


def test_turns_and_lookups() -> None:
    for dialect in dialects():
        for row in TABLE.routes:
            if row.dialect == dialect.name:
                turns = {operation.turn for operation in row.operations.values()}
                assert len(turns) == 1
                assert row.handler is (routes.turn if turns == {True} else routes.lookup)
                for operation in row.operations.values():
                    assert operation.turn != (operation.id in dialect.lookups)


def test_rows_name_schemas_that_are_there() -> None:
    for row in TABLE.routes:
        for operation in row.operations.values():
            assert {operation.schema, operation.body, operation.error} - {""} <= set(SCHEMAS)


def test_who_may_come_in() -> None:
    keyless = {(path, method) for row in TABLE.routes for path in paths_of(row) for method in row.keyless}
    alive = {(path, method) for path in ("/healthz", "/readyz") for method in ("GET", "HEAD")}
    assert keyless == {("/", "HEAD"), ("/v1", "HEAD"), *alive}
    for path, method in keyless:
        assert resolve(method, path).keyless
        assert not resolve("OPTIONS", path).keyless
        assert not resolve("POST", path).keyless
    open_to_all = {row.path for row in TABLE.routes if row.account is AccountUse.NONE}
    assert open_to_all == {"/", "/healthz", "/readyz", "/metrics", "/openapi.json"}
    assert [row.path for row in TABLE.routes if row.account is AccountUse.IF_SENT] == ["/health"]
    assert refused("GET", "/nothing").account is AccountUse.REQUIRED


@pytest.mark.parametrize("path", ["/v1/responses", "/responses", "/v1/v1/responses", "//v1/responses/"])
@pytest.mark.parametrize("wish", ["websocket", "WebSocket", "h2c, websocket"])
def test_a_websocket_has_a_row_of_its_own(path: str, wish: str) -> None:
    decision = resolve("GET", path, upgrade=wish)
    assert isinstance(decision, Matched)
    assert (decision.operation.id, decision.turn, decision.keyless) == ("socket", False, False)
    assert refused("GET", path, upgrade="h2c").error.kind is ErrorKind.WRONG_METHOD
    assert isinstance(resolve("POST", path, upgrade=wish), Matched)
    assert refused("PUT", path, upgrade=wish).error.kind is ErrorKind.WRONG_METHOD


def test_a_websocket_elsewhere_is_a_wrong_method() -> None:
    assert refused("GET", "/v1/chat/completions", upgrade="websocket").error.kind is ErrorKind.WRONG_METHOD
    assert isinstance(resolve("GET", "/", upgrade="websocket"), Matched)


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/v1/messages", "anthropic_messages"),
        ("/messages/batches/x", "anthropic_messages"),
        ("//v1/v1/messages/", "anthropic_messages"),
        ("/v1/chat", "openai_chat"),
        ("/v1/responses/x/y", "openai_responses"),
        ("/v1/messagesx", ""),
        ("/v1/models", ""),
        ("/", ""),
        ("", ""),
        ("*", ""),
    ],
)
def test_whose_words_belong_to_a_path(path: str, owner: str) -> None:
    assert TABLE.dialect(path) == owner


def test_operations_are_told_apart() -> None:
    names = [operation.id for row in TABLE.routes for operation in row.operations.values()]
    assert len(names) == len(set(names))
    assert len(OWN) == 10


def test_a_message_holds_no_endless_path() -> None:
    for decision in (refused("GET", "//x" * 20_000), refused("PUT", "/v1/models/" + "x" * 20_000)):
        assert len(msgspec.json.encode(str(decision.error))) < 1000
