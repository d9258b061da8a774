"""What the SDK's process tells and nobody can read: it costs the run that it belongs to, and no other.

One process serves every account, so an odd answer to one of them must not end it. The simulator says odd things; the
SDK and its node are the real ones.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from caretway.backends.sdk.backend import CursorSdkBackend
from caretway.core.errors import ErrorKind
from caretway.core.events import Event
from caretway.core.fold import fold
from caretway.cursor.wire.envelope import pack
from caretway.usage.charges import CountedBackend
from caretway_sim import Simulator, updates
from caretway_sim.http1 import SimHttp1Exchange
from caretway_sim.http2 import Http2Exchange
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.shared import Prefer
from contract.gateways import gateway_to, result, tool
from contract.hostile.upstream import MIB, checkpoint, text
from contract.subjects import WAYS
from contract.test_backend import TOOLS, answer, ask, response
from contract.test_sdk_backend import BOTH, CALL, bridge_of, closing_simulator, reply_to, said, sdk, sdk_and_simulator
from receiving import receive

pytestmark = [
    pytest.mark.all,  # each starts a process that takes a second of CPU or more
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never"),
]

HALF: Final = rb"\ud800"
"""Half a character: JSON has words for it, UTF-8 has none. As long as what it stands for in these tests."""
ODD: Final = {
    "a checkpoint that is too large": pack(checkpoint(root_prompt_messages_json=[bytes(2 * MIB)])),
    "a delta that is too large as JSON": pack(text("\x01" * (MIB // 2))),
}
LIMIT: Final = 2**20


def halve(monkeypatch: pytest.MonkeyPatch, word: bytes) -> None:
    """The simulator's answers have half a character in place of this."""
    assert len(word) == len(HALF)
    for way in (Http2Exchange, SimHttp1Exchange):
        write: Callable[[Any, bytes], None] = way.write
        monkeypatch.setattr(way, "write", lambda self, data, write=write: write(self, data.replace(word, HALF)))


@BOTH
async def test_half_a_character_in_a_refusal(tmp_path: Path, prefer: Prefer, monkeypatch: pytest.MonkeyPatch) -> None:
    halve(monkeypatch, b"You've")
    async with sdk_and_simulator(tmp_path, prefer) as (backend, _):
        parked = await backend.start(ask(CALL, tools=TOOLS))
        (call,) = fold(await response(parked)).calls
        refused = (await reply_to(backend, ask("sim: fail quota before"))).error
        assert refused is not None
        assert refused.kind is ErrorKind.QUOTA and "\ufffd hit your usage limit" in refused.message
        await parked.submit([answer(call, r"as it was: \ud800")])
        assert fold(await response(parked)).text == r"as it was: \ud800"
        await parked.aclose()
        assert backend.bridges.started == 1


async def test_half_a_character_in_the_list_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sdk(tmp_path) as backend:
        before = await backend.models()
        halve(monkeypatch, b"Sonnet")
        after = await backend.models()
        assert [model.id for model in after] == [model.id for model in before]
        assert any("\ufffd" in model.name for model in after)
        assert backend.bridges.started == 1


@BOTH
async def test_what_cannot_be_read_costs_its_own_run(
    tmp_path: Path, prefer: Prefer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ada's server says odd things while a call of Bob's is open."""
    say = updates.text
    monkeypatch.setattr(updates, "text", lambda words: ODD.get(words.strip().replace("_", " ")) or say(words))
    ada, bob = ({"authorization": f"Bearer crsr_{name}"} for name in ("ada", "bob"))
    asked: list[dict[str, Any]] = [{"role": "user", "content": CALL}]
    offered = [tool("left", "k")]
    mine: dict[str, Any] = {"backend": "sdk", "auth_mode": "passthrough", "access_token": None}
    async with (
        closing_simulator(Simulator(manners=LIVE_AT_ONCE, prefer=prefer)) as (simulator, port),
        gateway_to(simulator, port, **mine, data_dir=tmp_path, max_frame_bytes=LIMIT) as client,
    ):
        first = await client.chat(asked, headers=bob, tools=offered)
        for odd in ODD:
            refused = await client.chat(f"sim: say {odd.replace(' ', '_')}", headers=ada, tools=offered)
            assert refused.error is not None, odd
            assert (refused.status, refused.error["code"]) == (502, "upstream_protocol"), (odd, refused.error)
        after = await client.chat("sim: say still here", headers=ada)
        assert after.text == "still here"
        asked += [first.message, result(first.calls[0], "of bob")]
        told = await client.chat(asked, headers=bob, tools=offered)
        assert (told.session, told.text) == ("resumed", "of bob")
        counted = client.gateway.backend
        assert isinstance(counted, CountedBackend) and isinstance(counted.inner, CursorSdkBackend)
        assert counted.inner.bridges.started == 1


async def test_a_process_that_does_not_answer_gets_no_more_turns(tmp_path: Path) -> None:
    """Its own runs are told when it is gone; nobody else waits for that."""
    async with sdk(tmp_path, call_timeout=6) as backend:
        turn = await backend.start(ask("sim: say so far\nsim: hang"))
        events: list[Event] = []
        while fold(events).text != "so far":
            events += await receive(turn)
        stopped = bridge_of(backend)
        os.kill(stopped.pid, signal.SIGSTOP)
        await stopped.prove()
        assert backend.bridges.current is None and not stopped.gone.done()
        assert await said(backend, "sim: say on") == "on"
        await asyncio.shield(stopped.gone)
        assert backend.bridges.current is not None and backend.bridges.started == 2
        await turn.aclose()


async def test_a_run_that_falls_silent_after_words_is_not_blamed_on_the_process(tmp_path: Path) -> None:
    async with sdk(tmp_path, progress_timeout=2) as backend:
        reply = await reply_to(backend, ask("sim: say so far\nsim: hang"))
        assert reply.error is not None
        assert "bridge" not in reply.error.message
        assert backend.bridges.started == 1
