"""Where a step of parallel calls ends, on real sockets against the profile `live`: nobody says how many there are.

The gaps are the simulator's own. Every dialect is asked at the same time, streamed and whole, each in a run of its own.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from caretway_sim.manners import LIVE, Manners
from contract.gateways import CHAT, Client, gateway, tool
from contract.speakers import SPEAKERS, Heard, Speaker, ask

STAGGERED = replace(LIVE, sibling_gaps_ms=(300, 573, 1200, 318))
SILENT = replace(STAGGERED, tokens_in_gaps=False)


@dataclass(slots=True)
class Loop:
    """A conversation to its end."""

    steps: list[list[str]] = field(default_factory=list)
    """The keys of the calls, response by response."""
    text: str = ""
    sessions: list[str] = field(default_factory=list)

    @property
    def ran(self) -> Counter[str]:
        return Counter(key for step in self.steps for key in step)


def script(count: int) -> str:
    calls = " & ".join(f'look {{"key": "k{number}"}}' for number in range(count))
    return f"sim: call {calls}\nsim: result"


async def converse(client: Client, speaker: Speaker, count: int, stream: bool, *, slow: bool = False) -> Loop:
    """`slow`: the first results are given when all calls were made."""
    loop = Loop()
    body = speaker.body(script(count), ["look"], stream)
    while True:
        heard: Heard = await ask(speaker, client.http, body)
        assert (heard.status, heard.error) == (200, "")
        loop.sessions.append(heard.headers["x-caretway-session"])
        if heard.finish == "stop":
            loop.text = heard.text
            return loop
        loop.steps.append([call.arguments["key"] for call in heard.calls])
        assert loop.steps[-1], "a response that pauses has calls"
        if slow and len(loop.steps) == 1:
            await asyncio.wait_for(_until(client, count), 30)
        body = speaker.follow_up(body, heard, {call.id: f"did {call.arguments['key']}" for call in heard.calls})


async def _until(client: Client, calls: int) -> None:
    """The simulator has made so many calls."""
    while client.stats()["execs_asked"] < calls:
        await asyncio.sleep(0.05)


def whole(loop: Loop, count: int) -> None:
    assert loop.ran == Counter(f"k{number}" for number in range(count)), "each call once"
    assert loop.text.split("\n") == [f"did k{number}" for number in range(count)]
    assert loop.sessions == ["fresh"] + ["resumed"] * len(loop.steps)


async def in_all_dialects(transport: str, manners: Manners, count: int) -> list[Loop]:
    asked = [(speaker, stream) for speaker in SPEAKERS for stream in (False, True)]
    async with gateway(transport, manners=manners) as client:
        loops = await asyncio.gather(*[converse(client, speaker, count, stream) for speaker, stream in asked])
        assert client.stats()["runs_opened"] == len(asked)
    for loop in loops:
        whole(loop, count)
    return loops


async def test_r5_ten_calls_with_tokens_between_them_are_one_step(transport: str) -> None:
    for loop in await in_all_dialects(transport, STAGGERED, 10):
        assert len(loop.steps) == 1


async def test_r5_ten_calls_with_silence_between_them_arrive_in_more_steps(transport: str) -> None:
    for loop in await in_all_dialects(transport, SILENT, 10):
        assert 1 < len(loop.steps) <= 10


@pytest.mark.parametrize("speaker", SPEAKERS, ids=[speaker.name for speaker in SPEAKERS])
async def test_r5_silent_gaps_are_learned_and_forgotten(speaker: Speaker) -> None:
    """The client answers at once, so the first step's calls come one by one; those of the second step together. Then
    the model makes single calls, and the wait for a sibling that never comes is the usual one again."""
    clock = asyncio.get_running_loop().time
    parallel = [[f"p{step}.{number}" for number in range(4)] for step in range(3)]
    single = [[f"s{step}"] for step in range(10)]
    lines = [" & ".join(f'look {{"key": "{key}"}}' for key in step) for step in [*parallel, *single]]
    body = speaker.body("\n".join([*(f"sim: call {line}" for line in lines), "sim: say done"]), ["look"], True)
    responses: list[list[str]] = []
    waits: list[float] = []
    async with gateway("h2", manners=replace(LIVE, sibling_gaps_ms=(320, 700, 1150), tokens_in_gaps=False)) as client:
        while True:
            began = clock()
            heard = await ask(speaker, client.http, body)
            assert (heard.status, heard.error) == (200, "")
            if not heard.calls:
                break
            responses.append([call.arguments["key"] for call in heard.calls])
            waits.append(clock() - began)
            body = speaker.follow_up(body, heard, {call.id: "done" for call in heard.calls})
        assert client.stats()["runs_opened"] == 1
    print("single calls:", " ".join(f"{wait:.2f}" for wait in waits[-10:]), "s")
    assert [key for keys in responses for key in keys] == [key for step in [*parallel, *single] for key in step]
    first = len(responses) - len(parallel[1:]) - len(single)
    assert first > 1
    assert responses[first:] == [*parallel[1:], *single]
    assert min(waits[-5:]) < 0.5 < waits[-10]


@pytest.mark.parametrize("tokens", [False, True], ids=["silence", "tokens"])
async def test_r26_a_sibling_three_seconds_late_is_asked_for_next(transport: str, tokens: bool) -> None:
    late = replace(LIVE, sibling_gaps_ms=(3000,), tokens_in_gaps=tokens)
    for loop in await in_all_dialects(transport, late, 2):
        assert loop.steps == [["k0"], ["k1"]]


@pytest.mark.parametrize("speaker", SPEAKERS, ids=[speaker.name for speaker in SPEAKERS])
async def test_r26_siblings_that_come_while_the_client_works(transport: str, speaker: Speaker) -> None:
    """Also when it works for so long that all the others are there before its result."""
    late = replace(LIVE, sibling_gaps_ms=(900, 800), tokens_in_gaps=False)
    async with gateway(transport, manners=late) as client:
        loop = await converse(client, speaker, 3, stream=True, slow=True)
        whole(loop, 3)
        assert loop.steps == [["k0"], ["k1", "k2"]]
        assert client.stats()["runs_opened"] == 1


@pytest.mark.parametrize("listed", [False, True], ids=["unannounced", "announced"])
async def test_r22_calls_that_are_asked_for_in_turn_do_not_wait_for_each_other(transport: str, listed: bool) -> None:
    in_turn = replace(LIVE, sibling_gaps_ms=(), asks_in_turn=True, lists_calls=listed)
    for loop in await in_all_dialects(transport, in_turn, 3):
        assert len(loop.steps) == 1


@pytest.mark.seed("F02")
async def test_r26_a_single_call_waits_at_most_a_quarter_of_a_second(transport: str) -> None:
    """From the whole call to the end of the response, as a client measures it; the best of at most twenty, because
    a busy machine can only add to it."""
    clock = asyncio.get_running_loop().time
    waits: list[float] = []
    body = {
        "model": "sim-auto",
        "stream": True,
        "tools": [tool("look", "key")],
        "messages": [{"role": "user", "content": script(1)}],
    }
    async with gateway(transport, manners=LIVE) as client:
        while len(waits) < 20 and min(waits, default=1.0) > 0.25:
            called = 0.0
            async with client.http.stream("POST", CHAT, json=body) as response:
                async for line in response.aiter_lines():
                    if '"tool_calls":' in line:
                        called = clock()
                    if '"finish_reason":"tool_calls"' in line:
                        waits.append(clock() - called)
    print(f"{transport}: a single call waited {min(waits) * 1000:.0f} ms")
    assert 0.15 < min(waits) <= 0.25
