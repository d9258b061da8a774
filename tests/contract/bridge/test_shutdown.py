"""Nothing is left behind: a gateway that is told to stop takes its servers with it, and their children too."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

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


@pytest.mark.parametrize(
    ("mode", "twice"),
    [
        ("stubborn", False),
        pytest.param("babble", False, marks=pytest.mark.all),
        pytest.param("deluge", True, marks=pytest.mark.all),
    ],
)
async def test_a_gateway_that_is_told_to_stop(mode: str, twice: bool, tmp_path: Path) -> None:
    """Its server ignores that its input closed, and SIGTERM; so does that one's child, or it writes without end and is
    still `connecting`. All are gone with it."""
    for attempt in range(4 if mode == "babble" else 1):
        await stopped(mode, twice, tmp_path / str(attempt))


def laid_out(mode: str, place: Path) -> Path:
    place.mkdir()
    noted = place / "pids"
    (place / ".mcp.json").write_text(json.dumps({"mcpServers": {"odd": odd(mode, str(noted))}}))
    noted.touch()
    return noted


async def stopped(mode: str, twice: bool, place: Path) -> None:
    noted = laid_out(mode, place)
    command = ["-m", "caretway", "serve", "--port", "0", "--backend", "simulator", "--mcp-config", ".mcp.json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        *("--data-dir", "data", "--shutdown-grace", "0"),
        cwd=place,
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
        async with httpx.AsyncClient(base_url=base, timeout=30, trust_env=False, verify=False) as http:
            if mode == "stubborn":
                while (await http.get("/health")).json()["mcp"]["servers"] < 1:
                    await asyncio.sleep(0.05)
            else:
                while not noted.read_text():
                    await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            while twice:
                try:
                    await http.get("/healthz")
                except httpx.TransportError:
                    process.send_signal(signal.SIGTERM)
                    break
        await process.wait()
        pids = [int(word) for word in noted.read_text().split()]
        async with asyncio.timeout(30):
            await gone(pids)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for pid in map(int, noted.read_text().split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
