"""What a request costs, counted and not timed: calls of the gateway's functions from its head to the end of its answer.

Over real sockets, with the simulator as the other side, whose own calls do not count. A busy machine
splits bytes into more reads, which only adds calls, so the cheapest of a few rounds counts. Whoever raises a limit says
why in the commit.
"""

import sys
from collections.abc import Awaitable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import caretway
from caretway_sim.manners import CLASSIC, LIVE_AT_ONCE, Manners
from contract.gateways import Answer, Client, gateway

MAX_CALLS = {"classic": 1178, "live": 1257}
"""60 of them are for records and the ledger. 1,169 and 1,248 on CPython 3.11, of a run that also asks for its context
and stores its pieces; on `live` there is a checkpoint more before the first word."""
ROUNDS = 4
REQUESTS = 10
OURS = str(Path(caretway.__file__).parent)
THEIRS = str(Path(OURS).parent / "caretway_sim")


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, where: FrameType, event: str, _: object) -> None:
        name = where.f_code.co_filename
        if event in ("call", "c_call") and name.startswith(OURS) and not name.startswith(THEIRS):
            self.calls += 1


async def calls_of(client: Client) -> int:
    """One round."""
    counter, before = Counter(), sys.getprofile()
    sys.setprofile(counter)
    try:
        for _ in range(REQUESTS):
            assert (await client.chat("sim: say hello")).text == "hello"
    finally:
        sys.setprofile(before)
    return counter.calls


@pytest.mark.parametrize("profile", [CLASSIC, LIVE_AT_ONCE], ids=list(MAX_CALLS))
async def test_calls_per_request(profile: Manners) -> None:
    async with gateway(manners=profile) as client:
        for _ in range(5):
            await client.chat("sim: say hello")  # connections are opened and what can be remembered is
        rounds = [await calls_of(client) for _ in range(ROUNDS)]
    per_request = min(rounds) / REQUESTS
    print(f"{per_request:.0f} calls per request")
    assert per_request <= MAX_CALLS[profile.name], f"{per_request:.0f} calls per request"


# ---- One warm streamed chat, and the step of a tool loop that brings a result: the files that it passes through, and
# calls of functions alone. What the simulator calls is its own, even if it stands in a file of the wire.

MAX_PATHS = {"chat": (75, 577), "resumed": (69, 599)}
"""Files and calls. 74 and 572, 68 and 595 on CPython 3.11."""
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


class Passed(Counter):
    """The files that calls enter, too."""

    def __init__(self) -> None:
        super().__init__()
        self.files: set[str] = set()

    def __call__(self, where: FrameType, event: str, _: object) -> None:
        name = where.f_code.co_filename
        if event == "call" and name.startswith(OURS) and not _theirs(where):
            self.calls += 1
            self.files.add(name)


def _theirs(where: FrameType | None) -> bool:
    while where is not None and where.f_code.co_filename.startswith(OURS):
        if where.f_code.co_filename.startswith(THEIRS):
            return True
        where = where.f_back
    return False


async def passed(answer: Awaitable[Answer], text: str) -> Passed:
    counter, before = Passed(), sys.getprofile()
    sys.setprofile(counter)
    try:
        assert (await answer).text == text
    finally:
        sys.setprofile(before)
    return counter


async def resumed(client: Client, number: int) -> Passed:
    """The second request of a tool loop."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": f'sim: call read {{"path": "{number}"}}\nsim: say done'}]
    first = await client.chat(asked, stream=True, tools=TOOLS)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "text"} for call in first.calls]
    return await passed(client.chat([*asked, first.message, *results], stream=True, tools=TOOLS), "done")


async def test_the_path_of_a_request() -> None:
    async with gateway(manners=LIVE_AT_ONCE) as client:
        for _ in range(5):
            await client.chat("sim: say hello", stream=True)
        paths = {
            "chat": [await passed(client.chat("sim: say hello", stream=True), "hello") for _ in range(8)],
            "resumed": [await resumed(client, number) for number in range(8)],
        }
    for name, rounds in paths.items():
        least = min(rounds, key=lambda one: one.calls)
        print(f"{name}: {len(least.files)} files, {least.calls} calls")
        assert len(least.files) <= MAX_PATHS[name][0], sorted(least.files)
        assert least.calls <= MAX_PATHS[name][1], name
