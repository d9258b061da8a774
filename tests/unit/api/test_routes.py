"""Every path and every method: who answers, what a refusal says, and what a wrong path is told to type."""

from itertools import product

import msgspec
import pytest

from caretway.api import routes
from caretway.api.openapi import SCHEMAS
from caretway.api.route_table import Matched, Refused, paths_of
from caretway.api.routes import OWN, route_table
from caretway.api.tenant import AccountUse
from caretway.core.errors import ErrorKind
from caretway.core.turn import BackendStatus
from caretway.dialects.registry import dialects
from caretway.server.exchange import HttpRequest
from unit.api.parts import Parts

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
