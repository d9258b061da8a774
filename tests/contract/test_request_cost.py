"""What a request costs, counted and not timed: calls of the gateway's functions from its head to the end of its answer.

Over real sockets, with the simulator as the other side, whose own calls do not count. A busy machine
splits bytes into more reads, which only adds calls, so the cheapest of a few rounds counts. Whoever raises a limit says
why in the commit.
"""

import sys
from pathlib import Path
from types import FrameType

import pytest

import caretway
from caretway_sim.manners import CLASSIC, LIVE_AT_ONCE, Manners
from contract.gateways import Client, gateway

MAX_CALLS = {"classic": 1340, "live": 1435}
"""60 of them are for records and the ledger. 1,326 and 1,423 on CPython 3.11, of a run that also asks for its context
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
