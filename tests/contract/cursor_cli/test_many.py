"""Five hundred requests of every kind, many of them going wrong: afterwards nothing is left."""

import asyncio
import random
from pathlib import Path
from typing import Final

import httpx
import pytest

from contract.cursor_cli.stand_in import CliClient, cli_gateway
from contract.gateways import CHAT

PROMPTS: Final = [
    "sim: say fine",
    "sim: think hm\nsim: say fine é",
    'sim: exec read {"path":"a"}\nsim: say fine',
    "sim: stream 200 50",
    "sim: fail internal",
    "sim: fail usage_limit",
    "sim: say word\nsim: drop 9999",
    "sim: say one two\nsim-agent: die-mid-line",
    "sim: say fine\nsim-agent: no-result",
    "sim: say fine\nsim-agent: never-exit",
    "sim: say fine\nsim-agent: grandchild",
    "sim: say fine\nsim-agent: error-result it broke",
]
HANG_UP: Final = ["sim: say word\nsim: mute", "sim: hang", "sim: say word\nsim: stream 100000 100 1"]


async def one(client: CliClient, number: int) -> None:
    dice = random.Random(number)
    if dice.random() < 0.15:
        body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": dice.choice(HANG_UP)}]}
        try:
            async with asyncio.timeout(0.05), client.http.stream("POST", CHAT, json=body) as response:
                await response.aread()
        except (TimeoutError, httpx.HTTPError):
            return
    else:
        answer = await client.chat(dice.choice(PROMPTS), stream=dice.random() < 0.5)
        assert answer.status in (200, 402, 429, 500, 502, 503)


@pytest.mark.all
@pytest.mark.parametrize(("transport", "requests"), [("print", 180), ("acp", 320)])
async def test_nothing_is_left(tmp_path: Path, transport: str, requests: int) -> None:
    settings = {"cli_max_processes": 4, "cli_queue": 100, "cli_exit_grace": 0.05, "disconnect_grace": 0.0}
    async with cli_gateway(tmp_path, transport, **settings) as client:
        todo = iter(range(requests))

        async def worker() -> None:
            for number in todo:
                await one(client, number)

        await asyncio.gather(*(worker() for _ in range(8)))
        assert (await client.chat("sim: say still here")).text == "still here"
        assert len(client.stand_in.left()) <= 4
    assert client.stand_in.left() == []
