"""The gateway's own pages and the lookups, each through its row."""

import msgspec
import pytest

from caretway.core.turn import BackendStatus
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
