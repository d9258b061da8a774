"""`caretway mcp`, as a person types it: a process of its own, its output and its exit code."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from contract.bridge.servers import odd


async def caretway(directory: Path, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "caretway", "mcp", *words),
        cwd=directory,
        env={"PATH": os.defpath, "HOME": str(directory)},  # whatever this machine's user has configured is not asked
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaints = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), complaints.decode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    servers = {"odd": odd(), "gone": {"command": "no-such-program"}, "unset": {"command": "x", "env": {"A": "${NO_A}"}}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return tmp_path


async def test_list_and_tools(directory: Path) -> None:
    code, out, _ = await caretway(directory, "list", "--mcp-config", ".mcp.json")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert code == 1, "two of them cannot be reached"
    assert "connected" in rows["odd"]
    assert "`no-such-program` cannot be started" in rows["gone"]
    assert "the environment variable NO_A is not set" in rows["unset"]
    code, out, _ = await caretway(directory, "tools", "--mcp-config", ".mcp.json", "--json")
    listed = json.loads(out)
    assert code == 0
    assert "mcp__odd__echo" in {tool["id"] for tool in listed["data"]}
    assert {server["name"] for server in listed["servers"]} == {"odd", "gone", "unset"}


async def test_a_list_without_trouble_is_a_success(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    code, out, _ = await caretway(tmp_path, "list", "--mcp-config", ".mcp.json", "--json")
    assert (code, [server["state"] for server in json.loads(out)["servers"]]) == (0, ["connected"])


async def test_tools_that_were_left_out_are_named(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"odd": odd("misspelt")}}))
    code, out, _ = await caretway(tmp_path, "list", "--mcp-config", ".mcp.json", "--json")
    (server,) = json.loads(out)["servers"]
    assert (code, server["state"], server["tools"]) == (0, "connected", 2)
    assert server["detail"].startswith("left out: wrong_0: it has no inputSchema; wrong_1: ")


async def test_call(directory: Path) -> None:
    flags = ("--mcp-import", "claude")  # .mcp.json in this directory is one of its files
    assert await caretway(directory, "call", "odd", "echo", '{"text": "hi"}', *flags) == (0, "plain says hi\n", "")
    code, out, _ = await caretway(directory, "call", "odd", "write", *flags, "--json")
    assert (code, json.loads(out)) == (1, {"content": [{"type": "text", "text": "no such file"}], "isError": True})


async def test_mistakes_are_told_with_what_to_do(directory: Path) -> None:
    code, _, told = await caretway(directory, "list")
    assert (code, "there are no MCP servers; name them in [mcp.servers.NAME]" in told) == (1, True)
    code, _, told = await caretway(directory, "call", "nobody", "x", "--mcp-config", ".mcp.json")
    assert (code, "there is no MCP server nobody; see: caretway mcp list" in told) == (1, True)
    code, _, told = await caretway(directory, "call", "odd")
    assert (code, "call takes a server, a tool and its arguments as JSON" in told) == (2, True)
    code, _, told = await caretway(directory, "list", "--mcp-config", "missing.json")
    assert (code, "missing.json does not exist" in told) == (2, True)
