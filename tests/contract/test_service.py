"""Health, models, errors of the plain kind, limits, hang-ups, load."""

import asyncio
import resource
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from caretway.config import Settings
from caretway.gateway import Gateway
from caretway.server.server import Server
from caretway_sim.catalogue import BASES
from caretway_sim.manners import Manners
from contract.gateways import CHAT, Client, gateway, gateway_to, result, simulated, tool


@pytest.fixture
def transport() -> str:
    return "h2"


@pytest.mark.seed("A09", "B01", "B02", "B03", "B05", "N14")
@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.both_profiles
async def test_health_and_models_with_and_without_prefix(client: Client, manners: Manners, prefix: str) -> None:
    health = (await client.http.get(f"{prefix}/health")).json()
    assert health["status"] == "ok"
    assert health["version"]
    assert health["auth"] == "authenticated"
    assert health["mcp"] == {"enabled": False, "servers": 0, "tools": 0}
    assert health["backend"] == {"name": "agent", "standing": "stand-in"}
    listed = (await client.http.get(f"{prefix}/models")).json()
    assert listed["object"] == "list"
    ids = [model["id"] for model in listed["data"]]
    if manners.cursor_catalogue:
        assert [name for name in ids if not name.endswith("-thinking")] == [base.id for base in BASES]
    else:
        assert ids == ["sim-auto", "sim-fast", "sim-think"]
    for model in listed["data"]:
        assert model["object"] == "model"
        assert model["owned_by"] == "cursor"
        assert isinstance(model["created"], int)
        assert model["name"]
    one = (await client.http.get(f"{prefix}/models/sim-fast")).json()
    assert one["id"] == "sim-fast"
    missing = await client.http.get(f"{prefix}/models/nope")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


BAD = [
    ("not json", b"{", 400, "invalid_json"),
    ("no body", b"", 400, "invalid_json"),
    ("deep", b"[" * 100_000, 400, "invalid_json"),
    ("not utf-8", b'{"model": "\xff"}', 400, "invalid_json"),
    ("no model", b'{"messages": [{"role": "user", "content": "x"}]}', 400, None),
    ("no messages", b'{"model": "m"}', 400, "missing_messages"),
    ("empty messages", b'{"model": "m", "messages": []}', 400, "missing_messages"),
    ("two choices", b'{"model": "m", "n": 2, "messages": [{"role": "user", "content": "x"}]}', 400, None),
]


@pytest.mark.seed("C03", "C04", "M06")
@pytest.mark.parametrize(("name", "body", "status", "code"), BAD, ids=[row[0] for row in BAD])
async def test_bad_requests(client: Client, name: str, body: bytes, status: int, code: str | None) -> None:
    response = await client.http.post(CHAT, content=body)
    error = response.json()["error"]
    assert response.status_code == status
    assert error["type"] == "invalid_request_error"
    assert error["status"] == status
    assert code is None or error["code"] == code
    assert client.stats()["runs_opened"] == 0


async def test_unknown_routes_and_methods(client: Client) -> None:
    routes = [("GET", "/nope", 404), ("POST", "/v1/nope", 404), ("GET", CHAT, 405), ("DELETE", "/v1/models", 405)]
    for method, path, status in routes:
        response = await client.http.request(method, path)
        assert response.status_code == status, (method, path)
        assert response.json()["error"]["message"]


ACCOUNTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "ok", "authenticated", "over "),
    ({"access_token": None, "api_key": "bad-key"}, "ok", "not_authenticated", "API key"),
    ({"agent_url": "http://127.0.0.1:9", "agent_retries": 0}, "error", "unknown", "127.0.0.1"),
]


@pytest.mark.seed("B01", "B03")
@pytest.mark.parametrize(("settings", "status", "auth", "detail"), ACCOUNTS, ids=[row[2] for row in ACCOUNTS])
@pytest.mark.parametrize("backend", ["agent", "legacy-chat"])
async def test_health_says_what_is_known_of_the_account(
    settings: dict[str, Any], status: str, auth: str, detail: str, backend: str
) -> None:
    async with gateway(backend=backend, **settings) as client:
        health = (await client.http.get("/health")).json()
        assert (health["status"], health["auth"]) == (status, auth)
        assert detail in health["detail"]


async def test_without_cursor_its_automatic_choice_is_listed() -> None:
    async with gateway(agent_url="http://127.0.0.1:9", agent_retries=0) as client:
        listed = (await client.http.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["default"], "Cursor's automatic choice needs no list"


async def test_request_ids_are_kept_or_made(client: Client) -> None:
    kept = await client.http.get("/health", headers={"x-request-id": "mine-1"})
    assert kept.headers["x-request-id"] == "mine-1"
    made = await client.http.get("/health", headers={"x-request-id": "bad id!"})
    assert made.headers["x-request-id"].startswith("req_")


async def test_body_limit() -> None:
    async with gateway(max_body_bytes=10_000) as client:
        response = await client.http.post(CHAT, content=b"x" * 20_000)
        assert (response.status_code, response.json()["error"]["status"]) == (413, 413)

        async def pieces() -> Any:  # without a content-length
            for _ in range(20):
                yield b"x" * 1000

        assert (await client.http.post(CHAT, content=pieces())).status_code == 413


async def test_too_many_at_once() -> None:
    async with gateway(max_concurrent=1) as client:
        body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: say x\nsim: hang"}]}
        async with client.http.stream("POST", CHAT, json=body) as response:
            await anext(response.aiter_bytes())
            refused = await client.chat("sim: say y")
            assert refused.status == 429
            assert refused.headers["retry-after"]
        answer = await eventually(lambda: client.chat("sim: say y"), lambda answer: answer.status == 200)
        assert answer.text == "y"


async def eventually(attempt: Any, good: Any) -> Any:
    async with asyncio.timeout(10):
        while True:
            outcome = await attempt()
            if good(outcome):
                return outcome
            await asyncio.sleep(0.02)


async def runs_open(client: Client) -> int:
    return client.simulator.open_runs


@pytest.mark.parametrize(
    ("prompt", "stream"),
    [("sim: hang", False), ("sim: hang", True), ("sim: say x\nsim: hang", True)],
    ids=["whole", "before the first byte", "in the stream"],
)
async def test_a_client_that_hangs_up_ends_the_run(prompt: str, stream: bool) -> None:
    async with gateway(disconnect_grace=0.1) as client:
        asking = asyncio.ensure_future(client.chat(prompt, stream=stream))
        await eventually(lambda: runs_open(client), lambda count: count == 1)
        asking.cancel()
        await eventually(lambda: runs_open(client), lambda count: count == 0)
        assert (await client.chat("sim: say fine")).text == "fine"


async def test_keep_alive_while_upstream_is_silent() -> None:
    async with gateway(keep_alive=0.05) as client:
        body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: say x\nsim: hang"}]}
        async with client.http.stream("POST", CHAT, json=body) as response:
            async for text in response.aiter_text():
                if ": keep-alive" in text:
                    break


async def test_keep_alive_while_nothing_that_comes_is_shown() -> None:
    """Thinking that nobody asked for, or a call that waits behind another: the client hears nothing of it."""
    async with gateway(keep_alive=0.1) as client:
        prompt = "\n".join(["sim: say begin", *["sim: think hm", "sim: wait 20"] * 40, "sim: say end"])
        body = {"model": "sim-auto", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": prompt}]}
        async with client.http.stream("POST", "/v1/messages", json=body) as response:
            said = (await response.aread()).decode()
    assert "event: ping" in said[said.index("begin") : said.index("message_stop")]


@pytest.mark.seed("M07")
async def test_two_hundred_streams_and_one_slow_reader() -> None:
    """All finish, the slow one too, and what it does not read is not piled up here."""
    async with gateway(stream_buffer_bytes=64 * 1024) as client:
        big = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: stream 4000 1700"}]}
        async with client.http.stream("POST", CHAT, json=big) as slow:
            first = slow.aiter_bytes()
            read = len(await anext(first))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            answers = await asyncio.gather(
                *(client.chat(f"sim: stream 20 30\nsim: say {n}", stream=True) for n in range(200))
            )
            for number, answer in enumerate(answers):
                assert answer.text.endswith(str(number))
                assert answer.finish == "stop"
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            async for data in first:
                read += len(data)
        assert read > 6_800_000
        assert grown < 150_000, f"{grown} kB more while 7 MB waited for a slow reader"


@pytest.mark.seed("B31")
async def test_metrics(client: Client) -> None:
    await client.chat("sim: say hello")
    await client.chat("sim: fail usage_limit")
    response = await client.http.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(response.text))
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert 'session="fresh",outcome="end"} 1' in response.text
    assert 'session="fresh",outcome="quota"} 1' in response.text
    assert 'caretway_tokens_total{kind="output",model="sim-auto",key=""}' in response.text


@pytest.mark.seed("E17")
async def test_metrics_tell_what_a_fresh_run_costs_and_a_resumed_one_spares(client: Client) -> None:
    lookup = tool("lookup", "key")
    talk = [{"role": "user", "content": 'sim: ponder 200 blobs\nsim: call lookup {"key": "k"}\nsim: result'}]
    first = await client.chat(talk, tools=[lookup])
    last = await client.chat([*talk, first.message, result(first.calls[0], "VALUE")], tools=[lookup])
    assert (last.session, last.text) == ("resumed", "VALUE")
    families = text_string_to_metric_families((await client.http.get("/metrics")).text)
    samples = [sample for family in families for sample in family.samples]

    def total(name: str, session: str) -> float:
        return sum(one.value for one in samples if (one.name, one.labels.get("session")) == (name, session))

    assert total("caretway_first_event_seconds_sum", "fresh") >= 0.2
    assert total("caretway_first_event_seconds_count", "fresh") == 1
    assert total("caretway_first_event_seconds_count", "resumed") == 1
    assert (total("caretway_runs_total", "fresh"), total("caretway_runs_total", "resumed")) == (1, 0)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_stopping_ends_running_responses_with_an_error_they_can_read(stream: bool) -> None:
    async with simulated() as (simulator, port), gateway_to(simulator, port, shutdown_grace=0.1) as client:
        asking = asyncio.ensure_future(client.chat("sim: say PART\nsim: hang", stream=stream))
        await eventually(lambda: runs_open(client), lambda count: count == 1)
        await client.gateway.__aexit__()
        answer = await asking
        assert answer.error is not None
        assert "stopping" in answer.error["message"]
        if stream:
            assert (answer.status, answer.text, answer.done) == (200, "PART", True)
        else:
            assert answer.status == 503


@pytest.mark.seed("A08")
async def test_a_library_starts_and_stops_it(tmp_path: Path) -> None:
    gateway = Gateway(Settings(port=0, backend="simulator", data_dir=tmp_path))
    url = await gateway.start()
    async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as http:
        assert (await http.get("/healthz")).json() == {"status": "ready"}
        await gateway.stop()
        with pytest.raises(httpx.ConnectError):
            await http.get("/healthz")


async def test_events_do_not_wait_for_acknowledgements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined, seen = Server.joined, []

    def spied(server: Server, connection: Any) -> bool:
        link = connection._transport.get_extra_info("socket")
        seen.append(bool(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        return joined(server, connection)

    monkeypatch.setattr(Server, "joined", spied)
    async with (
        Gateway(Settings(port=0, backend="simulator", data_dir=tmp_path)) as running,
        httpx.AsyncClient(base_url=running.base_url, trust_env=False, verify=False) as http,
    ):
        await http.get("/healthz")
    assert seen == [True]
