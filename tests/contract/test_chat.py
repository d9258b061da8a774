"""Chat completions through the whole house: transport x stream/whole x scenario."""

import base64
from typing import Any

import pytest

from caretway_sim.manners import Manners
from contract.gateways import CHAT, Client, gateway, tool

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6364f8cf500f0003860180345a347d6b0000000049454e44ae426082"
)


pytestmark = pytest.mark.both_profiles


@pytest.mark.seed("B10", "B22")
async def test_text_thinking_and_usage(client: Client, stream: bool) -> None:
    answer = await client.chat("sim: think Let me see.\nsim: say Grüße, “world” ✓ \\n second line", stream=stream)
    assert answer.status == 200
    assert answer.text == "Grüße, “world” ✓ \n second line"
    assert answer.reasoning == "Let me see."
    assert answer.finish == "stop"
    assert answer.done
    assert answer.usage is not None
    assert answer.usage["total_tokens"] == answer.usage["prompt_tokens"] + answer.usage["completion_tokens"]
    assert answer.usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert answer.headers["x-caretway-backend"] == "agent"
    assert answer.session == "fresh"


async def test_the_stream_is_live(client: Client) -> None:
    """The first chunk is there while the simulator still waits: nothing is collected on the way."""
    body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: say early\nsim: hang"}]}
    async with client.http.stream("POST", CHAT, json=body) as response:
        seen = ""
        async for text in response.aiter_text():
            seen += text
            if '"early"' in seen:
                break
        assert '"early"' in seen


@pytest.mark.seed("B21")
async def test_chunks_are_what_clients_need(client: Client) -> None:
    answer = await client.chat("sim: say one two", stream=True)
    first = answer.chunks[0]["choices"][0]
    assert first["delta"]["role"] == "assistant"
    assert {chunk["id"] for chunk in answer.chunks} == {answer.chunks[0]["id"]}
    assert all(chunk["object"] == "chat.completion.chunk" and chunk["created"] for chunk in answer.chunks)
    assert [c["choices"][0]["finish_reason"] for c in answer.chunks if c["choices"]].count("stop") == 1
    assert answer.chunks[-1]["choices"] == []
    assert "usage" in answer.chunks[-1]


async def test_drop_in_mid_text_gives_the_text_once(client: Client, stream: bool) -> None:
    answer = await client.chat("sim: say alpha beta\nsim: drop 1\nsim: say gamma delta", stream=stream)
    assert answer.text.split() == ["alpha", "beta", "gamma", "delta"]
    assert answer.finish == "stop"
    assert client.stats()["runs_resumed"] == 1


async def test_drop_before_text_is_not_noticed(client: Client, stream: bool) -> None:
    answer = await client.chat("sim: drop 2\nsim: say after the cuts", stream=stream)
    assert (answer.status, answer.text) == (200, "after the cuts")


async def test_a_connection_that_always_drops_is_an_error(transport: str, stream: bool, manners: Manners) -> None:
    async with gateway(transport, manners=manners, agent_retries=1) as client:
        answer = await client.chat("sim: drop 50\nsim: say never", stream=stream)
    assert answer.status == 503
    assert answer.error is not None
    assert answer.error["code"] == "upstream_unavailable"


FAILURES = [
    ("unauthenticated", 401, "authentication_error", "not_authenticated"),
    ("usage_limit", 402, "insufficient_quota", "insufficient_quota"),
    ("rate_limit", 429, "rate_limit_error", "rate_limited"),
    ("overflow", 400, "invalid_request_error", "context_length_exceeded"),
    ("bad_model", 400, "invalid_request_error", "model_not_found"),
    ("deprecated", 502, "upstream_error", "upstream_deprecated"),
    ("unavailable", 503, "upstream_error", "upstream_unavailable"),
    ("internal", 502, "upstream_error", "upstream_error"),
]


@pytest.mark.parametrize(("code", "status", "kind", "name"), FAILURES, ids=[row[0] for row in FAILURES])
async def test_failure_before_the_first_byte(
    client: Client, stream: bool, code: str, status: int, kind: str, name: str
) -> None:
    answer = await client.chat(f"sim: fail {code}", stream=stream)
    assert answer.status == status
    assert answer.error is not None
    assert (answer.error["code"], answer.error["status"]) == (name, status)
    assert answer.error["message"]
    assert ("retry-after" in answer.headers) == (code in ("rate_limit", "unavailable"))


@pytest.mark.seed("C14")
@pytest.mark.parametrize(("code", "status", "kind", "name"), FAILURES, ids=[row[0] for row in FAILURES])
async def test_failure_after_the_first_byte(client: Client, code: str, status: int, kind: str, name: str) -> None:
    answer = await client.chat(f"sim: say PART\nsim: fail {code}", stream=True)
    assert answer.status == 200
    assert answer.text == "PART"
    assert answer.error is not None
    assert answer.error["code"] == name
    assert answer.done


async def test_failure_in_the_middle_of_a_whole_answer_is_an_error(client: Client) -> None:
    answer = await client.chat("sim: say PART\nsim: fail usage_limit")
    assert (answer.status, answer.error and answer.error["code"]) == (402, "insufficient_quota")


async def test_stop_sequences_cut_and_end_the_run(client: Client, stream: bool) -> None:
    answer = await client.chat("sim: say one two STOP three\nsim: hang", stream=stream, stop=["STOP"])
    assert (answer.text, answer.finish) == ("one two ", "stop")


async def test_json_schema_is_checked_and_marked(client: Client) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    for text, note in [('{"n": 1}', "valid"), ('{"n": "x"}', "does not match"), ("no", "not valid JSON")]:
        body = {"model": "sim-auto", "messages": [{"role": "user", "content": f"sim: say {text}"}]}
        answer = (await client.http.post(CHAT, json=body | {"response_format": wanted})).json()
        assert answer["caretway"]["response_format"].startswith(note)


@pytest.mark.seed("B14")
async def test_what_cannot_be_honoured_is_named(client: Client) -> None:
    answer = await client.chat("sim: say ok", temperature=0.2, max_tokens=5, seed=1, brand_new_field=True, user="me")
    named = answer.headers["x-caretway-ignored"].split(", ")
    assert set(named) == {"temperature", "max_tokens", "seed", "brand_new_field"}


async def test_images_reach_the_model(client: Client) -> None:
    pixel = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "sim: say seen"},
        {"type": "image_url", "image_url": {"url": pixel}},
    ]
    answer = await client.chat([{"role": "user", "content": parts}])
    assert answer.text == "seen"
    parts[1]["image_url"]["url"] = "https://example.com/cat.png"
    answer = await client.chat([{"role": "user", "content": parts}])
    assert answer.status == 400


async def test_no_progress_is_a_timeout(transport: str, stream: bool, manners: Manners) -> None:
    async with gateway(
        transport, manners=manners, progress_timeout=0.3, client_heartbeat=0.1, exec_heartbeat=0.1
    ) as client:
        answer = await client.chat("sim: hang", stream=stream)
        assert (answer.status, answer.error and answer.error["code"]) == (504, "upstream_timeout")
        assert client.stats()["runs_opened"] == 2, "one fresh retry before the first byte"
        answer = await client.chat("sim: say PART\nsim: hang", stream=True)
        assert (answer.status, answer.text, answer.error and answer.error["code"]) == (200, "PART", "upstream_timeout")


async def test_silence_is_a_timeout(transport: str, manners: Manners) -> None:
    async with gateway(
        transport, manners=manners, silence_timeout=0.3, client_heartbeat=0.1, exec_heartbeat=0.1, agent_retries=1
    ) as client:
        answer = await client.chat("sim: mute")
        assert (answer.status, answer.error and answer.error["code"]) == (504, "upstream_timeout")


async def test_every_exec_and_query_gets_an_answer(client: Client) -> None:
    kinds = {
        "shell": '{"command": "true"}',
        "shell_stream": '{"command": "true"}',
        "read": '{"path": "/etc/hostname"}',
        "write": '{"path": "/tmp/x", "file_text": "x"}',
        "delete": '{"path": "/tmp/x"}',
        "ls": '{"path": "/"}',
        "grep": '{"pattern": "x"}',
        "fetch": '{"url": "http://127.0.0.1:9/"}',
        "diagnostics": '{"path": "/tmp/x"}',
        "background_shell": '{"command": "true"}',
        "list_mcp_resources": "{}",
        "read_mcp_resource": '{"server": "x", "uri": "y"}',
        "write_shell_stdin": '{"shell_id": 1, "chars": "x"}',
        "unknown": "{}",
    }
    for kind, arguments in kinds.items():
        answer = await client.chat(f"sim: exec {kind} {arguments}\nsim: result", tools=[tool("unrelated", "x")])
        assert answer.status == 200, (kind, answer.error)
        assert answer.text, kind
        assert answer.finish == "stop", kind
    for kind in ("web_search", "ask_question", "web_fetch", "switch_mode"):
        answer = await client.chat(f"sim: query {kind}\nsim: result")
        assert "rejected" in answer.text, (kind, answer.text)
    plan = await client.chat("sim: query create_plan\nsim: result")
    assert plan.text.endswith("success"), "a plan is taken, and is part of the answer"
