"""The same over backends that carry text only: calls are run here, mixed steps park, the model gets both results."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from contract.bridge.servers import bridged, git_server, odd, time_server
from contract.cursor_cli.stand_in import cli_gateway
from contract.gateways import Client, result, tool

CLOCK = 'sim: call mcp__time__get_current_time {"timezone": "Asia/Tokyo"}'


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    async with bridged({"time": time_server(), "odd": odd()}, backend="legacy-chat") as running:
        yield running


async def test_a_bridged_call(client: Client, stream: bool) -> None:
    answer = await client.chat(f"{CLOCK}\nsim: result", stream=stream)
    assert '"timezone": "Asia/Tokyo"' in answer.text
    assert (answer.finish, answer.calls) == ("stop", ())
    assert "<invoke" not in answer.text


async def test_one_bridged_and_one_of_the_client(client: Client, stream: bool) -> None:
    prompt = f'{CLOCK} & read {{"path": "a.txt"}}\nsim: result'
    offered = [tool("read", "path")]
    first = await client.chat(prompt, stream=stream, tools=offered)
    assert [call["function"]["name"] for call in first.calls] == ["read"]
    assert first.finish == "tool_calls"
    history = [{"role": "user", "content": prompt}, first.message, result(first.calls[0], "text of a.txt")]
    second = await client.chat(history, stream=stream, tools=offered)
    assert second.session == "resumed"
    assert "text of a.txt" in second.text
    assert "Asia/Tokyo" in second.text


async def test_calls_of_the_client_alone(client: Client) -> None:
    prompt = 'sim: call read {"path": "a.txt"}\nsim: result'
    offered = [tool("read", "path")]
    first = await client.chat(prompt, tools=offered)
    history = [{"role": "user", "content": prompt}, first.message, result(first.calls[0], "text of a.txt")]
    second = await client.chat(history, tools=offered)
    assert (second.session, second.text) == ("resumed", "text of a.txt")


async def test_the_loop_guard_counts_here_too(client: Client) -> None:
    answer = await client.chat('sim: loop mcp__odd__sum {"text": "x"}')
    assert answer.error is not None
    assert answer.error["code"] == "tool_loop_detected"


async def test_more_tools_than_the_backend_takes(caplog: pytest.LogCaptureFixture) -> None:
    """The client did not ask for them: its request goes without."""
    async with bridged({"odd": odd("verbose")}, backend="legacy-chat") as client:
        answer = await client.chat("sim: say hello")
    assert answer.text == "hello"
    assert "are too large for this backend" in caplog.text


@pytest.mark.parametrize("transport", ["print", "acp"])
async def test_with_cursor_agent(tmp_path: Path, transport: str) -> None:
    servers = {"servers": {"time": time_server()}}
    async with cli_gateway(tmp_path, transport, mcp=servers, mcp_start_wait=30) as client:
        answer = await client.chat(f"{CLOCK}\nsim: result")
    assert '"timezone": "Asia/Tokyo"' in answer.text
    assert answer.finish == "stop"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    for command in (["init", "-q", "-b", "main"], [*who, "commit", "-q", "--allow-empty", "-m", "Plant the tree"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


async def test_git_over_text(repository: Path) -> None:
    async with bridged({"git": git_server(repository)}, backend="legacy-chat") as client:
        answer = await client.chat(f'sim: call mcp__git__git_log {{"repo_path": "{repository}"}}\nsim: result')
    assert "Plant the tree" in answer.text


async def test_a_picture_of_the_user_is_refused(client: Client) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgo="
    content = [{"type": "text", "text": "sim: say seen"}, {"type": "image_url", "image_url": {"url": pixel}}]
    answer = await client.chat([{"role": "user", "content": content}])
    assert (answer.status, answer.error and answer.error["code"]) == (400, "image_not_supported")
