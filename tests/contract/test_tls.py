"""The agent backend over HTTP/2 and TLS, as with the real hosts: the certificate is checked."""

import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from caretway.config import Settings
from caretway.gateway import Gateway
from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.proxy import throw_away_ca
from contract.gateways import Client


@pytest.mark.parametrize("transport", ["auto", "h2", "http1"])
async def test_a_turn_over_tls(tmp_path: Path, transport: str) -> None:
    context, ca = throw_away_ca(tmp_path)
    answer = await ask(context, ca, transport)
    assert (answer[0], answer[1]) == (200, "secret handshake")


async def test_a_foreign_authority_is_refused_with_a_clear_error(tmp_path: Path) -> None:
    context, _ = throw_away_ca(tmp_path)
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    status, message = await ask(context, other, "auto")
    assert status == 503
    assert "certificate" in message
    assert "--agent-ca" in message


async def ask(context: ssl.SSLContext, ca: Path, transport: str) -> tuple[int, str]:
    simulator = Simulator(manners=LIVE_AT_ONCE)
    port = await simulator.listen("127.0.0.1", 0, context)
    settings = Settings(
        port=0,
        backend="agent",
        agent_url=f"https://localhost:{port}",
        agent_ca=ca,
        agent_transport=transport,  # type: ignore[arg-type]  # parametrised over its literals
        access_token="token",
        agent_retries=0,
    )
    try:
        async with (
            Gateway(settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, timeout=30, trust_env=False, verify=False) as http,
        ):
            answer = await Client(gateway, simulator, http).chat("sim: say secret handshake")
            return answer.status, answer.text or str((answer.error or {}).get("message"))
    finally:
        await simulator.aclose()
