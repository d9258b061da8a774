"""Nothing that a client sends holds the event loop: the longest callback while a corpus of hostile requests is played,
with content kept and recorded.

CPU time of the thread, so a loaded machine does not matter. The gateway is in this thread, the client in another one,
the simulated Cursor in another process. What was measured is printed (`-s`), the longest first.
"""

import asyncio
import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from caretway.config import Settings
from caretway.config.quirks import Quirks
from caretway.gateway import Gateway
from contract.hostile.metered import keep_content
from contract.hostile.requests import CHAT, COUNT, MESSAGES, QUICK, RESPONSES, Hostile, corpus, talk
from contract.meter import Longest, Meter, memory_as_served, simulated_elsewhere

LIMIT: Final = 0.1
"""Seconds for one callback, and for one step that holds the interpreter in the thread for large requests."""


def play(base_url: str, request: Hostile) -> tuple[int, bytes]:
    """Status and body; blocking."""
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=120)
    try:
        connection.request("POST", request.path, request.make(), dict(request.headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@asynccontextmanager
async def gateway(tmp_path: Path) -> AsyncIterator[str]:
    async with simulated_elsewhere() as port:
        settings = Settings(
            port=0,
            backend="agent",
            agent_url=f"http://127.0.0.1:{port}",
            access_token="token",
            data_dir=tmp_path,
            agent_quirks=Quirks(limits=False),  # what is refused at once costs nothing
        )
        async with Gateway(settings) as running:
            async with httpx.AsyncClient(base_url=running.base_url, trust_env=False, verify=False) as http:
                await keep_content(http)
            await asyncio.to_thread(play, running.base_url, Hostile("warm", CHAT, lambda: talk([])))
            with memory_as_served():
                yield running.base_url


@pytest.mark.timeout(600)
async def test_no_callback_takes_long(tmp_path: Path) -> None:
    await _hold_against_the_limit([one for one in corpus(CHAT) if one.name in QUICK], tmp_path)


@pytest.mark.all
@pytest.mark.parametrize("path", [CHAT, COUNT, MESSAGES, RESPONSES])
@pytest.mark.timeout(600)
async def test_no_callback_takes_long_with_any_of_them(path: str, tmp_path: Path) -> None:
    await _hold_against_the_limit(corpus(path), tmp_path)


async def _hold_against_the_limit(requests: list[Hostile], tmp_path: Path) -> None:
    async with gateway(tmp_path) as base_url:
        async with Meter() as meter:
            seen = [(request, *await _measured(base_url, request, meter)) for request in requests]
        _, answer = await asyncio.to_thread(play, base_url, Hostile("afterwards", CHAT, lambda: talk([])))
    assert msgspec.json.decode(answer)["choices"][0]["message"]["content"] == "done"
    for request, status, _, on_loop, aside in sorted(seen, key=lambda row: -row[3].seconds):
        print(f"{status} {request.name:40} {on_loop}; aside {aside}")
    for request, status, _, on_loop, aside in seen:
        assert status in (200, 400, 413), request.name
        assert on_loop.seconds <= LIMIT, f"{request.name}: {on_loop}"
        assert aside.seconds <= LIMIT, f"{request.name}: {aside}"


async def _measured(base_url: str, request: Hostile, meter: Meter) -> tuple[int, bytes, Longest, Longest]:
    """Status, body and the longest callbacks. The work is the same each time, and what a busy machine adds to it (slow
    page faults, say) is not: the quickest of up to three counts."""
    found: list[tuple[int, bytes, Longest, Longest]] = []
    while len(found) < 3 and (not found or _longest(found[-1]) > LIMIT):
        found.append((*await asyncio.to_thread(play, base_url, request), *meter.take()))
    return min(found, key=_longest)


def _longest(measure: tuple[int, bytes, Longest, Longest]) -> float:
    return max(measure[2].seconds, measure[3].seconds)


@pytest.mark.timeout(300)
async def test_what_was_said_before_is_not_read_on_the_loop(tmp_path: Path) -> None:
    """A few words may name many megabytes of earlier responses."""
    before: str | None = None
    async with gateway(tmp_path) as base_url, Meter() as meter:
        for said in (*["\n" * (2 * 2**20)] * 4, "and now?"):
            body = {"model": "sim-auto", "input": f"sim: say done\n{said}", "previous_response_id": before}
            turn = Hostile("a turn", RESPONSES, partial(msgspec.json.encode, body))
            status, answer, on_loop, aside = await _measured(base_url, turn, meter)
            print(f"{len(said):8} {on_loop}; aside {aside}")
            assert status == 200
            assert max(on_loop.seconds, aside.seconds) <= LIMIT, f"{on_loop}, {aside}"
            before = msgspec.json.decode(answer)["id"]
