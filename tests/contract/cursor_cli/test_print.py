"""Print mode through the whole gateway: one process per turn, live, exact, bounded, and gone afterwards."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from caretway.backends.cli.backend import CliSetup, CursorCliBackend
from caretway.backends.cli.program import CliLimits
from caretway.config import cursor_agent_files
from caretway.core.events import Event, TextDelta, TurnEnded, TurnFailed
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.core.turn import Turn
from contract.cursor_cli.stand_in import CliClient, StandIn, cli_gateway
from contract.gateways import CHAT, tool
from programs import write_program
from receiving import receive

DATA = Path(__file__).parents[2] / "data"
SAY = 'sim: say Let me look.\nsim: exec read {"path":"a"}\nsim: say ha ha ha ``` ``` **\nsim: say Ende: é 漢 \U0001f600'
SAID = "Let me look.ha ha ha ``` ``` **\nEnde: é 漢 \U0001f600"


async def gone(stand_in: StandIn) -> None:
    """Wait until no process of the stand-in is left; the test's own time limit is the limit."""
    while stand_in.left():
        await asyncio.sleep(0.01)


@pytest.mark.seed("D01", "D02", "D03")
async def test_arguments_prompt_and_place(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        answer = await client.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}])
        assert "It received 1 message" in answer.text
        (start,) = client.stand_in.starts("-p")
        scratch = str(tmp_path / "data" / "cursor-agent" / "scratch" / "read-only")
        assert start["argv"] == [
            *("-p", "--output-format", "stream-json", "--stream-partial-output", "--trust"),
            *("--mode", "ask", "--workspace", scratch, "--model", "sim-auto"),
        ]
        assert start["cwd"] == scratch
        assert answer.usage is not None
        assert answer.usage["prompt_tokens"] > 0


FORMS = [
    "standard",
    "no-end",
    "whole-at-end",
    "call-id-at-end",
    "repeated-at-end",
    "no-timestamps",
    "flush-only",
    "flat",
]


@pytest.mark.seed("D07", "D08")
async def test_text_is_exact_in_every_form(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        faults = "sim-agent: crlf\nsim-agent: split-utf8\nsim-agent: notice Update!"
        for form in FORMS:
            prompt = f"{SAY}\nsim-agent: form {form}\n{faults}"
            streamed, whole = await asyncio.gather(client.chat(prompt, stream=True), client.chat(prompt))
            assert streamed.text == whole.text == SAID, form
            assert streamed.done and streamed.finish == whole.finish == "stop"


@pytest.mark.seed("D07", "D08", "D09", "D10", "D11")
@pytest.mark.parametrize("last", ["newline", "nothing"])
async def test_the_documents_sample_gives_its_text(tmp_path: Path, last: str, stream: bool) -> None:
    sample = (DATA / "cursor_agent" / "document-sample.ndjson").read_bytes()
    said = sample if last == "newline" else sample.rstrip(b"\n")
    failing(tmp_path, f"sys.stdin.read(); sys.stdout.buffer.write({said!r})")
    async with cli_gateway(tmp_path) as client:
        answer = await client.chat("hello", stream=stream)
        assert (answer.status, answer.text, answer.reasoning) == (200, "HelloHere", "Let me think...")
        assert (answer.finish, answer.error, answer.done) == ("stop", None, True)


async def test_a_reply_that_ends_with_a_tool(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        for form in FORMS:
            prompt = f"sim: say again\nsim: exec read {{}}\nsim-agent: form {form}"
            assert (await client.chat(prompt)).text == "again", form


async def test_the_first_byte_is_there_before_the_child_is_done(tmp_path: Path) -> None:
    """The child says one word and then waits for ever: only live streaming can show that word."""
    async with cli_gateway(tmp_path, disconnect_grace=0) as client:
        body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "sim: say first\nsim: mute"}]}
        async with client.http.stream("POST", CHAT, json=body) as response:
            async for line in response.aiter_lines():
                if '"content":"first"' in line:
                    break
            (start,) = client.stand_in.starts("-p")
            assert client.stand_in.left() == [start["pid"]], "it still runs"
        await gone(client.stand_in)  # and the hang-up ends it


async def test_thinking_and_its_own_tools(tmp_path: Path) -> None:
    prompt = 'sim: think Hm hm\nsim: exec read {"path":"a.txt"}\nsim: exec shell {"command":"rm x"}\nsim: result'
    async with cli_gateway(tmp_path) as client:
        answer = await client.chat(prompt, stream=True)
        assert answer.reasoning == "Hm hm"
        assert answer.text == "rejected: not allowed in ask mode"
        assert answer.calls == ()
    async with cli_gateway(tmp_path, cli_tool_events="reasoning") as client:
        answer = await client.chat(prompt)
        assert "cursor-agent ran read a.txt" in answer.reasoning and "bash rm x" in answer.reasoning
    async with cli_gateway(tmp_path, cli_tool_events="tool_calls") as client:
        for stream in (True, False):
            answer = await client.chat(prompt, stream=stream)
            assert [call["function"]["name"] for call in answer.calls] == ["read", "bash"]
            assert json.loads(answer.calls[1]["function"]["arguments"])["command"] == "rm x"
            assert answer.finish == "stop", "nobody is asked to run them again"
            tooled = await client.chat(prompt, stream=stream, tools=[tool("bash", "command")])
            assert tooled.calls == (), "a client that has tools would run them"


async def test_agent_mode_asks_or_is_forced(tmp_path: Path) -> None:
    prompt = 'sim: exec shell {"command":"make"}\nsim: result'
    async with cli_gateway(tmp_path, cli_mode="agent") as client:
        assert (await client.chat(prompt)).text == "rejected: rejected by the user"
        (start,) = client.stand_in.starts("-p")
        assert "--mode" not in start["argv"] and "--force" not in start["argv"]
        assert Path(start["cwd"]).parent == tmp_path / "data" / "cursor-agent" / "scratch"
    async with cli_gateway(tmp_path, cli_mode="force") as client:
        assert (await client.chat(prompt)).text == "simulated shell of make"
    async with cli_gateway(tmp_path, cli_mode="plan") as client:
        assert (await client.chat(prompt)).text == "rejected: not allowed in plan mode"


async def test_questions_are_declined(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        assert (await client.chat("sim: query ask_question\nsim: result")).text == "rejected: no answer"


async def test_client_tools_travel_as_text(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": 'sim: call look {"what":"a"} & look {"what":"b"}\nsim: result'}
        ]
        for stream in (True, False):
            asked = await client.chat(messages, stream=stream, tools=[tool("look", "what")])
            assert asked.finish == "tool_calls"
            assert [json.loads(call["function"]["arguments"]) for call in asked.calls] == [{"what": "a"}, {"what": "b"}]
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": f"seen {n}"}
                for n, call in enumerate(asked.calls)
            ]
            told = await client.chat([*messages, asked.message, *results], stream=stream, tools=[tool("look", "what")])
            assert (told.text, told.finish) == ("seen 0\nseen 1", "stop")
            assert told.session == "replayed"


async def test_a_loop_is_stopped_and_leaves_no_process(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        messages: list[dict[str, Any]] = [{"role": "user", "content": 'sim: loop look {"what":"a"}'}]
        answer = await client.chat(messages, tools=[tool("look", "what")])
        rounds = 0
        while answer.error is None and rounds < 10:
            rounds += 1
            result = {"role": "tool", "tool_call_id": answer.calls[0]["id"], "content": "same"}
            messages += [answer.message, result]
            answer = await client.chat(messages, tools=[tool("look", "what")])
        assert answer.error is not None
        assert answer.error["code"] == "tool_loop_detected"
        await gone(client.stand_in)


# ---------------------------------------------------------------------------------------------- sessions


async def talk(client: CliClient, messages: list[dict[str, Any]], text: str, **more: Any) -> Any:
    messages.append({"role": "user", "content": text})
    answer = await client.chat(messages, **more)
    messages.append(answer.message)
    return answer


async def test_a_known_transcript_resumes_the_chat(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    async with cli_gateway(tmp_path) as client:
        first = await talk(client, messages, "sim: say one")
        assert first.session == "fresh"
        second = await talk(client, messages, "sim: recall")
        assert second.session == "continued"
        assert second.text.startswith("1 earlier user turn and 0 tool results.")
        assert second.usage["prompt_tokens_details"]["cached_tokens"] > 0
        chat_id = next((client.stand_in.config / "chats").iterdir()).name
        assert client.stand_in.starts("--resume")[0]["argv"][-2:] == ["--resume", chat_id]
    async with cli_gateway(tmp_path) as client:  # the gateway was started anew
        third = await talk(client, messages, "sim: recall")
        assert third.session == "continued"
        assert third.text.startswith("2 earlier")
        edited = [messages[0], {"role": "user", "content": "sim: say other"}, *messages[2:]]
        other = await talk(client, edited, "sim: recall")
        assert other.session == "replayed"
        assert other.text.startswith("3 earlier")
        assert len(client.stand_in.starts("--resume")) == 2


async def test_a_chat_that_is_gone_is_replayed(tmp_path: Path) -> None:
    """An id that it does not know makes it start another chat without a word: the echoed id tells."""
    messages: list[dict[str, Any]] = []
    async with cli_gateway(tmp_path) as client:
        await talk(client, messages, "sim: say one")
        for chat in (client.stand_in.config / "chats").iterdir():
            (chat / "chat.json").unlink()
        again = await talk(client, messages, "sim: recall")
        assert again.session == "replayed"
        assert again.text.startswith("1 earlier user turn")
        assert len(client.stand_in.starts("-p")) == 3
        named = await talk(client, messages, "sim: recall\nsim-agent: error chat_gone")
        assert named.error is not None, "said of a fresh chat, it is an error"


# ---------------------------------------------------------------------------------------------- faults

FAULTS = [
    ("sim: fail unauthenticated", 401, "not_authenticated", "cursor-agent login"),
    ("sim-agent: error not_logged_in", 401, "not_authenticated", "cursor-agent login"),
    ("sim: fail usage_limit", 402, "insufficient_quota", "2031-12-24"),
    ("sim-agent: error quota_and_auth", 402, "insufficient_quota", "usage limit"),
    ("sim: fail rate_limit", 429, "rate_limited", ""),
    ("sim-agent: error exhausted", 403, "refused_without_reason", "capacity"),
    ("sim: fail overflow", 400, "context_length_exceeded", ""),
    ("sim: fail bad_model", 400, "model_not_found", "Available: auto, sim-auto"),
    ("sim: fail unavailable", 503, "upstream_unavailable", "ECONNREFUSED"),
    ("sim-agent: error connect_unavailable", 503, "upstream_unavailable", ""),
    ("sim-agent: error fetch", 503, "upstream_unavailable", "fetch failed"),
    ("sim: fail internal", 502, "upstream_error", "says the author"),
    ("sim: fail deprecated", 502, "upstream_deprecated", "cursor-agent update"),
    ("sim: drop 9", 503, "upstream_unavailable", "signal 9"),
    ("sim-agent: leave", 503, "upstream_unavailable", "before its answer did (exit code 0)"),
    ("sim-agent: stderr Error: auth required", 401, "not_authenticated", "cursor-agent login"),
    ("sim-agent: stderr OAuth session missing", 401, "not_authenticated", "cursor-agent login"),
    ("sim-agent: stderr It broke.", 500, "server_error", "It broke."),
    ("sim-agent: error-result Not logged in", 401, "not_authenticated", ""),
]


@pytest.mark.seed("D04")
async def test_failures_before_the_first_word(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        for line, status, code, words in FAULTS:
            silent = f"{line}\nsim: wait 0"
            for answer in await asyncio.gather(client.chat(silent, stream=True), client.chat(silent)):
                assert (answer.status, answer.error and answer.error["code"]) == (status, code), line
                assert words in str(answer.error)
                if "usage_limit" in line:
                    assert "retry-after" not in answer.headers, "a client would wait for weeks"


async def test_failures_after_the_first_word(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        for line in ("sim-agent: die-mid-line", "sim: drop 9", "sim: fail internal"):
            prompt = f"sim: say one two\n{line}" if "drop" in line or "fail" in line else f"{line}\nsim: say one two"
            answer = await client.chat(prompt, stream=True)
            assert answer.status == 200
            assert answer.text.startswith("one")
            assert answer.error is not None, line
            assert answer.done, "the stream ends properly"
            whole = await client.chat(prompt)
            assert whole.status >= 500


async def test_a_good_end_without_a_result_line_keeps_the_answer(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        for stream in (True, False):
            answer = await client.chat("sim: say one two\nsim-agent: no-result", stream=stream)
            assert (answer.status, answer.text, answer.finish) == (200, "one two", "stop")


async def test_words_of_the_model_are_no_errors(tmp_path: Path) -> None:
    words = "Not logged in, usage limit, rate limit 429, Cannot use this model, ECONNREFUSED, Authentication required"
    async with cli_gateway(tmp_path) as client:
        assert (await client.chat(f"sim: say {words}")).text == words


async def test_long_lines(tmp_path: Path) -> None:
    prompt = 'sim: exec read {"path":"a"}\nsim: say fine\nsim-agent: long-line 300000'
    async with cli_gateway(tmp_path) as client:
        assert (await client.chat(prompt)).text == "fine"
        long = await client.chat("sim: stream 1 300000")
        assert len(long.text) == 300_000
    async with cli_gateway(tmp_path, cli_max_line_bytes=100_000) as client:
        assert (await client.chat(prompt)).text == "fine", "what a tool gave may be dropped"
        answer = await client.chat("sim: stream 1 300000")
        assert answer.error is not None
        assert "cursor-agent wrote a line" in answer.error["message"]


@pytest.mark.parametrize("transport", ["print", "acp"])
async def test_a_small_buffer_holds_the_program_back_and_loses_nothing(tmp_path: Path, transport: str) -> None:
    async with cli_gateway(tmp_path, transport, stream_buffer_bytes=1024) as client:
        answer = await client.chat("sim: stream 3000 100", stream=True)
        assert len(answer.text) == 300_000
        assert [answer.text[n * 100 :].split(" ", 1)[0] for n in (0, 1, 2999)] == ["0", "1", "2999"]


async def test_an_answer_is_whole_though_its_process_ended_long_before_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program has left in its pipe waits for the reader, and not for `DRAIN_S` alone."""
    monkeypatch.setattr("caretway.processes.child.DRAIN_S", 0.05)
    stand_in = StandIn(tmp_path).install()
    limits = CliLimits(buffer_bytes=1024)
    setup = CliSetup(str(stand_in.program), os.environ, tmp_path / "data", "test", transport="print", limits=limits)
    backend = CursorCliBackend(setup)
    prompt = Message(Role.USER, (Text("sim: stream 100 100"),))
    turn = await backend.start(TurnRequest(model="sim-auto", messages=(prompt,)))
    events = list(await receive(turn))
    await gone(stand_in)
    await asyncio.sleep(0.2)
    events += await whole(turn)
    await turn.aclose()
    await backend.aclose()
    assert isinstance(events[-1], TurnEnded)
    assert sum(len(event.text) for event in events if isinstance(event, TextDelta)) == 10_000


@pytest.mark.parametrize("fault", ["never-exit", "ignore-term", "grandchild"])
async def test_a_process_that_stays_is_killed_with_its_group(tmp_path: Path, fault: str) -> None:
    async with cli_gateway(tmp_path, cli_exit_grace=0.05) as client:
        answer = await client.chat(f"sim: say done\nsim-agent: {fault}")
        assert answer.text == "done"
        await gone(client.stand_in)


@pytest.mark.parametrize("state", ["not begun", "queued", "being started", "running", "ended"])
async def test_a_close_without_waiting_gives_the_only_slot_back(tmp_path: Path, state: str) -> None:
    stand_in = StandIn(tmp_path).install()
    limits = CliLimits(processes=1)
    setup = CliSetup(str(stand_in.program), os.environ, tmp_path / "data", "test", transport="print", limits=limits)
    backend = CursorCliBackend(setup)

    async def start(script: str) -> Turn:
        return await backend.start(TurnRequest(model="sim-auto", messages=(Message(Role.USER, (Text(script),)),)))

    closed = [await start("sim: say word" if state == "ended" else "sim: say word\nsim: mute")]
    match state:
        case "queued":
            await receive(closed[0])
            closed.insert(0, await start("sim: say word"))
        case "being started":
            while not backend.children.live:
                await asyncio.sleep(0)
        case "running":
            await receive(closed[0])
        case "ended":
            await whole(closed[0])
        case _:
            pass
    for turn in closed:
        turn.close()
        turn.close()
    following = await start("sim: say next")
    assert TextDelta("next") in await whole(following)
    for turn in (*closed, following):
        await turn.aclose()
    await gone(stand_in)
    await backend.aclose()


async def whole(turn: Turn) -> list[Event]:
    events: list[Event] = []
    while not events or not isinstance(events[-1], TurnEnded | TurnFailed):
        events += await receive(turn)
    return events


async def test_silence_ends_a_turn(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, progress_timeout=2.0) as client:  # the program's start is silent, too
        answer = await client.chat("sim: mute")
        assert (answer.status, answer.error and answer.error["code"]) == (504, "upstream_timeout")
        await gone(client.stand_in)
        slow = await client.chat('sim: exec read {"path":"a"}\nsim: say late\nsim-agent: slow-tool 2500')
        assert slow.text == "late", "while it runs a tool of its own it may be silent for longer"


async def test_lines_that_say_nothing_are_no_sign_of_life(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, progress_timeout=2.0) as client:
        answer = await client.chat("sim: say hi\nsim-agent: flood loading model")
        assert (answer.status, answer.error and answer.error["code"]) == (504, "upstream_timeout")
        assert answer.error is not None and "nothing that can be read" in answer.error["message"]
        await gone(client.stand_in)


async def test_stopping_the_gateway_stops_its_processes(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, shutdown_grace=0.1) as client:
        hanging = asyncio.gather(client.chat("sim: hang"), client.chat("sim: mute\nsim-agent: ignore-term"))
        while len(client.stand_in.left()) < 2:
            await asyncio.sleep(0.01)
        hanging.cancel()
    assert client.stand_in.left() == []


# ---------------------------------------------------------------------------------------------- bounds, places, people


async def test_no_more_processes_than_allowed_and_a_bounded_queue(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, cli_max_processes=1, cli_queue=1) as client:
        prompts = ["sim: say a\nsim: wait 300", "sim: say b", "sim: say c"]
        answers = await asyncio.gather(*(client.chat(prompt) for prompt in prompts))
        assert sorted(answer.text for answer in answers if answer.error is None) in (["a", "b"], ["a", "c"], ["b", "c"])
        (refused,) = (answer for answer in answers if answer.error is not None)
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1


async def test_a_client_that_leaves_the_queue_is_forgotten(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, cli_max_processes=1, cli_queue=1, disconnect_grace=0) as client:
        first = asyncio.ensure_future(client.chat("sim: say a\nsim: wait 600"))
        while not client.stand_in.starts("-p"):
            await asyncio.sleep(0.01)
        with pytest.raises(httpx.ReadTimeout):
            await client.http.post(
                CHAT, json={"model": "auto", "messages": [{"role": "user", "content": "x"}]}, timeout=0.2
            )
        while (third := await client.chat("sim: say c")).status == 429:  # until the gateway has noticed
            pass
        assert third.text == "c"
        assert (await first).text == "a"
        assert len(client.stand_in.starts("-p")) == 2


@pytest.mark.seed("D12")
async def test_workspaces(tmp_path: Path) -> None:
    for name in ("main", "side", "side/inner", "secret"):
        (tmp_path / name).mkdir()
    settings: dict[str, Any] = {"workspace": tmp_path / "main", "workspaces": (tmp_path / "side",)}
    async with cli_gateway(tmp_path, **settings) as client:
        await client.chat("sim: say x")
        await client.chat("sim: say x", headers={"x-caretway-workspace": str(tmp_path / "side" / "inner")})
        refused = await client.chat("sim: say x", headers={"x-caretway-workspace": str(tmp_path / "secret")})
        assert refused.status == 403
        assert [start["cwd"] for start in client.stand_in.starts("-p")] == [
            str(tmp_path / "main"),
            str(tmp_path / "side" / "inner"),
        ]
    async with cli_gateway(tmp_path, workspace=Path("/")) as client:
        assert (await client.chat("sim: say x")).status == 400


@pytest.mark.seed("A05", "B03", "C05")
async def test_signed_out_is_a_401_before_any_turn(tmp_path: Path) -> None:
    StandIn(tmp_path).install().sign_out()
    async with cli_gateway(tmp_path) as client:
        assert (await client.http.get("/health")).json()["auth"] == "not_authenticated"
        answer = await client.chat("sim: say x")
        assert (answer.status, answer.error and answer.error["code"]) == (401, "not_authenticated")
        assert answer.error is not None and "cursor-agent login" in answer.error["message"]
        assert client.stand_in.starts("-p") == []
        assert next(row["id"] for row in (await client.http.get("/v1/models")).json()["data"]) == "auto"


@pytest.mark.seed("D18")
async def test_files_of_a_sign_in_do_not_mean_that_somebody_is_signed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for path in cursor_agent_files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"accessToken": "token", "authInfo": {"email": "a@example.com"}}')
    StandIn(tmp_path).install().sign_out()
    async with cli_gateway(tmp_path) as client:
        assert (await client.http.get("/health")).json()["auth"] == "not_authenticated"
        assert (await client.chat("sim: say x")).status == 401
        assert client.stand_in.starts("-p") == []


async def test_the_status_is_asked_once_and_forgotten_on_an_auth_error(tmp_path: Path) -> None:
    StandIn(tmp_path).install(SIM_AGENT_STATUS="text")
    async with cli_gateway(tmp_path) as client:
        for _ in range(3):
            await client.chat("sim: say x")
        assert len(client.stand_in.starts("status")) == 2  # the JSON form is not known to this build
        await client.chat("sim: fail unauthenticated")
        await client.chat("sim: say x")
        assert len(client.stand_in.starts("status")) == 4


@pytest.mark.seed("B03", "D13", "M09")
async def test_a_slow_status_does_not_block_the_answer(tmp_path: Path) -> None:
    StandIn(tmp_path).install(SIM_AGENT_STATUS_S="30")
    async with cli_gateway(tmp_path, auth_check_timeout=300) as client:
        assert (await client.chat("sim: say x")).text == "x"
        assert (await client.http.get("/health")).json()["auth"] == "unknown"


@pytest.mark.seed("B06", "B07", "C02", "C13")
async def test_models(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path) as client:
        rows = (await client.http.get("/v1/models")).json()["data"]
        assert {"auto", "sim-auto", "sim-fast", "sim-think", "gpt-4o", "gpt-4", "gpt-3.5-turbo"} <= {
            row["id"] for row in rows
        }
        assert all(row["object"] == "model" and row["owned_by"] == "cursor" and row["created"] for row in rows)
        alias = await client.chat("sim: say x", model="gpt-4o")
        assert (alias.text, alias.headers["x-caretway-model"]) == ("x", "auto")
        assert client.stand_in.starts("-p")[-1]["argv"][-1] == "auto"
        thinking = await client.chat("sim: say x", model="gpt-4o-thinking")
        assert (thinking.text, thinking.headers["x-caretway-model"]) == ("x", "auto-thinking")
        assert (await client.chat("sim: say x", model="some-new-model")).text == "x"
        assert client.stand_in.starts("-p")[-1]["argv"][-1] == "some-new-model"
        unknown = await client.chat("sim: say x", model="no-such-model")
        assert (unknown.status, unknown.error and unknown.error["code"]) == (400, "model_not_found")
    client.stand_in.sign_out()
    async with cli_gateway(tmp_path, strict_models=True) as client:  # the kept list serves, also when signed out
        assert "sim-think" in (await client.http.get("/v1/models")).text
        refused = await client.chat("sim: say x", model="sim-thin")
        assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found")
        assert refused.error is not None and "sim-think" in refused.error["message"], (
            "the model is judged before the login"
        )


@pytest.mark.seed("H05", "I01", "N07")
async def test_a_base_model_of_the_settings_is_offered_with_its_thinking_variant(tmp_path: Path) -> None:
    both = ["claude-sonnet-4.6", "claude-sonnet-4.6-thinking"]
    async with cli_gateway(tmp_path, models=("claude-sonnet-4.6",), models_only=True) as client:
        assert [row["id"] for row in (await client.http.get("/v1/models")).json()["data"]] == both
        for name in both:
            assert (await client.chat("sim: say x", model=name)).text == "x", name
            assert client.stand_in.starts("-p")[-1]["argv"][-1] == both[0]
        for name in ("sim-think", f"{both[1]}-thinking"):
            refused = await client.chat("sim: say x", model=name)
            assert (refused.status, refused.error and refused.error["code"]) == (400, "model_not_found"), name


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    StandIn(tmp_path).install()
    async with cli_gateway(tmp_path, agent_bin=str(tmp_path / "nowhere")) as client:
        answer = await client.chat("sim: say x")
        assert answer.status in (502, 503)
        assert answer.error is not None and answer.error["code"] == "cli_not_found"
        assert "cursor.com/install" in answer.error["message"]
        assert (await client.http.get("/v1/models")).status_code == 200


async def test_a_program_that_is_named_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the directory in which the gateway was started, whatever directory the program then works in."""
    stand_in = StandIn(tmp_path)
    stand_in.install()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(stand_in.program.parent)
    async with cli_gateway(tmp_path, agent_bin=f"./{stand_in.program.name}") as client:
        monkeypatch.chdir(elsewhere)
        answer = await client.chat("sim: say found")
        assert (answer.status, answer.text) == (200, "found"), answer.error


async def test_images_become_files_for_the_time_of_the_turn(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    scratch = tmp_path / "data" / "cursor-agent" / "scratch" / "read-only"
    async with cli_gateway(tmp_path) as client:
        text = {"type": "text", "text": "sim: say seen\nsim: wait 200"}
        asked = asyncio.ensure_future(client.chat([{"role": "user", "content": [text, image]}]))
        while not list(scratch.glob("images-*/1.png")):
            await asyncio.sleep(0.01)
        assert (await asked).text == "seen"
        while list(scratch.iterdir()):
            await asyncio.sleep(0.01)
    async with cli_gateway(tmp_path, workspace=tmp_path) as client:
        answer = await client.chat([{"role": "user", "content": [{"type": "text", "text": "look"}, image]}])
        assert answer.status == 400
        assert answer.error is not None and "cli-transport acp" in answer.error["message"]


@pytest.mark.seed("A05")
async def test_secrets_of_ours_are_not_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARETWAY_SECRET_OF_OURS", "x")
    stand_in = StandIn(tmp_path)
    stand_in.install()
    program = stand_in.program.read_text()
    stand_in.program.write_text(
        program.replace(
            "import os, sys\n", f"import os, sys\nopen({str(tmp_path / 'env')!r}, 'w').write(str(dict(os.environ)))\n"
        )
    )
    async with cli_gateway(tmp_path) as client:
        await client.chat("sim: say x")
    seen = (tmp_path / "env").read_text()
    assert "PATH" in seen and "CARETWAY_" not in seen
    assert os.environ["CARETWAY_SECRET_OF_OURS"] == "x"


FAILING = """\
import sys
if "status" in sys.argv:
    print("Logged in as someone@example.com")
elif "models" in sys.argv or "--list-models" in sys.argv:
    print("Available models\\n\\nauto - Auto")
elif "--version" in sys.argv or "acp" in sys.argv:
    print("2026.01.01")
else:
    {act}
"""


def failing(root: Path, act: str) -> Path:
    """A program in the place of cursor-agent that is signed in and does this when it is asked."""
    program = StandIn(root).program
    write_program(program, FAILING.format(act=act))
    return program


async def test_what_the_program_says_is_shown_without_secrets(tmp_path: Path) -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"
    said = f"something odd: Bearer {token} with plainsecret-4711 in /home/me"
    failing(tmp_path, f"sys.stderr.write({said!r}); sys.exit(3)")
    async with cli_gateway(tmp_path, api_key="plainsecret-4711") as client:
        for stream in (False, True):
            answer = await client.chat("hello", stream=stream)
            assert answer.error is not None
            message = answer.error["message"]
            assert "something odd" in message
            assert token not in message
            assert "plainsecret-4711" not in message


async def test_a_line_without_an_end_is_called_what_it_is(tmp_path: Path) -> None:
    """It used to be reported as silence, when the time for that was over."""
    failing(tmp_path, "import time; sys.stdout.write('x' * 300_000); sys.stdout.flush(); time.sleep(60)")
    async with cli_gateway(tmp_path, cli_max_line_bytes=100_000, progress_timeout=30) as client:
        answer = await client.chat("hello")
        assert answer.error is not None
        assert "a line of more than 100000 bytes" in answer.error["message"]
        assert "cursor-agent wrote a line" in answer.error["message"]
