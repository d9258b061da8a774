"""Our half of ACP against agents that are not ours: opencode and goose, each a client of a gateway on the simulator.

The stand-in for cursor-agent and the client that reads it come from one hand; these witnesses do not.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from caretway.backends.cli.acp_agent import AcpAgent, AcpSetup
from caretway.backends.cli.acp_translate import AcpTranslator
from caretway.backends.cli.process import AgentChildGroup
from caretway.backends.cli.prompt import Prompt
from caretway.core.events import Event, TextDelta, TurnEnded
from caretway.processes.child import Command
from contract.gateways import gateway

CLIENTS: Final = Path(os.environ.get("CARETWAY_CLIENTS_DIR", Path.home() / ".cache" / "caretway-clients"))
OPENCODE: Final = CLIENTS / "opencode" / "node_modules" / ".bin" / "opencode"

GOOSE: Final = CLIENTS / "goose" / "node_modules" / "@aaif" / "goose-binary-linux-x64" / "bin" / "goose"


def with_opencode(home: Path, base_url: str) -> dict[str, str]:
    """An empty home in which opencode knows one provider: the gateway."""
    model = {"name": "sim-auto", "tool_call": True, "limit": {"context": 200000, "output": 16000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "gw",
        "options": {"baseURL": f"{base_url}/v1", "apiKey": "x"},
        "models": {"sim-auto": model},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "gw/sim-auto",
        "small_model": "gw/sim-auto",
        "permission": {"*": "allow"},
        "provider": {"gw": provider},
    }
    (home / "opencode.json").write_text(json.dumps(settings))
    switched_off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "share"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "OPENCODE_CONFIG": str(home / "opencode.json"),
        **{f"OPENCODE_DISABLE_{word}": "1" for word in switched_off},
    }


def with_goose(home: Path, base_url: str) -> dict[str, str]:
    """An empty home in which goose knows one provider: the gateway."""
    provider = {"OPENAI_HOST": base_url, "OPENAI_BASE_PATH": "v1/chat/completions", "OPENAI_API_KEY": "x"}
    quiet = {"GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_OFF": "1", "GOOSE_DISABLE_SESSION_NAMING": "true"}
    chosen = {"GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "sim-auto", "GOOSE_MODE": "auto"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **provider, **quiet, **chosen}


def installed(program: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not program.exists(), reason=f"{program.name} is not installed in {CLIENTS}")


AGENTS: Final = [
    pytest.param(OPENCODE, with_opencode, id="opencode", marks=installed(OPENCODE)),
    pytest.param(GOOSE, with_goose, id="goose", marks=installed(GOOSE)),
]


@pytest.mark.parametrize(("program", "configured"), AGENTS)
async def test_another_makers_agent(
    tmp_path: Path, program: Path, configured: Callable[[Path, str], dict[str, str]]
) -> None:
    async with gateway() as client:
        children = AgentChildGroup()
        command = Command((str(program), "acp"), str(tmp_path), configured(tmp_path, client.gateway.base_url))
        agent = AcpAgent(
            AcpSetup(
                command,
                mode="",
                model="",
                allow=False,
                version="test",
                sign_in=False,
                call_timeout=60,
                line_bytes=2**24,
            )
        )
        try:
            await agent.start(children)
            session = await agent.new_session(str(tmp_path))

            reading = AcpTranslator(showing="hidden")
            events: list[Event] = []
            said = "sim: say PONG from the other side"
            answered = agent.prompt(session, Prompt(said), lambda update: events.extend(reading.update(update)))
            events += reading.result(await answered)
            text = "".join(event.text for event in events if isinstance(event, TextDelta))
            assert text.strip() == "PONG from the other side"
            assert isinstance(events[-1], TurnEnded)

            first = asyncio.Event()

            def heard(update: Mapping[str, Any]) -> None:
                if "word" in str(update.get("content")) and update.get("sessionUpdate") == "agent_message_chunk":
                    first.set()

            endless = agent.prompt(session, Prompt("sim: say word\nsim: stream 100000 20 50"), heard)
            await first.wait()
            assert not endless.done(), "it streams"
            agent.cancel(session)
            result = await endless
            assert result["stopReason"] == "cancelled"
        finally:
            await children.aclose()
        assert children.live == 0
