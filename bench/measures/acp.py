"""The cursor-agent route with the program kept running (ACP), per tool step: what the gateway adds to the stand-in for
the program, which is also driven without a gateway.

The client takes one call at a time, so nobody waits for more of them.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from caretway.backends.cli.native_tools import Approvals
from caretway.backends.cli.tool_server import SERVER, McpUse, reply, result

from ..ledger import Ledger
from ..load import PATIENCE_S, WrongAnswer
from ..processes import TargetFailed, free_port, launch, process_cpu_s
from ..script import TOOL
from ..sizes import Sizes
from ..targets import House, gateway_command
from ..tool_loop import Steps, compared, tool_loop

_MODEL: Final = "sim-auto"
_SCHEMA: Final = {"type": "object", "properties": {"k": {"type": "string"}}}
_TOOLS: Final = [{"type": "function", "function": {"name": TOOL, "parameters": _SCHEMA}}]
_LISTED: Final = [{"name": TOOL, "description": "", "inputSchema": _SCHEMA}]
_RESULT: Final = {"content": [{"type": "text", "text": "ok"}], "isError": False}


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    home = house.folder / "acp"
    home.mkdir()
    program = home / "cursor-agent"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m caretway_sim.cursor_agent "$@"\n')
    program.chmod(0o755)
    environment = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "CURSOR_API_KEY": "bench"}
    port = free_port()
    command = gateway_command(port, house.folder, "--backend", "cli", "--cli-transport", "acp")
    try:
        gateway = launch(
            "caretway-acp", command, port, house.folder, environment={**environment, "CURSOR_AGENT_BIN": str(program)}
        )
    except TargetFailed as reason:
        ledger.note(f"the cursor-agent route was left out: {reason}")
        return
    direct = AcpProgram(home)
    try:
        await direct.start(program, environment)
        calls = [f'sim: call {TOOL} {{"k": "{number}"}}' for number in range(sizes.steps)]
        prompt = "\n".join([*calls, "sim: say done"])
        for number in range(-1, sizes.rounds):
            floor = await direct.tool_loop(prompt, sizes.steps)
            through = await tool_loop(gateway, _MODEL, prompt, sizes.steps, tools=_TOOLS, parallel_tool_calls=False)
            if number >= 0:  # what is done once is done by then
                compared(ledger, "acp", floor, through)
    finally:
        gateway.stop()
        await direct.stop()


class AcpProgram:
    """The program, and an MCP server that answers its calls as soon as they are read."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._server: asyncio.Server | None = None
        self._last = 0
        self._asked: list[float] = []
        self._answered: list[float] = []
        self._used: list[float] = []

    async def start(self, program: Path, environment: dict[str, str]) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            program, "acp", env=environment, stdin=pipe, stdout=pipe, limit=2**24
        )
        await self._call("initialize", protocolVersion=1, clientCapabilities={})

    async def tool_loop(self, prompt: str, steps: int) -> Steps:
        assert self._server is not None
        workspace = self._home / "workspace"
        workspace.mkdir(exist_ok=True)
        url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"
        approvals = Approvals(self._home, workspace)
        approvals.allow(own_tools=False)
        approvals.give(url)
        servers = [{"type": "http", "name": SERVER, "url": url, "headers": []}]
        session = (await self._call("session/new", cwd=str(workspace), mcpServers=servers))["sessionId"]
        self._asked, self._answered, self._used = [], [], []
        await self._call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": prompt}])
        if len(self._asked) != steps:
            raise WrongAnswer(f"cursor-agent's stand-in made {len(self._asked)} calls instead of {steps}")
        times = [(then - before) * 1000 for before, then in zip(self._answered[:-1], self._asked[1:], strict=True)]
        return Steps(times, (self._used[-1] - self._used[0]) * 1000 / (steps - 1))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()

    async def _call(self, method: str, **params: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            while line := await self._process.stdout.readline():
                told = json.loads(line)
                if told.get("id") == self._last and "method" not in told:
                    if "error" in told:
                        raise WrongAnswer(f"cursor-agent's stand-in: {told}")
                    return told["result"]
        raise WrongAnswer("cursor-agent's stand-in is gone")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        said = reply(json.loads(body), _LISTED, "bench")
        called = isinstance(said, McpUse)
        if isinstance(said, McpUse):
            assert self._process is not None
            self._asked.append(time.perf_counter())
            self._used.append(process_cpu_s(self._process.pid))
            said = result(said.id, _RESULT)
        data = b"" if said is None else json.dumps(said).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(data), data))
        if called:
            self._answered.append(time.perf_counter())
        writer.close()
