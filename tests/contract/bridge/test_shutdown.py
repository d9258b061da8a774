"""Nothing is left behind: a gateway that is told to stop takes its servers with it, and their children too."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import httpx

from contract.bridge.servers import odd


def alive(pid: int) -> bool:
    """A zombie is dead: it waits for its parent to ask, and an orphan's parent is not ours."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self/stat").exists()
    return stat.rpartition(")")[2].split()[0] != "Z"


async def gone(pids: list[int]) -> None:
    while any(map(alive, pids)):
        await asyncio.sleep(0.02)


async def test_a_gateway_that_is_told_to_stop(tmp_path: Path) -> None:
    """Its server ignores that its input closed, and SIGTERM; so does that one's child. Both are gone with it."""
    noted = tmp_path / "pids"
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"odd": odd("stubborn", str(noted))}}))
    command = ["-m", "caretway", "serve", "--port", "0", "--backend", "simulator", "--mcp-config", ".mcp.json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        *("--data-dir", "data", "--shutdown-grace", "0"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        address = ""
        while "http://" not in address:
            line = await process.stdout.readline()
            assert line, "the gateway did not start"
            address = line.decode()
        base = address[address.index("http://") :].split()[0]
        async with httpx.AsyncClient(base_url=base, timeout=30, trust_env=False) as http:
            while (await http.get("/health")).json()["mcp"]["servers"] < 1:
                await asyncio.sleep(0.05)
        pids = [int(word) for word in noted.read_text().split()]
        assert all(map(alive, pids))
        process.send_signal(signal.SIGTERM)
        await process.wait()
        await gone(pids)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
