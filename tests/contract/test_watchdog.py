"""Nothing that a client sends holds the event loop: the longest callback while a corpus of hostile requests is played.

CPU time of the thread, so a loaded machine does not matter. Gateway in this thread, client and simulator in others.
"""

import asyncio
import http.client
from urllib.parse import urlsplit

import pytest

from contract.gateways import gateway_to
from contract.hostile.requests import CHAT, COUNT, MESSAGES, RESPONSES, Hostile, corpus
from contract.meter import Longest, Meter, memory_as_served, simulated_elsewhere

import os, re
ONLY=os.environ.get("ONLY")
LIMIT = 0.1
"""Seconds for one callback, and for one step that holds the interpreter in a thread."""


def play(base_url: str, request: Hostile) -> int:
    """The status; blocking. A server that has read enough may answer before it was told everything."""
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=120)
    try:
        connection.request("POST", request.path, request.make(), dict(request.headers))
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


@pytest.mark.parametrize("path", [CHAT, MESSAGES, COUNT, RESPONSES])
@pytest.mark.timeout(600)
async def test_no_callback_takes_long(path: str) -> None:
    seen: list[tuple[Hostile, int, Longest, Longest]] = []
    async with simulated_elsewhere() as port, gateway_to(None, port, "h2") as client:
        await client.chat("sim: say warm")
        with memory_as_served():
            async with Meter() as meter:
                for request in corpus():
                    if request.path == path and (not ONLY or re.search(ONLY, request.name)):
                        status = await asyncio.to_thread(play, client.gateway.base_url, request)
                        seen.append((request, status, *meter.take()))
                        print(status, request.name, *map(str, seen[-1][2:]), flush=True)
                answer = await client.chat("sim: say still here")
    assert answer.text == "still here"
    for request, status, on_loop, aside in sorted(seen, key=lambda row: -row[2].seconds):
        print(f"{status} {request.name:40} {on_loop}; aside {aside}")
    for request, status, on_loop, aside in seen:
        assert status in (200, 400, 413), request.name
        assert on_loop.seconds <= LIMIT, f"{request.name}: {on_loop}"
        assert aside.seconds <= LIMIT, f"{request.name}: {aside}"
