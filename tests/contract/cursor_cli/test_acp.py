"""ACP mode through the whole gateway: warm processes, cancelled and not killed, replaced when they die."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from caretway.backends.cli.backend import CliSetup, CursorCliBackend
from caretway.backends.cli.program import CliLimits
from caretway.core.events import Event, TextDelta, TurnEnded, TurnFailed
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.core.turn import Turn
from contract.cursor_cli.stand_in import StandIn, cli_gateway
from contract.gateways import result, tool
from receiving import receive

LOOK = [tool("look", "what")]


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
        await client.abandon("sim: say word\nsim: mute")
        assert (await client.chat("sim: say next")).text == "next"
        assert len(client.stand_in.starts("acp")) == 1


async def test_a_process_that_ignores_a_cancel_is_replaced(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", disconnect_grace=0, cli_max_processes=1, cli_exit_grace=0.1) as client:
        await client.abandon("sim: say word\nsim: mute\nsim-agent: ignore-cancel")
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
    """Neither of them is an error of the program's: it is worth the budget of new runs, and no silence of 90 s."""
    async with cli_gateway(tmp_path, "acp") as client:
        answer = await client.chat(f"sim-agent: {fault}\nsim: say x")
        assert answer.error is not None
        assert (answer.status, answer.error["code"]) == (503, "upstream_unavailable")
        assert fault != "leave" or "before its answer did (exit code 0)" in answer.error["message"]
        assert len(client.stand_in.starts("acp")) == 3
        assert answer.headers["x-caretway-recovered"].count("new run, because cursor-agent ended") == 2
        assert (await client.chat("sim: say on")).text == "on"


async def test_idle_processes_are_let_go(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", cli_idle_timeout=0.05) as client:
        assert (await client.chat("sim: say one")).text == "one"
        while client.stand_in.left():
            await asyncio.sleep(0.01)
        assert (await client.chat("sim: say two")).text == "two"


async def test_silence_ends_a_turn(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp", progress_timeout=2.0, cli_max_processes=1) as client:
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
    async with cli_gateway(tmp_path, "acp", cli_mode="force") as client:
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


async def test_an_acp_that_failed_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same build: a program that was killed while it started says nothing of what it can do."""
    monkeypatch.setattr("caretway.backends.cli.backend.AGAIN_S", 0.0)
    stand_in = StandIn(tmp_path).install(SIM_AGENT_ACP="broken")
    build = stand_in.program.stat()
    async with cli_gateway(tmp_path, "auto") as client:
        assert (await client.chat("sim: say one")).text == "one"
        assert (len(stand_in.starts("acp")), len(stand_in.starts("-p"))) == (1, 1)
        stand_in.install()
        os.utime(stand_in.program, ns=(build.st_atime_ns, build.st_mtime_ns))
        assert (await client.chat("sim: say two")).text == "two"
        assert (await client.chat("sim: say three")).text == "three"
        assert (len(stand_in.starts("acp")), len(stand_in.starts("-p"))) == (2, 1)


async def test_a_model_is_set_by_its_base_and_its_options(tmp_path: Path) -> None:
    """The program offers bases and options to a client that knows them, and takes nothing else."""
    asked = "sim-agent: choices yes\nsim: say ."
    async with cli_gateway(tmp_path, "acp") as client:
        await client.http.get("/v1/models")
        for model, effort, settled in (
            ("sim-composer", None, "effort=medium fast=false"),
            ("sim-composer-high", None, "effort=high fast=false"),
            ("sim-composer-high-fast", None, "effort=high fast=true"),
            ("sim-composer", "low", "effort=low fast=false"),
        ):
            answer = await client.chat(asked, model=model, reasoning_effort=effort)
            assert answer.text == f"sim-composer {settled}.", (model, effort)
        kept = json.loads((tmp_path / "data" / "cursor-agent" / "models.json").read_text())["models"]
        (row,) = [row for row in kept if row["id"] == "sim-composer"]
        assert row["parameters"] == [["effort", ["low", "medium", "high"]], ["fast", ["true", "false"]]], "learnt"
        messages = [{"role": "user", "content": asked}]
        first = await client.chat(messages, model="sim-composer", reasoning_effort="high")
        messages += [first.message, {"role": "user", "content": asked}]
        second = await client.chat(messages, model="sim-composer", reasoning_effort="low")
        assert (second.session, second.text) == ("continued", "sim-composer effort=low fast=false.")
        tooled = await client.chat(asked, model="sim-composer-high", tools=[tool("lookup", "key")])
        assert tooled.text == "sim-composer effort=high fast=false."


async def test_the_program_is_updated_under_a_running_gateway(tmp_path: Path) -> None:
    """What runs goes on with the old one; the next turn, also of the same chat, is the new one's, and what the old one
    could not do is tried again."""
    tools = [tool("lookup", "key")]
    prompt = [{"role": "user", "content": 'sim: call lookup {"key": "a"}\nsim: result'}]
    old = StandIn(tmp_path).install(SIM_AGENT_MCP="old")
    async with cli_gateway(tmp_path, "acp") as client:
        first = await client.chat(prompt, tools=tools)
        assert [call["function"]["name"] for call in first.calls] == ["lookup"]
        running = asyncio.create_task(client.chat("sim-agent: slow 40\nsim: stream 40 4", stream=True))
        while not any("session/prompt" in line for line in prompts_of(old)[1:]):
            await asyncio.sleep(0.01)
        before = {start["pid"] for start in old.starts("acp")}
        kept = {"CURSOR_CONFIG_DIR": str(old.config), "SIM_AGENT_JOURNAL": str(old.root / "journal")}
        fresh = StandIn(tmp_path / "newer").install(**kept)
        os.replace(fresh.program, old.program)  # as its own updater does
        messages = [{"role": "user", "content": "sim: say one"}]
        messages.append((await client.chat(messages)).message)
        assert {start["pid"] for start in old.starts("acp")} > before, "a process of the new build"
        assert len((await running).text) == 160, "the old one was left to its work"
        steps = [await client.chat(prompt, tools=tools)]
        done = [*prompt, steps[0].message, *[result(call, "ONE") for call in steps[0].calls]]
        steps.append(await client.chat(done, tools=tools))
        assert [step.session for step in steps] == ["fresh", "resumed"], "tools are native now"
        messages.append({"role": "user", "content": "sim: recall"})
        again = await client.chat(messages)
        assert again.session == "continued" and again.text.startswith("1 earlier")


def prompts_of(stand_in: StandIn) -> list[str]:
    try:
        return (stand_in.root / "journal.prompts").read_text().splitlines()
    except FileNotFoundError:
        return []
