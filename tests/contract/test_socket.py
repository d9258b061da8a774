"""Responses over a WebSocket: official SDK and raw clients, access, waiting messages, lanes, hanging up, stopping."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from caretway.api.socket_responses import MAX_WAITING
from caretway.usage.key_file import KeyFile, added, revoked
from contract.gateways import Client, gateway

KEY = "cw-0123456789abcdef"
LAST = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
STEPS = 10
LOOP = "\n".join([*(f'sim: call look {{"n": {n}}}' for n in range(STEPS)), "sim: say done"])


@asynccontextmanager
async def opened(client: Client, key: str = KEY, **headers: str) -> AsyncIterator[ClientConnection]:
    url = client.gateway.base_url.replace("http", "ws") + "/v1/responses"
    given = {"Authorization": f"Bearer {key}", **headers}
    async with connect(url, additional_headers=given, max_size=None) as socket:
        yield socket


async def ask(socket: ClientConnection, text: Any, **more: Any) -> None:
    await socket.send(
        json.dumps({"type": "response.create", "model": "sim-auto", "input": text, "store": False, **more})
    )


async def answer(socket: ClientConnection) -> list[dict[str, Any]]:
    """All events up to the end of a response."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in LAST:
        events.append(json.loads(await socket.recv()))
    return events


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


# ---- what it is for


@pytest.mark.seed("B30")
async def test_a_loop_of_ten_steps_is_one_run() -> None:
    """As Codex does it: a warm-up, then only what is new, and nothing stored."""
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        await ask(socket, [], generate=False)
        warm = (await answer(socket))[-1]["response"]
        assert (warm["status"], warm["output"], client.stats()["runs_opened"]) == ("completed", [], 0)
        new: Any = [{"role": "user", "content": LOOP}]
        before = warm["id"]
        for n in range(STEPS):
            await ask(socket, new, previous_response_id=before, tools=[TOOL])
            ended = (await answer(socket))[-1]["response"]
            [call] = [item for item in ended["output"] if item["type"] == "function_call"]
            assert json.loads(call["arguments"]) == {"n": n}
            before, new = ended["id"], [{"type": "function_call_output", "call_id": call["call_id"], "output": f"r{n}"}]
        await ask(socket, new, previous_response_id=before, tools=[TOOL])
        events = await answer(socket)
        assert text_of(events) == "done"
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert client.stats()["runs_opened"] == 1
        found = await client.http.get(f"/v1/responses/{before}", headers={"Authorization": f"Bearer {KEY}"})
        assert found.status_code == 404, "nothing was to be stored"


async def test_tools_inside_the_input_of_the_warm_up_last_as_long_as_the_conversation() -> None:
    """As Codex does it with newer models: `tools` is not sent at all."""
    namespace = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}, TOOL]}
    tools = {"type": "additional_tools", "role": "developer", "tools": [namespace]}
    loop = "\n".join([*(f'sim: call exec {{"input": "step {n}"}}' for n in range(STEPS)), "sim: say done"])
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        await ask(socket, [tools], generate=False)
        before = (await answer(socket))[-1]["response"]["id"]
        new: Any = [{"role": "user", "content": loop}]
        for n in range(STEPS):
            await ask(socket, new, previous_response_id=before, parallel_tool_calls=False)
            ended = (await answer(socket))[-1]["response"]
            [call] = ended["output"]
            assert (call["type"], call["namespace"], call["name"]) == ("custom_tool_call", "functions", "exec")
            assert call["input"] == f"step {n}"
            before = ended["id"]
            new = [{"type": "custom_tool_call_output", "call_id": call["call_id"], "output": f"r{n}"}]
        await ask(socket, [*new, tools], previous_response_id=before, parallel_tool_calls=False)
        assert text_of(await answer(socket)) == "done"
        assert client.stats()["runs_opened"] == 1


async def test_a_tool_search_over_a_socket() -> None:
    search = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
    namespace = {"type": "namespace", "name": "vault", "tools": [TOOL]}
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        script = 'sim: call tool_search {"query": "look"}\nsim: call look {"n": 1}\nsim: result'
        await ask(socket, [{"role": "user", "content": script}], tools=[search])
        ended = (await answer(socket))[-1]["response"]
        [call] = ended["output"]
        assert (call["type"], call["execution"], call["arguments"]) == (
            "tool_search_call",
            "client",
            {"query": "look"},
        )
        found = {"type": "tool_search_output", "call_id": call["call_id"], "execution": "client", "tools": [namespace]}
        await ask(socket, [found], previous_response_id=ended["id"], tools=[search])
        ended = (await answer(socket))[-1]["response"]
        [call] = ended["output"]
        assert (call["type"], call["namespace"], call["name"]) == ("function_call", "vault", "look")
        new = [{"type": "function_call_output", "call_id": call["call_id"], "output": "SEEN"}]
        await ask(socket, new, previous_response_id=ended["id"], tools=[search])
        assert text_of(await answer(socket)) == "SEEN"
        assert client.stats()["runs_opened"] == 2


async def test_the_official_helper() -> None:
    async with gateway(gateway_key=KEY) as client:
        sdk = openai.AsyncOpenAI(api_key=KEY, base_url=f"{client.gateway.base_url}/v1")
        async with sdk, sdk.responses.connect() as connection:
            await connection.response.create(model="sim-auto", input="sim: say The codeword is EGRET")
            first = ""
            async for event in connection:
                if event.type == "response.completed":
                    first = event.response.id
                    break
            await connection.response.create(model="sim-auto", input="sim: recall", previous_response_id=first)
            told = ""
            async for event in connection:
                if event.type == "response.output_text.delta":
                    told += event.delta
                if event.type == "response.completed":
                    break
            assert "EGRET" in told
            await connection.response.create(model="sim-auto", input="x", previous_response_id="resp_nothing")
            failed = await connection.recv()
            assert failed.type == "error"
            assert failed.status == 400
            assert failed.error.code == "previous_response_not_found"
            stored = await sdk.responses.retrieve(first)
            assert stored.output_text == "The codeword is EGRET"


# ---- access


async def test_access_is_the_same() -> None:
    async with gateway(gateway_key=KEY, allowed_origins=("https://mine.example",)) as client:
        for headers, status in (
            ({"Authorization": "Bearer cw-wrong-0123456789"}, 401),
            ({"Origin": "https://foreign.example"}, 403),
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with opened(client, **headers):
                    pass
            assert refused.value.response.status_code == status
        port = int(client.gateway.base_url.rpartition(":")[2])
        with pytest.raises(InvalidStatus) as refused:
            await connect("ws://rebound.example/v1/responses", host="127.0.0.1", port=port)
        assert refused.value.response.status_code == 403
        async with opened(client, Origin="https://mine.example") as socket:
            await ask(socket, "sim: say hello")
            assert text_of(await answer(socket)) == "hello"


async def test_each_message_passes_the_access_check_again() -> None:
    async with gateway(gateway_key=KEY, max_requests_per_minute=3) as client, opened(client) as socket:
        for _ in range(2):
            await ask(socket, "sim: say hello")
            assert text_of(await answer(socket)) == "hello"
        await ask(socket, "sim: say hello")
        [refused] = await answer(socket)
        assert (refused["status"], refused["error"]["code"]) == (429, "too_many_requests")
        assert int(refused["headers"]["retry-after"]) > 0


# ---- messages

WRONG = [
    ("{", 400, "invalid_json"),
    ("[]", 400, "invalid_event"),
    ("{}", 400, "invalid_event"),
    ('{"type": 5}', 400, "invalid_event"),
    ('{"type": "response.cancel"}', 400, "unknown_event"),
    ('{"type": "response.create"}', 400, "missing_model"),
    ('{"type": "response.create", "model": "sim-auto"}', 400, "missing_required_parameter"),
    ('{"type": "response.create", "model": "sim-auto", "input": "x", "background": true}', 400, "unsupported"),
    ('{"type": "response.create", "model": "sim-auto", "input": "sim: fail usage_limit"}', 402, "insufficient_quota"),
    ('{"type": "response.create", "x": ' + "[" * 100_000, 400, "invalid_json"),
]


async def test_what_is_wrong_is_told_and_the_connection_goes_on() -> None:
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        for message, status, code in WRONG:
            await socket.send(message)
            [error] = await answer(socket)
            assert (error["status"], error["error"]["code"]) == (status, code), message[:80]
        await socket.send('{"type": "response.steer", "input": "stop", "previous_response_id": "resp_1"}')
        failed = json.loads(await socket.recv())
        assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "steering_not_supported")
        assert failed["steer"] == {"input": "stop", "previous_response_id": "resp_1"}
        await ask(socket, "sim: say hello")
        assert text_of(await answer(socket)) == "hello"


async def test_messages_wait_in_order_and_not_without_end() -> None:
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        await ask(socket, "sim: hang")
        json.loads(await socket.recv())
        for n in range(MAX_WAITING + 1):
            await ask(socket, f"sim: say {n}")
        while (event := json.loads(await socket.recv()))["type"] != "error":
            pass
        assert (event["status"], event["error"]["code"]) == (429, "too_many_waiting_requests")
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        for n in range(MAX_WAITING):
            await ask(socket, f"sim: say {n}")
        assert [text_of(await answer(socket)) for _ in range(MAX_WAITING)] == [str(n) for n in range(MAX_WAITING)]


async def test_what_comes_behind_a_large_message_waits_for_it() -> None:
    """Large ones are looked at beside the event loop, and refused there where a decoder would hold it."""
    filling = "é" * 2**20
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        crowd = '{"type": "response.create", "model": "sim-auto", "input": [' + "[]," * 600_000 + "[]]}"
        await socket.send(crowd)
        await socket.send(crowd)
        await ask(socket, "sim: say one", instructions=filling)
        await ask(socket, "sim: say two")
        await ask(socket, "sim: say three", instructions=filling)
        await ask(socket, "sim: say four")
        for _ in range(2):
            [refused] = await answer(socket)
            assert (refused["status"], refused["error"]["code"]) == (413, "too_many_values")
        assert [text_of(await answer(socket)) for _ in range(4)] == ["one", "two", "three", "four"]
        await socket.send(filling.encode() + b"\xff", text=True)
        await socket.wait_closed()
        assert socket.close_code == 1007


async def test_a_message_in_crumbs() -> None:
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        text = json.dumps({"type": "response.create", "model": "sim-auto", "input": "sim: say " + "x" * 500})

        async def crumbs() -> AsyncIterator[str]:
            for letter in text:
                yield letter
                yield ""

        await socket.send(crumbs())
        assert text_of(await answer(socket)) == "x" * 500


async def test_a_key_that_is_revoked_asks_no_more(tmp_path: Path) -> None:
    """Nor does one that is made later under its name see what it stored."""
    file = KeyFile(tmp_path)
    file.change(lambda keys: added(keys, KEY, "anna", 0.0))
    other = KEY + "-another"
    async with gateway(data_dir=tmp_path) as client:
        async with opened(client) as socket:
            await ask(socket, "sim: say hello", store=True)
            ended = (await answer(socket))[-1]["response"]["id"]
            file.change(lambda keys: added(revoked(keys, "anna"), other, "anna", 0.0))
            await ask(socket, "sim: say hello")
            [refused] = await answer(socket)
            assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")
        async with opened(client, key=other) as socket:
            await ask(socket, "sim: recall", previous_response_id=ended)
            assert (await answer(socket))[-1]["error"]["code"] == "previous_response_not_found"


async def test_lanes_run_side_by_side() -> None:
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        await ask(socket, "sim: hang", stream_id="slow")
        await ask(socket, "sim: say quick", stream_id='a "quick" one')
        said = ""
        while True:
            event = json.loads(await socket.recv())
            if event["stream_id"] != "slow":
                assert event["stream_id"] == 'a "quick" one'
                said += event.get("delta", "")
                if event["type"] == "response.completed":
                    break
        assert said == "quick"


async def test_hanging_up_ends_the_run_and_forgets() -> None:
    async with gateway(gateway_key=KEY, disconnect_grace=0.0) as client:
        async with opened(client) as socket:
            await ask(socket, "sim: say hello")
            ended = (await answer(socket))[-1]["response"]["id"]
            await ask(socket, "sim: stream 100000 10 5")
            while json.loads(await socket.recv())["type"] != "response.output_text.delta":
                pass
            socket.transport.abort()
        async with asyncio.timeout(20):
            while client.gateway.tenants.live:
                await asyncio.sleep(0.01)
        async with opened(client) as socket:
            await ask(socket, "sim: recall", previous_response_id=ended)
            assert (await answer(socket))[-1]["error"]["code"] == "previous_response_not_found"
        assert client.stats()["runs_opened"] == 2


@pytest.mark.all  # 300 MB of events in this process
async def test_a_client_that_reads_nothing_holds_back_its_own_run() -> None:
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        await ask(socket, "sim: stream 1500 1000")
        await asyncio.sleep(0)
        async with opened(client) as other:
            await ask(other, "sim: say hello")
            assert text_of(await answer(other)) == "hello"
        events = await answer(socket)
        assert len(text_of(events)) == 1_500_000


async def test_a_gateway_that_stops_lets_the_response_end() -> None:
    async with gateway(gateway_key=KEY) as client, opened(client) as idle, opened(client) as busy:
        await ask(busy, "sim: stream 50 10 10")
        json.loads(await busy.recv())
        stopping = asyncio.create_task(client.gateway.stop())
        await idle.wait_closed()
        await ask(busy, "sim: say late", stream_id="late")
        events = await answer(busy)
        assert events[-1]["type"] == "response.completed"
        assert not any("stream_id" in event for event in events), "nothing new is begun"
        for socket in (idle, busy):
            await socket.wait_closed()
            assert socket.close_code == 1001
        await stopping


# ---- messages made by chance

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    "",
    "x",
    "\u2028\u0000",
    [],
    {},
    [[]],
    {"type": {}},
    "a" * 5000,
    [{"role": 7}],
]
FIELDS = [
    "type",
    "model",
    "input",
    "store",
    "tools",
    "tool_choice",
    "previous_response_id",
    "generate",
    "stream_id",
    "instructions",
    "reasoning",
    "text",
    "include",
    "metadata",
    "background",
    "stream",
    "parallel_tool_calls",
]


def by_chance(chance: random.Random) -> str:
    """A `response.create` with some fields gone, and some that hold what they should not."""
    message: dict[str, Any] = {
        "type": "response.create",
        "model": "sim-auto",
        "input": "sim: say hello",
        "store": False,
    }
    for name in chance.sample(FIELDS, chance.randint(0, 3)):
        if chance.random() < 0.3:
            message.pop(name, None)
        else:
            message[name] = chance.choice(ODD)
    text = json.dumps(message)
    if chance.random() < 0.2:  # cut somewhere
        text = text[: chance.randrange(len(text))]
    return text


async def test_messages_made_by_chance_get_one_end_each() -> None:
    """Whatever a message holds: it gets a response or an error that has a status and a code, and the next is served."""
    chance = random.Random(24)
    async with gateway(gateway_key=KEY) as client, opened(client) as socket:
        ends: Counter[str] = Counter()
        for _ in range(300):
            message = by_chance(chance)
            await socket.send(message)
            async with asyncio.timeout(30):
                event = (await answer(socket))[-1]
            ends[event["type"]] += 1
            if event["type"] == "error":
                assert 400 <= event["status"] < 500, (message[:300], event)
                assert event["error"]["code"], (message[:300], event)
        assert ends["response.completed"] > 20, ends
        assert ends["error"] > 100, ends
        await ask(socket, "sim: say still here")
        assert text_of(await answer(socket)) == "still here"
