"""Foreign servers from PyPI behind the `agent` backend: listed, called through a chat, their words in the answer."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from contract.bridge.servers import bridged, git_server, health, time_server, tools
from contract.gateways import Client, result, tool

CLOCK = 'sim: call mcp__time__get_current_time {"timezone": "Asia/Tokyo"}\nsim: result'


pytestmark = pytest.mark.asyncio(loop_scope="module")  # the servers take their time to start: once for all tests


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("repository")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    for command in (["init", "-q", "-b", "main"], [*who, "commit", "-q", "--allow-empty", "-m", "Plant the tree"]):
        subprocess.run(["git", *command], cwd=place, check=True)
    return place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(repository: Path) -> AsyncIterator[Client]:
    async with bridged({"time": time_server(), "git": git_server(repository)}) as running:
        yield running


@pytest.mark.seed("B04", "B09", "K05")
async def test_servers_are_listed_called_and_heard(client: Client, repository: Path, stream: bool) -> None:
    before = client.stats()["runs_opened"]
    answer = await client.chat(CLOCK, stream=stream)
    assert '"timezone": "Asia/Tokyo"' in answer.text
    assert (answer.finish, answer.calls) == ("stop", ())
    log = f'sim: say Looking.\nsim: call mcp__git__git_log {{"repo_path": "{repository}"}}\nsim: result'
    answer = await client.chat(log, stream=stream)
    assert "Plant the tree" in answer.text
    assert answer.text.startswith("Looking.\n\n")
    assert client.stats()["runs_opened"] == before + 2  # each answer is one run, calls included

    listed = await tools(client)
    assert listed["object"] == "list"
    entry = next(one for one in listed["data"] if one["id"] == "mcp__time__get_current_time")
    assert (entry["name"], entry["server"]) == ("get_current_time", "time")
    assert entry["description"]
    assert entry["inputSchema"]["properties"]["timezone"]["type"] == "string"
    assert listed["mcp"] == {"servers": 2, "tools": len(listed["data"]), "problems": []}
    assert await health(client) == {"enabled": True, **listed["mcp"]}
    assert (await client.http.get("/tools")).json() == listed


async def test_one_bridged_and_one_of_the_client(client: Client, stream: bool) -> None:
    prompt = 'sim: call mcp__time__get_current_time {"timezone": "Asia/Tokyo"} & read {"path": "a.txt"}\nsim: result'
    offered = [tool("read", "path")]
    before = client.stats()["runs_opened"]
    first = await client.chat(prompt, stream=stream, tools=offered)
    assert first.finish == "tool_calls"
    assert [call["function"]["name"] for call in first.calls] == ["read"]
    history = [{"role": "user", "content": prompt}, first.message, result(first.calls[0], "text of a.txt")]
    second = await client.chat(history, stream=stream, tools=offered)
    assert second.session == "resumed"
    assert "text of a.txt" in second.text
    assert "Asia/Tokyo" in second.text
    assert client.stats()["runs_opened"] == before + 1


async def test_a_chat_goes_on_after_bridged_calls(client: Client) -> None:
    first = await client.chat(CLOCK)
    history = [{"role": "user", "content": CLOCK}, first.message, {"role": "user", "content": "sim: recall"}]
    second = await client.chat(history)
    assert second.session == "continued"
    assert "1 tool result" in second.text


async def test_other_dialects(client: Client) -> None:
    body = {"model": "sim-auto", "max_tokens": 100, "messages": [{"role": "user", "content": CLOCK}]}
    told = (await client.http.post("/v1/messages", json=body)).json()
    assert (told["stop_reason"], [block["type"] for block in told["content"]]) == ("end_turn", ["text"])
    assert "Asia/Tokyo" in told["content"][0]["text"]
    told = (await client.http.post("/v1/responses", json={"model": "sim-auto", "input": CLOCK})).json()
    assert [item["type"] for item in told["output"]] == ["message"]
    assert "Asia/Tokyo" in told["output"][0]["content"][0]["text"]
