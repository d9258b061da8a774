"""Nothing that Cursor sends holds the event loop or grows without bound.

A gateway in a process of its own is answered by a Cursor that means harm, case by case. Of each case the longest
callback (CPU time of the thread) and the growth of memory are measured and printed (`-s`), with content kept and
recorded, and afterwards an ordinary answer must still be given.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from caretway.cursor.wire.envelope import pack
from contract.hostile.metered import Metered, Reading, keep_content, metered
from contract.hostile.upstream import CASES, MIB, Chunks, Upstream, hostile, in_one, text
from contract.meter import simulated_elsewhere
from contract.speakers import SPEAKERS, Speaker

LIMIT_MS: Final = 100
GROWTH: Final = 192 * MIB
"""What one turn may add to the gateway's memory, whatever upstream sends; as SECURITY.md has it."""
CHAT, MESSAGES, RESPONSES = SPEAKERS
LATER: Final = pytest.mark.all
LONG_ANSWERS: Final = 200
QUICK: Final = (
    "nothing, again and again",
    "heartbeats in one read",
    "an argument nested too deeply",
    "an argument of too many of them",
    "a part of a call of 16 MiB",
    "execs of no tool",
    "an end of 60 kB",
)
"""For every day: those that cost this machine the least."""
ASKED: Final = [
    pytest.param("h2", CHAT, True, id="h2-chat-stream", marks=LATER),
    pytest.param("http1", CHAT, False, id="http1-chat-whole", marks=LATER),
    pytest.param("h2", MESSAGES, True, id="h2-messages-stream", marks=LATER),
    pytest.param("h2", RESPONSES, True, id="h2-responses-stream", marks=LATER),
    pytest.param("http1", RESPONSES, True, id="http1-responses-stream", marks=LATER),
    pytest.param("h2", RESPONSES, False, id="h2-responses-whole", marks=LATER),
]


@asynccontextmanager
async def answered_by(carrier: str, upstream: Upstream) -> AsyncIterator[Metered]:
    async with (
        hostile(carrier, upstream) as url,
        metered(
            backend="agent", agent_url=url, agent_transport=carrier, agent_quirks={"sibling_quiet": 0.05}
        ) as gateway,
    ):
        yield gateway


async def ask(gateway: Metered, speaker: Speaker, stream: bool) -> tuple[int, str]:
    """Status, and the end of the body: some of these are long."""
    headers = {"anthropic-version": "2023-06-01"}
    body = speaker.body("hello", ["look"], stream)
    end = b""
    async with gateway.http.stream("POST", speaker.path, json=body, headers=headers) as response:
        async for data in response.aiter_raw():
            end = (end + data)[-4096:]
        return response.status_code, end.decode("utf-8", "replace")


async def measured(name: str, gateway: Metered, speaker: Speaker, stream: bool) -> tuple[int, int, Reading]:
    """Status, growth at most, and reading. The work is the same each time, and what a busy machine adds to it (slow
    page faults, say) is not: the quickest of up to three counts."""
    found: list[tuple[int, int, Reading]] = []
    while len(found) < 3 and (not found or found[-1][2].longest_ms > LIMIT_MS):
        before = await gateway.read()
        status, end = await ask(gateway, speaker, stream)
        assert end.strip(), name
        after = await gateway.read()
        found.append((status, after.peak - before.rss, after))
    status, _, quickest = min(found, key=lambda one: one[2].longest_ms)
    return status, max(growth for _, growth, _ in found), quickest


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("carrier", "speaker", "stream"), ASKED)
async def test_no_case_takes_long_or_grows_much(carrier: str, speaker: Speaker, stream: bool) -> None:
    await bounded(CASES, carrier, speaker, stream)


async def test_no_quick_case_takes_long_or_grows_much() -> None:
    await bounded({name: CASES[name] for name in QUICK}, "h2", CHAT, True)


async def bounded(cases: dict[str, Callable[[], Chunks]], carrier: str, speaker: Speaker, stream: bool) -> None:
    upstream = Upstream()
    seen: list[tuple[str, int, int, Reading]] = []
    async with answered_by(carrier, upstream) as gateway:
        await keep_content(gateway.http)
        upstream.chunks = lambda: in_one(pack(text("warm")))
        await ask(gateway, speaker, stream)
        for name, chunks in cases.items():
            upstream.chunks = chunks
            seen.append((name, *await measured(name, gateway, speaker, stream)))
        upstream.chunks = lambda: in_one(pack(text("still here")))
        assert (await ask(gateway, speaker, stream))[0] == 200
    for name, status, growth, reading in sorted(seen, key=lambda row: -row[3].longest_ms):
        print(f"{reading.longest_ms:6.1f} ms  +{growth / MIB:4.0f} MiB  {status}  {name}  ({reading.where})")
    assert not [row for row in seen if row[3].longest_ms > LIMIT_MS]
    assert not [row for row in seen if row[2] > GROWTH]


@pytest.mark.parametrize("carrier", ["h2", pytest.param("http1", marks=LATER)])
async def test_a_list_of_a_million_models(carrier: str) -> None:
    upstream = Upstream()
    upstream.unary = b"\x0a\x00" * (MIB - 100)
    async with answered_by(carrier, upstream) as gateway:
        await gateway.http.get("/health")
        await gateway.read()
        listed = (await gateway.http.get("/v1/models")).json()["data"]
        reading = await gateway.read()
        assert len(listed) <= 2100
        print(f"{reading.longest_ms:6.1f} ms")
        assert reading.longest_ms < LIMIT_MS, reading.where
        upstream.unary = b"\x0a\x00" * (2 * MIB)
        assert (await gateway.http.get("/health")).status_code in (200, 503)


async def series(gateway: Metered, count: int, *, stream: bool) -> tuple[int, int]:
    """Resident bytes before and after so many answers of 4 MB."""
    prompt = "sim: stream 4000 1000"
    body = {"model": "sim-auto", "stream": stream, "messages": [{"role": "user", "content": prompt}]}
    before = 0
    for number in range(count + 2):
        size = 0
        async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for data in response.aiter_raw():
                size += len(data)
        assert response.status_code == 200
        assert size > 4_000_000
        if number == 1:
            before = (await gateway.read()).rss
    return before, (await gateway.read()).rss


@LATER
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_long_answers_one_after_the_other_leave_nothing_behind(stream: bool) -> None:
    async with (
        simulated_elsewhere() as port,
        metered(backend="agent", agent_url=f"http://127.0.0.1:{port}", agent_transport="h2") as gateway,
    ):
        before, after = await series(gateway, LONG_ANSWERS, stream=stream)
        print(f"{LONG_ANSWERS} answers of 4 MB: {before / MIB:.0f} -> {after / MIB:.0f} MiB")
        assert after - before < 100 * MIB
