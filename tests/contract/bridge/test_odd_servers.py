"""Servers that hang, die, flood, change, boast or share names: the request ends well or with a clear error, always."""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caretway.cursor.wire.messages import pb
from caretway_sim import start
from caretway_sim.manners import LIVE_AT_ONCE
from contract.bridge.servers import bridged, health, odd, tools, until
from contract.gateways import Client


def call(name: str, text: str = "") -> str:
    return f"sim: call mcp__odd__{name} {json.dumps({'text': text})}\nsim: result"


async def test_one_that_never_answers_a_call() -> None:
    async with bridged({"odd": odd("hang", call_timeout=0.3)}) as client:
        answer = await client.chat(call("echo", "hello"))
    assert "gave no result within 0.3 s" in answer.text
    assert answer.finish == "stop"


@pytest.mark.seed("K02")
async def test_one_that_never_answers_at_all_is_in_nobodys_way(caplog: pytest.LogCaptureFixture) -> None:
    servers = {"silent": odd("silent", connect_timeout=0.3), "odd": odd(), "gone": {"command": "no-such-program"}}
    async with bridged(servers, mcp_start_wait=10) as client:
        answer = await client.chat(call("echo", "hello"))
        assert "plain says hello" in answer.text
        told = await until(client, lambda mcp: all(one["state"] == "failing" for one in mcp["problems"]))
        assert (told["enabled"], told["servers"]) == (True, 1)
        reasons = {one["server"]: one["detail"] for one in told["problems"]}
        assert reasons["silent"] == "it did not answer within 0.3 s"
        assert reasons["gone"].startswith("`no-such-program` cannot be started")
        assert (await tools(client))["mcp"]["problems"] == (await health(client))["problems"]
    assert "MCP server silent is not available" in caplog.text
    assert "MCP server gone is not available" in caplog.text


async def test_one_is_started_again_from_the_page() -> None:
    async with bridged({"odd": odd()}) as client:
        assert "plain says one" in (await client.chat(call("echo", "one"))).text
        (server,) = (await client.http.get("/caretway/v1/health")).json()["mcp"]["servers"]
        assert (server["state"], "echo" in {tool["name"] for tool in server["tools"]}) == ("connected", True)
        csrf = {"x-caretway-csrf": (await client.http.get("/caretway/v1/session")).json()["csrf"]}
        again = await client.http.post("/caretway/v1/mcp/odd/restart", headers=csrf)
        assert again.json() == {"restarting": True}
        await until(client, lambda mcp: mcp["servers"] == 1)
        assert "plain says two" in (await client.chat(call("echo", "two"))).text


async def test_one_that_dies_during_a_call_comes_back() -> None:
    async with bridged({"odd": odd()}, mcp_retry_pause=0.05) as client:
        answer = await client.chat(call("die"))
        assert (
            "failed to run `die`: it ended with exit code 7; its output: odd server: I was told to die" in answer.text
        )
        await until(client, lambda mcp: mcp["servers"] == 1)
        assert "plain says again" in (await client.chat(call("echo", "again"))).text


async def test_calling_one_that_is_gone_says_so() -> None:
    """Two calls in a row: it died in the first one, and the second one is not left waiting for it."""
    script = "sim: call mcp__odd__die {}\nsim: call mcp__odd__echo {}\nsim: result"
    async with bridged({"odd": odd()}, mcp_retry_pause=60) as client:
        answer = await client.chat(script)
    assert "The MCP server `odd`" in answer.text
    assert answer.finish == "stop"


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("flood", "lines that are not messages"),
        ("endless", "a line of more than"),
        ("crash", "it ended with exit code 1"),
    ],
)
async def test_one_that_cannot_be_understood(mode: str, reason: str) -> None:
    async with bridged({"odd": odd(mode), "good": odd()}, mcp_retry_pause=60) as client:
        answer = await client.chat('sim: call mcp__good__echo {"text": "hi"}\nsim: result')
        assert "plain says hi" in answer.text
        told = await until(client, lambda mcp: bool(mcp["problems"]) and mcp["problems"][0]["state"] == "failing")
        assert reason in told["problems"][0]["detail"]


async def test_noise_is_left_out() -> None:
    async with bridged({"odd": odd("noisy")}) as client:
        assert "noisy says hello" in (await client.chat(call("echo", "hello"))).text


async def test_one_tool_that_is_spelled_wrong_does_not_cost_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with bridged({"odd": odd("misspelt")}) as client:
        assert "misspelt says hello" in (await client.chat(call("echo", "hello"))).text
        names = [one["id"] for one in (await tools(client))["data"]]
    assert names == ["mcp__odd__echo", "mcp__odd__last"]
    assert "wrong_0: it has no inputSchema" in caplog.text


@pytest.mark.parametrize("count", [500, 2_000])
async def test_tools_that_cursor_does_not_take_are_left_out(count: int) -> None:
    """The request goes on with the first ones, and the finding says so."""
    async with bridged({"odd": odd("many", str(count))}) as client:
        for _ in range(2):
            answer = await client.chat("sim: call mcp__odd__tool_7 {}\nsim: result")
            assert answer.status == 200 and "tool_7 done" in answer.text
        told = (await health(client))["problems"]
        print(told)
        assert any(f"of {min(count, 1000)} tools" in one["detail"] for one in told)
        assert (count > 1000) == any("more than 1000 tools" in one["detail"] for one in told)


async def test_500_tools() -> None:
    """Nobody minds the number here: the bridge lists and offers all of them."""
    unbounded = replace(LIVE_AT_ONCE, limits=False)
    async with bridged({"odd": odd("many")}, agent_quirks={"limits": False}, manners=unbounded) as client:
        answer = await client.chat("sim: call mcp__odd__tool_499 {}\nsim: result")
        assert "tool_499 done" in answer.text
        assert len((await tools(client))["data"]) == 500


async def test_two_servers_with_the_same_tools() -> None:
    servers = {"one": odd("plain", "one"), "two": odd("plain", "two"), "an other": odd("plain", "other")}
    async with bridged(servers) as client:
        await client.chat("sim: say ready")
        listed = (await tools(client))["data"]
        odd_name = next(entry["id"] for entry in listed if entry["server"] == "an other" and entry["name"] == "echo")
        script = 'sim: call mcp__one__echo {"text":"1"} & mcp__two__echo {"text":"2"} & %s {"text":"3"}\nsim: result'
        answer = await client.chat(script % odd_name)
    assert all(said in answer.text for said in ("one says 1", "two says 2", "other says 3"))


async def test_the_list_follows_its_changes() -> None:
    async with bridged({"odd": odd("changing")}) as client:
        assert "flip done" in (await client.chat("sim: call mcp__odd__flip {}\nsim: result")).text
        await until(client, lambda mcp: mcp["tools"] == 2)
        assert "late done" in (await client.chat("sim: call mcp__odd__late {}\nsim: result")).text


async def test_progress_keeps_a_call_alive() -> None:
    """Twelve steps of 0.15 s with a limit of 1 s: longer than the limit as a whole, and never silent for so long."""
    async with bridged({"odd": odd(call_timeout=1.0), "mute": odd("mute", call_timeout=1.0)}) as client:
        assert "slow done" in (await client.chat(call("slow", "12"))).text
        answer = await client.chat('sim: call mcp__mute__slow {"text": "12"}\nsim: result')
        assert "gave no result within 1 s" in answer.text


async def test_parallel_calls_run_in_parallel(tmp_path: Path) -> None:
    """Each of the two calls ends when the other one has begun: one after the other, the first would never end."""
    script = 'sim: call mcp__one__meet {"text": "%s"} & mcp__two__meet {"text": "%s"}\nsim: result'
    async with bridged({"one": odd("plain", "one"), "two": odd("plain", "two")}, mcp_call_timeout=20) as client:
        answer = await client.chat(script % (tmp_path, tmp_path))
    assert answer.text.count("meet done") == 2


async def test_only_what_is_allowed_is_offered() -> None:
    servers = {
        "reads": odd(read_only=True),
        "some": odd(allow=["e*", "write"], deny=["env"]),
        "odd": odd(deny=["die", "big"]),
    }
    async with bridged(servers) as client:
        await client.chat("sim: say ready")
        offered: dict[str, set[str]] = {}
        for entry in (await tools(client))["data"]:
            offered.setdefault(entry["server"], set()).add(entry["name"])
        refused = await client.chat(call("die"))
    assert offered == {
        "reads": {"echo"},
        "some": {"echo", "write"},
        "odd": {"echo", "write", "slow", "env", "sum", "meet"},
    }
    assert "was not offered" in refused.text


async def test_servers_get_their_own_variables_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURSOR_API_KEY", "the-users-key")
    monkeypatch.setenv("ODD_TOKEN", "a-token-for-odd")
    async with bridged({"odd": odd(env={"TOKEN": "${ODD_TOKEN}"})}) as client:
        told = (await client.chat(call("env"))).text
    assert "a-token-for-odd" in told
    assert "the-users-key" not in told
    assert "ODD_TOKEN" not in told


async def test_secrets_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "caretway")
    async with bridged({"odd": odd("crash", env={"ODD_SECRET": "hush-hush"})}, mcp_retry_pause=60) as client:
        told = await until(client, lambda mcp: bool(mcp["problems"]) and mcp["problems"][0]["state"] == "failing")
    assert told["problems"][0]["detail"].endswith("cannot start, key is ***")
    assert "hush-hush" not in caplog.text


# ---- when they are offered, and what is seen of them


async def test_offered_when_the_request_asks() -> None:
    on, off = {"x-caretway-mcp": "on"}, {"x-caretway-mcp": "off"}
    async with bridged({"odd": odd()}, mcp_offer="ask") as client:
        assert "was not offered" in (await client.chat(call("echo", "hi"))).text
        assert "plain says hi" in (await client.chat(call("echo", "hi"), headers=on)).text
    async with bridged({"odd": odd()}) as client:
        assert "was not offered" in (await client.chat(call("echo", "hi"), headers=off)).text
        refused = await client.chat("sim: say hi", headers={"x-caretway-mcp": "perhaps"})
        assert refused.status == 400
    async with bridged({"odd": odd()}, mcp_offer="never") as client:
        assert "was not offered" in (await client.chat(call("echo", "hi"), headers=on)).text
        assert await health(client) == {"enabled": False, "servers": 0, "tools": 0}


@pytest.mark.parametrize("activity", ["hidden", "note", "reasoning"])
async def test_activity_as_the_setting_says(activity: str, stream: bool) -> None:
    async with bridged({"odd": odd()}, mcp_activity=activity) as client:
        answer = await client.chat(call("echo", "hi"), stream=stream)
        whole = await client.http.post("/v1/chat/completions", json=_body(call("echo", "hi")))
    assert answer.reasoning == ('[odd: echo {"text":"hi"}]\n' if activity == "reasoning" else "")
    assert whole.json().get("caretway") == ({"mcp_calls": "mcp__odd__echo"} if activity == "note" else None)


def _body(text: str) -> dict[str, Any]:
    return {"model": "sim-auto", "messages": [{"role": "user", "content": text}]}


async def test_built_in_tools_are_not_sent_to_bridged_ones(tmp_path: Path) -> None:
    """A built-in exec goes to the client's equivalent tool, or is served in the workspace; bridged ones are by name."""
    (tmp_path / "a.txt").write_text("text of the workspace")
    script = f'sim: exec read {{"path": "{tmp_path / "a.txt"}"}}\nsim: result\n{call("echo", "hi")}'
    async with bridged({"odd": odd()}, workspace=tmp_path) as client:
        answer = await client.chat(script)
        assert "text of the workspace" in answer.text
        assert "plain says hi" in answer.text


async def test_a_client_that_hangs_up_cancels_the_call() -> None:
    async with bridged({"odd": odd("hang")}, disconnect_grace=0) as client:
        await client.chat("sim: say ready")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.chat(call("echo", "hi"), stream=True)
        while client.gateway.tenants.live or _calls():
            await asyncio.sleep(0.02)


def _calls() -> list[str]:
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("mcp-call")]


@pytest.mark.seed("K06")
async def test_nothing_changes_without_servers(client: Client) -> None:
    assert (await client.http.get("/v1/tools")).json() == {
        "object": "list",
        "data": [],
        "mcp": {"servers": 0, "tools": 0},
    }
    assert await health(client) == {"enabled": False, "servers": 0, "tools": 0}


@pytest.mark.parametrize(("name", "what"), [("elicit", "Elicitation"), ("sample", "Sampling")])
async def test_questions_to_the_user_or_the_model_are_refused(name: str, what: str) -> None:
    async with bridged({"odd": odd("asks")}) as client:
        answer = await client.chat(call(name))
    assert f"{what} not supported" in answer.text


async def test_what_servers_claim_of_their_tools_reaches_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    read = start.read_tools

    def note(definitions: Sequence[pb.McpToolDefinition]) -> object:
        seen.update({one.name: one.annotations_json for one in definitions})
        return read(definitions)

    monkeypatch.setattr(start, "read_tools", note)
    async with bridged({"odd": odd()}) as client:
        await client.chat("sim: say ready")
    assert json.loads(seen["mcp__odd__echo"]) == {"readOnlyHint": True}
    assert json.loads(seen["mcp__odd__write"]) == {"readOnlyHint": False}
