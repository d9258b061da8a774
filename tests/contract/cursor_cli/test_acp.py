"""ACP mode through the whole gateway: warm processes, cancelled and not killed, replaced when they die."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from caretway.backends.cursor_cli.backend import CliSetup, CursorCliBackend
from caretway.backends.cursor_cli.limits import CliLimits
from caretway.core.events import Event, TextDelta, TurnEnded, TurnFailed
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.core.turn import Turn
from contract.cursor_cli.stand_in import CliClient, StandIn, cli_gateway
from contract.gateways import CHAT, tool
from receiving import receive

LOOK = [tool("look", "what")]


async def abandon(client: CliClient, prompt: str) -> None:
    """Read one word of the answer and hang up."""
    body = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    async with client.http.stream("POST", CHAT, json=body) as response:
        async for line in response.aiter_lines():
            if '"content":"word' in line:
                break


async def test_the_second_turn_is_warm(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        for word in ("one", "two", "three"):
            answer = await client.chat(f"sim: think hm\nsim: say {word} é", stream=True)
            assert (answer.text, answer.reasoning, answer.finish) == (f"{word} é", "hm", "stop")
            assert answer.usage is not None and answer.usage["estimated"], "ACP tells no usage"
        (start,) = client.stand_in.starts("acp")
        assert start["argv"][:2] == ["--model", "sim-auto"]


async def test_one_process_for_each_model_and_no_more_than_allowed(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", cli_max_processes=2) as client:
        for model in ("sim-auto", "sim-fast", "sim-think", "sim-auto"):
            assert (await client.chat("sim: say x", model=model)).text == "x"
            assert len(client.stand_in.left()) <= 2
        assert len(client.stand_in.starts("acp")) == 4  # the first one had to make room


async def test_several_at_once(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", cli_max_processes=2) as client:
        answers = await asyncio.gather(*(client.chat(f"sim: say {n}\nsim: wait 20") for n in range(8)))
        assert [answer.text for answer in answers] == [str(n) for n in range(8)]
        assert len(client.stand_in.starts("acp")) == 2


async def test_a_hang_up_is_a_cancel_and_the_process_lives_on(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", disconnect_grace=0, cli_max_processes=1) as client:
        await abandon(client, "sim: say word\nsim: mute")
        assert (await client.chat("sim: say next")).text == "next"
        assert len(client.stand_in.starts("acp")) == 1


async def test_a_process_that_ignores_a_cancel_is_replaced(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", disconnect_grace=0, cli_max_processes=1, cli_exit_grace=0.1) as client:
        await abandon(client, "sim: say word\nsim: mute\nsim-agent: ignore-cancel")
        assert (await client.chat("sim: say next")).text == "next"
        assert len(client.stand_in.starts("acp")) == 2


async def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        assert (await client.chat("sim: say one")).text == "one"
        dead = await client.chat("sim: say word\nsim: drop", stream=True)
        assert dead.text == "word"
        assert dead.error is not None and "signal 9" in dead.error["message"]
        assert (await client.chat("sim: say two")).text == "two"
        assert len(client.stand_in.starts("acp")) == 2


@pytest.mark.parametrize("fault", ["close-stdout", "leave"])
async def test_a_process_that_is_heard_no_more_is_not_waited_for(tmp_path: Path, fault: str) -> None:
    """Neither of them is an error of the program's: it is worth one more try, and no silence of 90 s."""
    async with cli_gateway(tmp_path, "acp") as client:
        answer = await client.chat(f"sim-agent: {fault}\nsim: say x")
        assert answer.error is not None
        assert (answer.status, answer.error["code"]) == (503, "upstream_unavailable")
        assert len(client.stand_in.starts("acp")) == 2
        assert (await client.chat("sim: say on")).text == "on"


async def test_idle_processes_are_let_go(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", cli_idle_timeout=0.05) as client:
        assert (await client.chat("sim: say one")).text == "one"
        while client.stand_in.left():
            await asyncio.sleep(0.01)
        assert (await client.chat("sim: say two")).text == "two"


async def test_silence_ends_a_turn(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", progress_timeout=0.4, cli_max_processes=1) as client:
        answer = await client.chat("sim: mute")
        assert answer.status == 504
        assert (await client.chat("sim: say on")).text == "on"
        assert len(client.stand_in.starts("acp")) == 1, "it obeyed the cancel"


async def test_a_conversation_goes_on_in_its_session(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "sim: say one"}]
    async with cli_gateway(tmp_path, "acp") as client:
        first = await client.chat(messages)
        messages += [first.message, {"role": "user", "content": "sim: recall"}]
        second = await client.chat(messages)
        assert second.session == "continued"
        assert second.text.startswith("1 earlier user turn")
    async with cli_gateway(tmp_path, "acp") as client:  # another process: the session is loaded
        messages += [second.message, {"role": "user", "content": "sim: recall"}]
        third = await client.chat(messages)
        assert third.session == "continued"
        assert third.text.startswith("2 earlier")
    for chat in (client.stand_in.config / "chats").iterdir():
        (chat / "chat.json").unlink()
    async with cli_gateway(tmp_path, "acp") as client:  # and now it is gone
        messages += [third.message, {"role": "user", "content": "sim: recall"}]
        fourth = await client.chat(messages)
        assert fourth.session == "replayed"
        assert fourth.text.startswith("3 earlier")
    async with cli_gateway(tmp_path, "print") as client:  # print mode does not share its chats
        messages += [fourth.message, {"role": "user", "content": "sim: recall"}]
        assert (await client.chat(messages)).session == "replayed"


async def test_client_tools(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        messages: list[dict[str, Any]] = [{"role": "user", "content": 'sim: call look {"what":"a"}\nsim: result'}]
        asked = await client.chat(messages, stream=True, tools=LOOK)
        assert asked.finish == "tool_calls"
        result = {"role": "tool", "tool_call_id": asked.calls[0]["id"], "content": "seen"}
        assert (await client.chat([*messages, asked.message, result], tools=LOOK)).text == "seen"
        assert len(client.stand_in.starts("acp")) == 1


async def test_permissions_and_questions_are_answered(tmp_path: Path) -> None:
    shell = 'sim: exec shell {"command":"make"}\nsim: result'
    async with cli_gateway(tmp_path, "acp") as client:
        assert (await client.chat(shell)).text == "rejected: not allowed in ask mode"
        for kind in ("ask_question", "create_plan", "switch_mode"):
            answered = (await client.chat(f"sim: query {kind}\nsim: result")).text
            assert json.loads(answered.removeprefix("answered: ")) is not None
    async with cli_gateway(tmp_path, "acp", cli_mode="agent") as client:
        assert (await client.chat(shell)).text == "rejected by the client"
    async with cli_gateway(tmp_path, "acp", cli_mode="agent", cli_force=True) as client:
        assert (await client.chat(shell)).text == "simulated shell of make"


async def whole(turn: Turn) -> list[Event]:
    events: list[Event] = []
    while not events or not isinstance(events[-1], TurnEnded | TurnFailed):
        events += await receive(turn)
    return events


async def test_a_process_that_a_slow_reader_held_back_is_free_for_the_next_turn(tmp_path: Path) -> None:
    """The end of the first turn fills its buffer, and nobody reads it: that holds back no other turn."""
    stand_in = StandIn(tmp_path).install()
    limits = CliLimits(buffer_bytes=2048, processes=1)
    setup = CliSetup(str(stand_in.program), os.environ, tmp_path / "data", "test", transport="acp", limits=limits)
    backend = CursorCliBackend(setup)

    async def start(prompt: str) -> Turn:
        return await backend.start(TurnRequest("sim-auto", (Message(Role.USER, (Text(prompt),)),)))

    unread, read = await start("sim: say one"), await start("sim: say two")
    assert TextDelta("two") in await whole(read)
    assert TextDelta("one") in await whole(unread), "what was not read is still there"
    assert len(stand_in.starts("acp")) == 1
    for turn in (unread, read):
        await turn.aclose()
    await backend.aclose()


async def test_images(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    text = {"type": "text", "text": "sim: say seen\nsim-agent: pictures yes"}
    async with cli_gateway(tmp_path, "acp") as client:
        assert (await client.chat([{"role": "user", "content": [text, image]}])).text == "[1 image] seen"


FAULTS = [
    ("sim: fail unauthenticated", 401, "not_authenticated"),
    ("sim: fail usage_limit", 402, "insufficient_quota"),
    ("sim-agent: error exhausted", 403, "refused_without_reason"),
    ("sim: fail bad_model", 400, "model_not_found"),
    ("sim: fail unavailable", 503, "upstream_unavailable"),
    ("sim: fail internal", 502, "upstream_error"),
]


async def test_failures(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        for line, status, code in FAULTS:
            answer = await client.chat(line)
            assert (answer.status, answer.error and answer.error["code"]) == (status, code), line
        assert (await client.chat("sim: say on\nsim-agent: notice Update available!")).text == "on"
        assert len(client.stand_in.starts("acp")) == 1, "a refused prompt does not cost the process"


async def test_stopping_the_gateway_stops_its_processes(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", shutdown_grace=0.1) as client:
        assert (await client.chat("sim: say warm", model="sim-fast")).text == "warm"
        hanging = asyncio.ensure_future(client.chat("sim: hang"))
        while len(client.stand_in.starts("acp")) < 2:
            await asyncio.sleep(0.01)
        hanging.cancel()
    assert client.stand_in.left() == []


# ---------------------------------------------------------------------------------------------- which way


async def test_auto_takes_acp_where_there_is_one(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "auto") as client:
        assert (await client.chat("sim: say one")).text == "one"
        assert (await client.chat("sim: say two")).text == "two"
        assert (len(client.stand_in.starts("acp")), len(client.stand_in.starts("-p"))) == (1, 0)


async def test_auto_takes_print_where_there_is_none(tmp_path: Path) -> None:
    StandIn(tmp_path).install(SIM_AGENT_ACP="no")
    async with cli_gateway(tmp_path, "auto") as client:
        assert (await client.chat("sim: say one")).text == "one"
        assert (await client.chat("sim: say two")).text == "two"
        assert (len(client.stand_in.starts("acp")), len(client.stand_in.starts("-p"))) == (0, 2)
        assert len(client.stand_in.starts("--help")) == 1
        client.stand_in.install()  # it updated itself
        assert (await client.chat("sim: say three")).text == "three"
        assert len(client.stand_in.starts("acp")) == 1


@pytest.mark.parametrize("transport", ["acp", "auto"])
async def test_an_acp_that_does_not_work(tmp_path: Path, transport: str) -> None:
    StandIn(tmp_path).install(SIM_AGENT_ACP="broken")
    async with cli_gateway(tmp_path, transport) as client:
        answer = await client.chat("sim: say one")
        if transport == "auto":
            assert answer.text == "one"
        else:
            assert answer.status == 500
            assert answer.error is not None and "no ACP today" in answer.error["message"]
