"""The SDK's process, with other programs in its place: it does not start, dies again and again, or talks nonsense."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from caretway.backends.sdk.bridge import Bridges, BridgeSetup
from caretway.core.errors import ErrorKind, GatewayError
from caretway.processes.child import Command

READY = """print('{"t": "ready"}', flush=True)"""
ECHO = READY + "\nimport sys, json\nfor line in sys.stdin:\n    frame = json.loads(line)\n    "


@asynccontextmanager
async def bridges(tmp_path: Path, program: str, **more: Any) -> AsyncIterator[Bridges]:
    command = Command((sys.executable, "-c", program), str(tmp_path), {})
    made = Bridges(BridgeSetup(lambda: command, **more))
    try:
        yield made
    finally:
        await made.aclose()


async def failure(made: Bridges) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        made.release(await made.lease())
    return raised.value


async def test_one_that_keeps_dying_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async with bridges(tmp_path, "import sys; sys.exit('the last words')") as made:
        first = await failure(made)
        assert "code 1: the last words" in first.message and first.kind is ErrorKind.UPSTREAM_DOWN
        assert "the last words" in (await failure(made)).message
        resting = await failure(made)
        assert "2 times in a row" in resting.message
        assert resting.retry_after == 1.0 and made.started == 0


async def test_one_that_is_never_ready(tmp_path: Path) -> None:
    async with bridges(tmp_path, "import time; time.sleep(60)", start_timeout=0.1) as made:
        assert "not ready within" in (await failure(made)).message


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    command = Command((str(tmp_path / "nothing"),), str(tmp_path), {})
    made = Bridges(BridgeSetup(lambda: command))
    assert "cannot be started" in (await failure(made)).message
    await made.aclose()


async def test_an_sdk_that_does_not_do_what_it_must(tmp_path: Path) -> None:
    async with bridges(tmp_path, """print('{"t": "ready", "s": "systemPrompt"}', flush=True); input()""") as made:
        assert (await failure(made)).kind is ErrorKind.UNSUPPORTED


@pytest.mark.parametrize("line", ["nonsense", '{"n": 1}', "[]", '{"t": "text", "n": 1, "s": "' + "x" * 5000 + '"}'])
async def test_one_that_cannot_be_understood_is_ended(tmp_path: Path, line: str) -> None:
    async with bridges(tmp_path, f"{ECHO}print({line!r}, flush=True)", frame_bytes=4096) as made:
        bridge = await made.lease()
        with pytest.raises(GatewayError, match=r"process ended"):
            await bridge.call("ping")
        await bridge.gone
        assert made.current is None
        made.release(bridge)


async def test_answers_and_failures_of_questions(tmp_path: Path) -> None:
    reply = """print(json.dumps({"t": "reply", "n": frame["n"], **json.loads(frame["key"])}), flush=True)"""
    async with bridges(tmp_path, ECHO + reply) as made:
        bridge = await made.lease()
        assert await bridge.call("me", '{"value": {"a": 1}}') == {"a": 1}
        with pytest.raises(GatewayError) as refused:
            await bridge.call("me", '{"thrown": true, "message": "no", "http": 401}')
        assert refused.value.kind is ErrorKind.SIGNED_OUT
        made.release(bridge)


async def test_a_question_that_is_not_answered(tmp_path: Path) -> None:
    async with bridges(tmp_path, f"{ECHO}pass", call_timeout=0.05) as made:
        bridge = await made.lease()
        with pytest.raises(GatewayError) as late:
            await bridge.call("me")
        assert late.value.kind is ErrorKind.TIMEOUT
        await bridge.prove()  # it does not answer that either
        await bridge.gone
        made.release(bridge)


async def test_a_spoiled_one_gets_no_more_turns(tmp_path: Path) -> None:
    spoil = """print('{"t": "spoiled"}', flush=True); print(json.dumps({"t": "reply", "n": frame["n"]}), flush=True)"""
    async with bridges(tmp_path, ECHO + spoil) as made:
        first = await made.lease()
        await first.call("me")
        second = await made.lease()
        assert second is not first and not first.gone.done()
        made.release(first)
        await first.gone
        made.release(second)
