"""The gateway on the `cli` backend, in front of the stand-in for cursor-agent; and a look at its processes."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bounds import bounded
from caretway.config import Settings
from caretway.gateway import Gateway
from contract.gateways import CHAT, Answer, streamed, whole
from programs import write_program

PROGRAM = """\
import os, sys
os.environ.update({environment!r})
from caretway_sim.cursor_agent.program import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class StandIn:
    """One installation of the stand-in: a program, its memory, and the journal of its starts."""

    root: Path

    @property
    def program(self) -> Path:
        return self.root / "bin" / "cursor-agent"

    @property
    def config(self) -> Path:
        return self.root / "cursor"

    def install(self, **environment: str) -> "StandIn":
        known = {"CURSOR_CONFIG_DIR": str(self.config), "SIM_AGENT_JOURNAL": str(self.root / "journal")}
        write_program(self.program, PROGRAM.format(environment=known | environment))
        return self

    def sign_out(self) -> None:
        self.config.mkdir(parents=True, exist_ok=True)
        (self.config / "signed-out").write_text("")

    def starts(self, *words: str) -> list[dict[str, Any]]:
        """The starts whose arguments have all these words."""
        try:
            lines = (self.root / "journal").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [start for start in map(json.loads, lines) if set(words) <= set(start["argv"])]

    def prompts(self) -> int:
        """How many it got in ACP mode."""
        return len((self.root / "journal.prompts").read_text().splitlines())

    def left(self) -> list[int]:
        """Process groups of its starts that still have somebody in them."""
        return [start["pid"] for start in self.starts() if group_lives(start["pid"])]


def group_lives(group: int) -> bool:
    """Somebody in the group runs. What is dead and waits for the system's own first process to be reaped does not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    if not Path("/proc/self/stat").exists():
        return True
    return any(state != "Z" for state in _states(group))


def _states(group: int) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, its_group = (process / "stat").read_text().rpartition(") ")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(its_group) == group:
            yield state


@dataclass(frozen=True, slots=True)
class CliClient:
    gateway: Gateway
    stand_in: StandIn
    http: httpx.AsyncClient

    async def chat(
        self,
        messages: str | list[dict[str, Any]],
        *,
        stream: bool = False,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": "sim-auto", "messages": messages, "stream": stream, **more}
        if not stream:
            return whole(await self.http.post(CHAT, json=body, headers=headers))
        body.setdefault("stream_options", {"include_usage": True})
        async with self.http.stream("POST", CHAT, json=body, headers=headers) as response:
            return streamed(response.status_code, response.headers, await response.aread())

    async def abandon(self, prompt: str, **more: Any) -> None:
        """Read of the answer until it says `word`, and hang up."""
        body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": prompt}], **more}
        async with self.http.stream("POST", CHAT, json=body) as response:
            async for line in response.aiter_lines():
                if '"content":"word' in line:
                    break


@asynccontextmanager
async def cli_gateway(root: Path, transport: str = "print", **settings: Any) -> AsyncIterator[CliClient]:
    stand_in = StandIn(root)
    if not stand_in.program.exists():
        stand_in.install()
    known: dict[str, Any] = {
        "port": 0,
        "backend": "cli",
        "agent_bin": str(stand_in.program),
        "cli_transport": transport,
        "data_dir": root / "data",
    }
    with bounded(settings) as mine:
        async with (
            Gateway(Settings(**known | mine)) as running,
            httpx.AsyncClient(base_url=running.base_url, timeout=60, trust_env=False, verify=False) as http,
        ):
            yield CliClient(running, stand_in, http)
    assert stand_in.left() == [], "processes were left behind"
