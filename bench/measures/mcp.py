"""The MCP bridge, per call: what the gateway takes beside the `mcp` library, which calls the same server directly.

Cursor's stand-in calls the tool again and again in one turn, which it announces: nobody waits for more calls. The share
of the turn itself is in the gateway's numbers.
"""

import json
import sys
import time
from pathlib import Path

from ..extras import why_missing
from ..ledger import Ledger
from ..load import Client, chat
from ..sizes import Sizes
from ..stubs.mcp_server import AGAIN, LAST, SERVER
from ..targets import DIRECT, GATEWAY, House


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    if reason := why_missing("mcp"):
        ledger.note(f"the MCP bridge was left out: {reason}")
        return
    from mcp.client import Client as McpClient
    from mcp.client.stdio import StdioServerParameters, stdio_client

    calls = sizes.mcp_calls
    program = {
        "command": sys.executable,
        "args": ["-m", "bench.stubs.mcp_server", str(calls)],
        "env": {"PYTHONPATH": str(Path(__file__).parents[2])},
    }
    config = house.folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {SERVER: program}}))
    server = StdioServerParameters.model_validate(program)
    with house.fresh_gateway("--mcp-config", str(config)) as gateway:
        client = await Client.connect(gateway.address)
        async with McpClient(stdio_client(server)) as direct:
            for number in range(-1, sizes.rounds):
                began, used = time.perf_counter(), time.process_time()
                for _ in range(calls):
                    await direct.call_tool(AGAIN.tool.removeprefix(f"mcp__{SERVER}__"), {})
                direct_cpu, direct_s = time.process_time() - used, time.perf_counter() - began
                used = gateway.process.own_cpu_s()
                answer = await client.ask(chat(AGAIN, stream=False))
                own_cpu = gateway.process.own_cpu_s() - used
                answer.check(LAST, stream=False)
                if number < 0:
                    continue  # what is done once is done
                for figure, least, through in (
                    ("ms", direct_s, answer.total_ms / 1000),
                    ("CPU ms", direct_cpu, own_cpu),
                ):
                    ledger.add(f"mcp: {figure} per call", DIRECT, least * 1000 / calls)
                    ledger.add(f"mcp: {figure} per call", GATEWAY, through * 1000 / calls)
                    ledger.add(f"mcp: {figure} added to a call", GATEWAY, (through - least) * 1000 / calls)
        client.close()
