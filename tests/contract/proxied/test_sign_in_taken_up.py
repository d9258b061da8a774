"""`caretway serve` without an account, then `caretway login`: the running gateway answers from Cursor without a
restart. The stand-in answers under Cursor's own name, to which a proxy leads: any other address is used without a
sign-in.
"""

import asyncio
import json
import os
import re
import signal
import sys
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme

from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.proxy import SimProxy
from contract.gateways import CHAT
from contract.proxied.sites import server_context

CURSOR = "api2.cursor.sh"


@dataclass(eq=False)
class LeadsToTheSimulator(SimProxy):
    to: int = 0

    def _address(self, host: str) -> str | None:
        return "127.0.0.1" if host == CURSOR else None

    async def _join(self, host: str, port: int, reader: Any, writer: Any) -> None:
        await super()._join(host, self.to, reader, writer)


@asynccontextmanager
async def command(home: Path, way: dict[str, str], *words: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "caretway", *words),
        stdout=PIPE,
        stderr=PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **way},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until(lines: asyncio.StreamReader | None, pattern: str) -> str:
    assert lines is not None
    async for line in lines:
        if found := re.search(pattern, line.decode()):
            return found[0]
    raise AssertionError(f"it ended without saying {pattern}")


def question(said: str, *, stream: bool = False) -> dict[str, Any]:
    return {"model": "sim-auto", "stream": stream, "messages": [{"role": "user", "content": said}]}


async def test_a_login_is_taken_up_without_a_restart(authority: tuple[trustme.CA, Path], tmp_path: Path) -> None:
    ca, path = authority
    simulator, proxy = Simulator(manners=LIVE_AT_ONCE), LeadsToTheSimulator()
    try:
        proxy.to = await simulator.listen("127.0.0.1", 0, server_context(ca, CURSOR))
        plain = await simulator.listen("127.0.0.1", 0)
        through = f"http://127.0.0.1:{await proxy.listen('127.0.0.1', 0)}"
        way = {"CARETWAY_PROXY": through, "CARETWAY_AGENT_CA": str(path)}
        async with command(tmp_path, way, "serve", "--port", "0", "--shutdown-grace", "0") as gateway:
            url = await until(gateway.stdout, r"http://127\.0\.0\.1:\d+")
            async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as http:
                await _serves_both(http, gateway, simulator, plain, way, tmp_path)
            rest = (await gateway.communicate())[1].decode()
            assert gateway.returncode == 0 and "Traceback" not in rest, rest
    finally:
        await proxy.aclose()
        await simulator.aclose()


async def _serves_both(
    http: httpx.AsyncClient, gateway: Process, simulator: Simulator, plain: int, way: dict[str, str], home: Path
) -> None:
    first = await http.post(CHAT, json=question("sim: say made up"))
    assert (first.status_code, first.headers["x-caretway-backend"]) == (200, "simulator")
    page = (await http.get("/caretway/v1/now")).json()
    assert (page["backend"]["standing"], page["signed_in"]) == ("simulated", False), "as `status` says"
    findings = {one["name"]: one for one in (await http.get("/caretway/v1/health")).json()["findings"]}
    assert not findings["account"]["ok"] and "caretway login" in findings["account"]["hint"], "as `doctor` says"
    assert (await http.get("/healthz")).json() == {"status": "ready"}
    assert simulator.stats.runs_opened == 0

    async with http.stream("POST", CHAT, json=question("sim: say on\nsim: hang", stream=True)) as begun:
        lines = begun.aiter_lines()
        while '"content":"on"' not in await anext(lines):
            pass
        async with command(home, way, "login", "--no-browser") as login:
            link = await until(login.stdout, r"https://\S+/loginDeepControl\S+")
            here = link.replace("https://cursor.com", f"http://127.0.0.1:{plain}")
            await asyncio.to_thread(lambda: urllib.request.urlopen(here, timeout=20).close())
            _, told = await login.communicate()
            assert login.returncode == 0, told
            assert f"the gateway at {http.base_url}".rstrip("/") in told.decode()
            assert "answers from Cursor now (backend agent)" in told.decode()
        await until(gateway.stderr, r"signed in: new requests are answered by Cursor \(backend agent\)")

        second = await http.post(CHAT, json=question("sim: say from there"))
        assert (second.status_code, second.headers["x-caretway-backend"]) == (200, "agent")
        assert second.json()["choices"][0]["message"]["content"] == "from there"
        assert simulator.stats.runs_opened == 1
        page = (await http.get("/caretway/v1/now")).json()
        assert (page["backend"]["standing"], page["signed_in"], page["reachable"]) == ("unofficial", True, True)
        assert (await http.get("/health")).json()["auth"] == "authenticated"
        live = (await http.get("/caretway/v1/health")).json()["live"]
        assert "error" not in live
        (note,) = (home / ".local/share/caretway/gateways").glob("*.json")
        assert json.loads(note.read_text())["backend"] == "agent"

        gateway.send_signal(signal.SIGTERM)
        rest = [line async for line in lines if line.startswith("data: ")]
        assert any("The gateway is stopping." in line for line in rest), "what began before has an end"
