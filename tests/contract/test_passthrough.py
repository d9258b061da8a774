"""Each caller their own subscription: two keys, the same prompts, and nothing of one is reached through the other."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from caretway.config import Settings
from caretway.core.errors import GatewayError
from caretway.upstream import choose_backend
from contract.gateways import CHAT, Answer, Client, gateway, result, tool

ADA, BOB = "crsr_ada_model=sim-ada", "crsr_bob_model=sim-bob"
TOOLS = [tool("bash", "command")]
PROMPT = 'sim: call bash {"command": "one"}\nsim: call bash {"command": "two"}\nsim: result'


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Client]:
    async with gateway(auth_mode="passthrough", data_dir=tmp_path) as client:
        yield client


async def test_interleaved_tool_loops_stay_apart(shared: Client) -> None:
    histories: dict[str, list[dict[str, Any]]] = {key: [{"role": "user", "content": PROMPT}] for key in (ADA, BOB)}
    calls: dict[str, dict[str, Any]] = {}
    for step in range(3):
        for key, history in histories.items():
            answer = await shared.chat(history, headers=bearer(key), tools=TOOLS)
            assert answer.session == ("fresh" if step == 0 else "resumed")
            if step == 2:
                assert answer.text == f"result two of {key}"
                continue
            (calls[key],) = answer.calls
            history += [answer.message, result(calls[key], f"result {('one', 'two')[step]} of {key}")]
        assert step == 2 or calls[ADA]["id"] != calls[BOB]["id"]
    assert (shared.stats()["runs_opened"], shared.stats()["token_exchanges"]) == (2, 2)


async def test_a_ticket_is_worthless_to_another_account(shared: Client) -> None:
    asked = [{"role": "user", "content": 'sim: call bash {"command": "x"}\nsim: result'}]
    first = await shared.chat(asked, headers=bearer(ADA), tools=TOOLS)
    (call,) = first.calls
    stolen = [*asked, first.message, result(call, "of bob")]
    theft = await shared.chat(stolen, headers=bearer(BOB), tools=TOOLS)
    assert (theft.session, theft.headers["x-caretway-session-reason"]) == ("replayed", "unknown or expired ticket")
    required = await shared.chat(stolen, headers=bearer(BOB) | {"x-caretway-session": "required"}, tools=TOOLS)
    assert required.status == 409
    mine = await shared.chat([*asked, first.message, result(call, "of ada")], headers=bearer(ADA), tools=TOOLS)
    assert (mine.session, mine.text) == ("resumed", "of ada"), "the parked turn was not disturbed"


async def test_a_conversation_is_continued_by_its_own_account_only(shared: Client) -> None:
    asked = [{"role": "user", "content": "sim: say hello"}]
    first = await shared.chat(asked, headers=bearer(ADA))
    more = [*asked, first.message, {"role": "user", "content": "sim: recall"}]
    sessions = [(await shared.chat(more, headers=bearer(key))).session for key in (BOB, ADA)]
    assert sessions == ["replayed", "continued"]


async def test_a_stored_response_is_found_by_its_own_account_only(shared: Client) -> None:
    body = {"model": "sim-auto", "input": "sim: say hello"}
    made = (await shared.http.post("/v1/responses", json=body, headers=bearer(ADA))).json()["id"]
    codes = {
        key: [
            (await shared.http.get(f"/v1/responses/{made}", headers=bearer(key))).status_code,
            (
                await shared.http.post("/v1/responses", json=body | {"previous_response_id": made}, headers=bearer(key))
            ).status_code,
        ]
        for key in (ADA, BOB)
    }
    assert codes[ADA] == [200, 200]
    assert codes[BOB][0] == 404 and codes[BOB][1] in (400, 404)


async def test_each_account_has_its_own_models(shared: Client) -> None:
    listed = {
        key: {model["id"] for model in (await shared.http.get("/v1/models", headers=bearer(key))).json()["data"]}
        for key in (ADA, BOB)
    }
    assert "sim-ada" in listed[ADA] - listed[BOB] and "sim-bob" in listed[BOB] - listed[ADA]


PATHS = [("POST", CHAT), ("POST", "/v1/messages"), ("POST", "/v1/responses"), ("GET", "/v1/models"), ("GET", "/x")]


@pytest.mark.parametrize(
    "headers", [{}, bearer("bad-key"), {"x-api-key": "expired"}, bearer("two words"), {"authorization": "Basic YTpi"}]
)
async def test_without_a_good_key_there_is_nothing(shared: Client, headers: dict[str, str]) -> None:
    for method, path in PATHS:
        answer = await shared.http.request(method, path, headers=headers, json={} if method == "POST" else None)
        assert (path, answer.status_code) == (path, 401)
        error = answer.json()["error"]
        assert error["type"] == ("authentication_error" if path == "/v1/messages" else error["type"])
        assert "API key" in error["message"] and shared.stats()["runs_opened"] == 0


async def test_the_anthropic_header_is_a_key_too(shared: Client) -> None:
    body = {"model": "sim-auto", "max_tokens": 100, "messages": [{"role": "user", "content": "sim: say hello"}]}
    answer = await shared.http.post("/v1/messages", json=body, headers={"x-api-key": ADA})
    assert answer.json()["content"][0]["text"] == "hello"


async def test_health_needs_no_key_and_spends_nothing(shared: Client) -> None:
    told = (await shared.http.get("/health")).json()
    assert (told["status"], told["auth"]) == ("ok", "not_authenticated") and "own Cursor API key" in told["detail"]
    assert (await shared.http.get("/health", headers=bearer(ADA))).json()["auth"] == "authenticated"


async def test_the_gateways_own_pages_look_at_no_key(shared: Client) -> None:
    for path in ("/", "/healthz", "/metrics", "/openapi.json"):
        for headers in (bearer("two words"), bearer("k" * 5000), bearer("bad-key"), {"authorization": "Basic YTpi"}):
            assert (await shared.http.get(path, headers=headers)).status_code == 200, (path, headers)
    assert shared.stats()["token_exchanges"] == 0


async def test_a_crowd_with_a_new_key_is_one_exchange_and_a_refused_one_is_asked_once(shared: Client) -> None:
    answers = await asyncio.gather(*(shared.chat("sim: say hello", headers=bearer(ADA)) for _ in range(20)))
    assert {answer.text for answer in answers} == {"hello"}
    assert shared.stats()["token_exchanges"] == 1
    refused = await asyncio.gather(*(shared.chat("sim: say hello", headers=bearer("bad-key")) for _ in range(5)))
    assert {answer.status for answer in refused} == {401}


async def test_the_owners_credentials_are_never_spent(tmp_path: Path) -> None:
    async with gateway(auth_mode="passthrough", api_key="crsr_owner", data_dir=tmp_path) as client:
        assert (await client.chat("sim: say hello")).status == 401
        assert client.stats()["token_exchanges"] == 0


async def test_accounts_are_bounded_and_idle_ones_make_room(tmp_path: Path) -> None:
    async with gateway(auth_mode="passthrough", max_accounts=1, data_dir=tmp_path) as client:
        for key in (ADA, BOB, ADA):
            assert (await client.chat("sim: say hello", headers=bearer(key))).text == "hello"
        parked = await client.chat(PROMPT, headers=bearer(ADA), tools=TOOLS)
        assert parked.finish == "tool_calls"
        crowded = await client.chat("sim: say hello", headers=bearer(BOB))
        assert crowded.status == 429 and "max_accounts" in error_text(crowded)
        held = [{"role": "user", "content": PROMPT}, parked.message, result(parked.calls[0], "ok")]
        assert (await client.chat(held, headers=bearer(ADA), tools=TOOLS)).session == "resumed"


def error_text(answer: Answer) -> str:
    assert answer.error is not None
    return str(answer.error["message"])


def _everything_below(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file()]


async def test_keys_and_tokens_are_written_nowhere(
    shared: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "caretway")
    await shared.chat("sim: say hello", headers=bearer(ADA))
    await shared.chat("sim: fail unauthenticated", headers=bearer(ADA))
    await shared.chat("sim: say hello", headers=bearer("bad-" + BOB))
    pages = [(await shared.http.get(path)).text for path in ("/health", "/metrics")]
    written = _everything_below(tmp_path)
    assert written, "the store was written"
    for secret in (ADA, BOB):
        assert secret not in caplog.text and secret not in "".join(pages)
        assert not any(secret.encode() in data for data in written)


async def test_a_stranger_cannot_make_the_gateway_hold_what_it_likes(shared: Client) -> None:
    with pytest.raises(httpx.HTTPError):  # httpx itself refuses to send a line break
        await shared.http.get("/v1/models", headers={"authorization": "Bearer a\r\nx: y"})
    long = await shared.http.get("/v1/models", headers=bearer("k" * 5000))
    assert long.status_code == 401


@pytest.mark.parametrize("backend", ["simulator", "cli"])
def test_backends_that_cannot_take_a_clients_key_are_refused(backend: Literal["simulator", "cli"]) -> None:
    with pytest.raises(GatewayError, match="keys of clients"):
        choose_backend(Settings(auth_mode="passthrough", backend=backend))
    assert choose_backend(Settings(auth_mode="passthrough")) == "agent"


async def test_the_gateways_own_key_is_not_taken_for_a_cursor_key(tmp_path: Path) -> None:
    own = "cw-a-key-of-the-gateway"
    async with gateway(auth_mode="passthrough", gateway_key=own, data_dir=tmp_path) as client:
        assert (await client.chat("sim: say hello", headers=bearer(own))).status == 401
        assert (await client.chat("sim: say hello", headers=bearer(ADA))).status == 401
        assert client.stats()["token_exchanges"] == 0
        for both in (bearer(own) | {"x-api-key": ADA}, bearer(ADA) | {"x-caretway-key": own}):
            assert (await client.chat("sim: say hello", headers=both)).text == "hello"
        assert client.stats()["token_exchanges"] == 1


async def test_clients_do_not_read_the_owners_workspace(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    prompt = f'sim: exec read {{"path": "{tmp_path / "diary.txt"}"}}\nsim: result'
    for mode, seen in (("passthrough", False), ("own", True)):
        async with gateway(auth_mode=mode, workspace=tmp_path, data_dir=tmp_path / mode) as client:
            answer = await client.chat(prompt, headers=bearer(ADA))
            assert ("dear diary" in answer.text) is seen, answer
