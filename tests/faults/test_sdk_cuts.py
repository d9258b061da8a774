"""The SDK heals a cut connection by itself. Wherever the cut is, its client sees every word once, or an error."""

from pathlib import Path
from typing import Final

import pytest

from caretway.config import Settings
from caretway.core.fold import fold
from caretway.upstream import open_backend
from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE
from contract.subjects import WAYS
from contract.test_backend import ask, response
from faults.plan import Direction, Fault, Kind
from faults.proxy import Proxy

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never"),
]
WORDS: Final = "The first words of it come before the second ones which end in it"
CUTS: Final = range(0, 2200, 110)
"""Bytes of the server's after which the connection is reset; a run has about 2,000."""


async def test_every_word_is_told_once(tmp_path: Path) -> None:
    simulator = Simulator(prefer="h2", heartbeat_s=0.5, manners=LIVE_AT_ONCE)
    proxy = Proxy(await simulator.listen("127.0.0.1", 0))
    address = f"http://127.0.0.1:{await proxy.listen()}"
    try:
        async with open_backend(
            Settings(backend="sdk", api_key="key", agent_url=address, data_dir=tmp_path)
        ) as backend:
            told = {}
            for cut in (None, *CUTS):
                if cut is not None:
                    proxy.surprise(Fault(Kind.RESET, Direction.DOWN, cut))
                turn = await backend.start(ask(f"sim: say {WORDS}"))
                reply = fold(await response(turn))
                await turn.aclose()
                told[cut] = reply.text
                assert reply.error is not None or reply.text == WORDS, (cut, reply.text)
        assert [text for text in told.values() if not WORDS.startswith(text)] == []
        assert len(proxy.fired) > len(CUTS) // 2
    finally:
        await proxy.aclose()
        await simulator.aclose()


@pytest.mark.all
async def test_an_account_of_which_nothing_is_heard_is_opened_again(tmp_path: Path) -> None:
    """The SDK waits for its first calls as long as it takes, and every run would wait with it."""
    simulator = Simulator(prefer="h2", heartbeat_s=0.5, manners=LIVE_AT_ONCE)
    proxy = Proxy(await simulator.listen("127.0.0.1", 0))
    address = f"http://127.0.0.1:{await proxy.listen()}"
    try:
        async with open_backend(
            Settings(backend="sdk", api_key="key", agent_url=address, data_dir=tmp_path)
        ) as backend:
            proxy.surprise(Fault(Kind.BLACK_HOLE, Direction.UP, 0))
            turn = await backend.start(ask(f"sim: say {WORDS}"))
            reply = fold(await response(turn))
            await turn.aclose()
        assert (reply.text, reply.error) == (WORDS, None)
        assert len(proxy.fired) == 1
    finally:
        await proxy.aclose()
        await simulator.aclose()
