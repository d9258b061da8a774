"""The reference servers from npm: over stdio, streamable HTTP and SSE, through a chat, natively and over text."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.bridge.servers import bridged, tools, until
from contract.gateways import Client


def program(programs: Path, name: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"command": "node", "args": [str(programs / f"mcp-server-{name}"), *args], **more}


def script(name: str, **arguments: Any) -> str:
    return f"sim: call {name} {json.dumps(arguments)}\nsim: result"


pytestmark = pytest.mark.all  # they need node
BACKENDS = pytest.mark.parametrize("backend", ["agent", "legacy-chat"], ids=["native", "text"])


@BACKENDS
async def test_over_stdio(programs: Path, tmp_path: Path, backend: str) -> None:
    (tmp_path / "a.txt").write_text("words in a file")
    servers = {
        "everything": program(programs, "everything"),
        "files": program(programs, "filesystem", str(tmp_path)),
        "memory": program(programs, "memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}),
    }
    async with bridged(servers, backend=backend) as client:
        await everything_works(client)
        read = script("mcp__files__read_text_file", path=str(tmp_path / "a.txt"))
        assert (await client.chat(read)).text.startswith("words in a file")
        outside = await client.chat(script("mcp__files__read_text_file", path="/etc/hostname"))
        assert "Access denied" in outside.text
        entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
        await client.chat(script("mcp__memory__create_entities", entities=[entity]))
        assert "wrote the first program" in (await client.chat(script("mcp__memory__read_graph"))).text
        listed = await tools(client)
        assert {entry["server"] for entry in listed["data"]} == {"everything", "files", "memory"}
        assert listed["mcp"]["servers"] == 3


async def everything_works(client: Client) -> None:
    """Text, structured content, an image, a refusal, and a long call that reports its progress."""
    assert "Echo: hello" in (await client.chat(script("mcp__everything__echo", message="hello"))).text
    assert "42" in (await client.chat(script("mcp__everything__get-sum", a=40, b=2))).text
    weather = (await client.chat(script("mcp__everything__get-structured-content", location="Chicago"))).text
    assert weather.count('"temperature"') == 1  # the server gives it twice: as text and as structure
    assert "image/png" in (await client.chat(script("mcp__everything__get-tiny-image"))).text
    assert "rror" in (await client.chat(script("mcp__everything__get-sum", a="no number"))).text
    long = script("mcp__everything__trigger-long-running-operation", duration=0.4, steps=4)
    assert "Duration: 0.4 seconds, Steps: 4" in (await client.chat(long, stream=True)).text


class Everything:
    """server-everything as a network server of its own."""

    port: int
    _process: asyncio.subprocess.Process

    async def start(self, programs: Path, transport: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process = await asyncio.create_subprocess_exec(
            *("env", f"PORT={self.port}", "node", str(programs / "mcp-server-everything"), transport),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except ConnectionRefusedError:
                assert self._process.returncode is None
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def serving(programs: Path, transport: str) -> AsyncIterator[Everything]:
    server = Everything()
    await server.start(programs, transport)
    try:
        yield server
    finally:
        await server.stop()


@BACKENDS
@pytest.mark.parametrize(
    ("transport", "path", "kind"),
    [
        ("streamableHttp", "mcp", "http"),
        ("streamableHttp", "mcp", "auto"),
        ("sse", "sse", "sse"),
        ("sse", "sse", "auto"),
    ],
)
async def test_over_a_network(programs: Path, transport: str, path: str, kind: str, backend: str) -> None:
    async with serving(programs, transport) as running:
        server = {"url": f"http://127.0.0.1:{running.port}/{path}", "transport": kind}
        async with bridged({"everything": server}, backend=backend) as client:
            assert "Echo: hello" in (await client.chat(script("mcp__everything__echo", message="hello"))).text
            if kind != "auto":
                await everything_works(client)


async def test_a_network_server_that_goes_away(programs: Path) -> None:
    async with serving(programs, "streamableHttp") as running:
        server = {"url": f"http://127.0.0.1:{running.port}/mcp", "transport": "http"}
        async with bridged({"everything": server}, mcp_retry_pause=60) as client:
            await client.chat("sim: say ready")
            await running.stop()
            answer = await client.chat(script("mcp__everything__echo", message="hello"))
            assert "The MCP server `everything` failed to run `echo`" in answer.text
            told = await until(client, lambda mcp: mcp["servers"] == 0)
            assert told["problems"][0]["server"] == "everything"
