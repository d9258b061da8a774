"""What is left of an answer when it is over: nothing, without a search for cycles.

The collector is switched off, the story is told, and then nothing of the gateway's that belongs to one answer may be
there any more. `Session`s that wait for results are the exception, and they hold no finished answer.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from caretway.api.answer import StreamedAnswer, WholeAnswer
from caretway.backends.agent.conversation import Conversation
from caretway.backends.agent.turn import AgentTurn
from caretway.core.fold import Fold, Reply
from caretway.cursor.transport.h2_transport import H2Run
from caretway.cursor.transport.http1_transport import Http1Run
from caretway.dialects.anthropic_messages.encode import MessagesEncoder
from caretway.dialects.openai_chat.encode import ChatEncoder
from caretway.dialects.openai_responses.encode import ResponsesEncoder
from caretway.server.exchange import ResponseWriter
from caretway.sessions.live import LiveTurn
from caretway.sessions.response import Response
from contract.gateways import Client, gateway
from contract.speakers import SPEAKERS, Speaker, ask

ANSWER = (Response, Fold, Reply, ChatEncoder, MessagesEncoder, ResponsesEncoder, ResponseWriter)
"""What one answer consists of, and nothing else."""
TURN = (LiveTurn, AgentTurn, Conversation, H2Run, Http1Run, StreamedAnswer, WholeAnswer)
PATIENCE_S = 20.0


_earlier: dict[int, object] = {}
"""Objects from before the story, by id: constants of other tests, or a gateway that is still letting go. They are held
while the story goes on, so that no new object gets the id of an old one."""


def kept(kinds: tuple[type, ...]) -> dict[str, int]:
    objects = [one for one in gc.get_objects() if type(one) in kinds]
    return dict(Counter(type(one).__name__ for one in objects if id(one) not in _earlier))


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    _earlier.update((id(one), one) for one in gc.get_objects() if type(one) in (*ANSWER, *TURN))
    try:
        yield
    finally:
        _earlier.clear()
        gc.enable()


async def gone(*kinds: type) -> None:
    """The last of an answer is done after its client has it, and a run's stream ends a moment after the run."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while kept(kinds):
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"still there after {PATIENCE_S:.0f} s: {kept(kinds)}")


@pytest.fixture(params=SPEAKERS, ids=lambda speaker: str(speaker.name))
def speaker(request: pytest.FixtureRequest) -> Speaker:
    speaker: Speaker = request.param
    return speaker


@asynccontextmanager
async def told(transport: str, **settings: Any) -> AsyncIterator[Client]:
    async with gateway(transport, **settings) as client:
        with no_collector():
            yield client


async def test_an_answer(transport: str, speaker: Speaker, stream: bool) -> None:
    async with told(transport) as client:
        heard = await ask(speaker, client.http, speaker.body("sim: think hm\nsim: say hello there", [], stream))
        assert heard.text == "hello there"
        await gone(*ANSWER, *TURN)


@pytest.mark.seed("C18")
async def test_an_error(transport: str, speaker: Speaker, stream: bool) -> None:
    async with told(transport) as client:
        for prompt in ("sim: fail usage_limit", "sim: say half\nsim: fail internal"):
            heard = await ask(speaker, client.http, speaker.body(prompt, [], stream))
            assert heard.error
        await gone(*ANSWER, *TURN)


async def test_a_parked_turn_keeps_no_finished_answer(transport: str, speaker: Speaker, stream: bool) -> None:
    async with told(transport) as client:
        body = speaker.body('sim: say first\nsim: call look {"key": "a"}\nsim: result', ["look"], stream)
        heard = await ask(speaker, client.http, body)
        await gone(*ANSWER)
        assert kept(TURN)
        results = {call.id: "found" for call in heard.calls}
        assert "found" in (await ask(speaker, client.http, speaker.follow_up(body, heard, results))).text
        await gone(*ANSWER, *TURN)


async def test_a_run_that_was_opened_again(transport: str, stream: bool) -> None:
    async with told(transport) as client:
        assert (await client.chat("sim: say one two\nsim: drop 1\nsim: say three", stream=stream)).done
        await gone(*ANSWER, *TURN)


async def test_a_stop_sequence_closes_upstream(transport: str, stream: bool) -> None:
    async with told(transport) as client:
        answer = await client.chat("sim: say one two stop three\nsim: stream 500 100 5", stream=stream, stop="stop")
        assert answer.text == "one two "
        await gone(*ANSWER, *TURN)


async def test_a_client_that_hangs_up(transport: str) -> None:
    async with told(transport, disconnect_grace=0.2) as client:
        body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: stream 5000 20 5"}]}
        async with client.http.stream("POST", "/v1/chat/completions", json=body) as response:
            await anext(response.aiter_raw())
        await gone(*ANSWER, *TURN)


async def test_an_answer_that_is_too_long(transport: str, speaker: Speaker, stream: bool) -> None:
    async with told(transport, max_answer_bytes=20_000) as client:
        response = await client.http.post(
            speaker.path,
            json=speaker.body("sim: stream 5000 100", [], stream),
            headers={"anthropic-version": "2023-06-01"},
        )
        assert response.status_code == (200 if stream else 502)
        assert "The answer is longer than" in response.text
        assert "Ask for less at a time." in response.text
        assert len(response.content) < 1_000_000
        await gone(*ANSWER, *TURN)


async def test_a_turn_that_nobody_reads_is_closed_when_it_has_much_to_say(transport: str) -> None:
    """It would go on for a minute, and so would its grace."""
    async with gateway(transport, disconnect_grace=60) as client:
        prompt = "sim: stream 12000 1000 5"
        body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": prompt}]}
        async with client.http.stream("POST", "/v1/chat/completions", json=body) as response:
            await anext(response.aiter_raw())
        await gone(LiveTurn)
