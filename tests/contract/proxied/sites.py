"""A stand-in over TLS that refuses whoever does not come from the proxy, and how to ask through it."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import trustme

from caretway.config import Settings
from caretway.gateway import Gateway
from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE, Manners
from caretway_sim.proxy import ONLY_THERE, SimProxy
from contract.gateways import Answer, Client


@dataclass
class Site:
    """A stand-in that admits nobody but the proxy, and the proxy."""

    simulator: Simulator
    proxy: SimProxy
    url: str
    proxy_port: int
    ca: Path

    @property
    def turned_away(self) -> int:
        return self.simulator.stats.turned_away

    def settings(self, **more: Any) -> Settings:
        known: dict[str, Any] = {
            "port": 0,
            "backend": "agent",
            "agent_url": self.url,
            "agent_ca": self.ca,
            "access_token": "token",
            "agent_retries": 0,
        }
        return Settings(**known | more)


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])
    authority.issue_cert(*names).configure_cert(context)
    return context


@asynccontextmanager
async def site(
    authority: tuple[trustme.CA, Path], proxy: SimProxy, *, tls: bool = False, manners: Manners = LIVE_AT_ONCE
) -> AsyncIterator[Site]:
    ca, path = authority
    simulator = Simulator(manners=replace(manners, refuses_direct=True), home=proxy.comes_from_here)
    proxy_tls = None
    if tls:
        proxy_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("localhost", "127.0.0.1").configure_cert(proxy_tls)
    try:
        port = await simulator.listen("127.0.0.1", 0, server_context(ca, ONLY_THERE, "localhost", "127.0.0.1"))
        proxy_port = await proxy.listen("127.0.0.1", 0, proxy_tls)
        yield Site(simulator, proxy, f"https://{ONLY_THERE}:{port}", proxy_port, path)
    finally:
        await proxy.aclose()
        await simulator.aclose()


@asynccontextmanager
async def listening(proxy: SimProxy) -> AsyncIterator[int]:
    try:
        yield await proxy.listen("127.0.0.1", 0)
    finally:
        await proxy.aclose()


async def ask(settings: Settings, script: str = "sim: say through", **more: Any) -> Answer:
    async with (
        Gateway(settings) as gateway,
        httpx.AsyncClient(base_url=gateway.base_url, timeout=60, trust_env=False, verify=False) as http,
    ):
        return await Client(gateway, Simulator(), http).chat(script, **more)


def told(answer: Answer) -> tuple[int, str, str]:
    assert answer.error is not None, answer
    return answer.status, answer.error["code"], answer.error["message"]


async def run(there: Site, home: Path, *arguments: str, stdin: str = "", **variables: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "caretway",
        *arguments,
        "--agent-url",
        there.url,
        "--agent-ca",
        str(there.ca),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **variables},
    )
    output, errors = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()
