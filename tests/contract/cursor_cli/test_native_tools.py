"""A client's tools as cursor-agent's own, through the whole gateway: one prompt for a whole loop, on an MCP server that
the program must have been allowed to use; text where it was not."""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from contract.cursor_cli.stand_in import CliClient, StandIn, cli_gateway
from contract.gateways import Answer, result, tool

TOOLS = [tool("lookup", "key"), tool("note", "text")]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def loop(client: CliClient, messages: list[dict[str, Any]], stream: bool = True) -> list[Answer]:
    """Play the client's side of a tool loop; `messages` grows."""
    answers = []
    for _ in range(30):
        answer = await client.chat(messages, tools=TOOLS, stream=stream)
        assert answer.status == 200, answer.error
        answers.append(answer)
        messages.append(answer.message)
        if not answer.calls:
            return answers
        messages += [result(call, f"R<{call['function']['arguments']}>") for call in answer.calls]
    raise AssertionError("the loop has no end")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_ten_steps_are_one_prompt(tmp_path: Path, home: Path, stream: bool) -> None:
    lines = [part for n in range(10) for part in (f'sim: call lookup {{"key": "k{n}"}}', "sim: result")]
    theirs = home / ".cursor" / "projects" / "mine" / "mcp-approvals.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('["other-0123456789abcdef"]')
    (home / ".cursor" / "cli-config.json").write_text('{"permissions": {"allow": []}}')
    before = everything_below(home)
    async with cli_gateway(tmp_path, "acp") as client:
        answers = await loop(client, [user("\n".join(lines))], stream)
        assert len(answers) == 11
        assert [answer.session for answer in answers] == ["fresh", *["resumed"] * 10]
        assert "k9" in answers[-1].text
        assert all(answer.finish == "tool_calls" for answer in answers[:-1])
        assert len(client.stand_in.starts("acp")) == 1
        assert client.stand_in.prompts() == 1, "one prompt, not ten"
    assert everything_below(home) == before
    assert [path.name for path in (home / ".cursor" / "projects").iterdir()] == ["mine"]
    assert not list((tmp_path / "data" / "cursor-agent" / "scratch").glob("with-tools-*"))


async def test_parallel_calls_and_words_before_them(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        messages = [user('sim: say Looking.\nsim: call lookup {"key": "a"} & note {"text": "b"}\nsim: result')]
        first = await client.chat(messages, tools=TOOLS, stream=True)
        assert first.text == "Looking."
        assert [call["function"]["name"] for call in first.calls] == ["lookup", "note"], "as they were announced"
        assert first.usage is not None and first.usage["estimated"]
        results = [result(call, f"ANSWER-{call['function']['name']}") for call in first.calls]
        second = await client.chat([*messages, first.message, *reversed(results)], tools=TOOLS, stream=True)
        assert second.text.split() == ["ANSWER-lookup", "ANSWER-note"]
        assert client.stand_in.prompts() == 1


@pytest.mark.seed("F14")
@pytest.mark.parametrize("native", [True, False], ids=["native", "text"])
async def test_no_other_call_than_the_named_one_reaches_the_client(tmp_path: Path, native: bool) -> None:
    named = {"type": "function", "function": {"name": "lookup"}}
    more = {} if native else {"agent_quirks": {"cli_tools": "text"}}
    async with cli_gateway(tmp_path, "acp", **more) as client:
        others = "\n".join(['sim: call note {"text": "b"}'] * 6)
        messages = [user(f"sim: say Words.\n{others}")]
        answer = await client.chat(messages, tools=TOOLS, tool_choice=named)
        assert (answer.status, answer.calls, answer.finish) == (200, (), "stop")
        assert answer.text.startswith("Words.") and "<invoke" not in answer.text
        assert "demands a call of the tool `lookup`" in answer.headers["x-caretway-tool-choice"]
        assert client.gateway.tenants.parked == 0
        messages += [answer.message, user("sim: say next")]
        assert (await client.chat(messages, tools=TOOLS)).text == "next"
        messages = [user('sim: call note {"text": "b"} & lookup {"key": "a"}\nsim: say done')]
        answer = await client.chat(messages, tools=TOOLS, tool_choice=named)
        assert [call["function"]["name"] for call in answer.calls] == ["lookup"]
        messages += [answer.message, result(answer.calls[0], "FOUND")]
        answer = await client.chat(messages, tools=TOOLS)
        assert (answer.status, answer.session) == (200, "resumed" if native else "replayed")


async def test_one_call_at_a_time_when_asked(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        messages = [user('sim: call lookup {"key": "a"} & note {"text": "b"}\nsim: result')]
        names = []
        for _ in range(2):
            answer = await client.chat(messages, tools=TOOLS, parallel_tool_calls=False)
            (call,) = answer.calls
            names.append(call["function"]["name"])
            messages += [answer.message, result(call, call["function"]["name"])]
        assert names == ["lookup", "note"]
        assert (await client.chat(messages, tools=TOOLS)).text.split() == ["lookup", "note"]
        assert client.stand_in.prompts() == 1


async def test_a_conversation_goes_on_with_its_tools(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        messages = [user('sim: call lookup {"key": "a"}\nsim: result')]
        await loop(client, messages)
        messages.append(user("sim: recall"))
        (answer,) = await loop(client, messages)
        assert answer.session == "continued"
        assert "1 earlier user turn" in answer.text
        messages.append(user('sim: call note {"text": "x"}\nsim: result'))
        answers = await loop(client, messages)
        assert [answer.session for answer in answers] == ["continued", "resumed"]


async def test_many_conversations_wait_at_once(tmp_path: Path) -> None:
    """A turn that waits for its client takes no place of those that work."""
    async with cli_gateway(tmp_path, "acp", cli_max_processes=2) as client:
        prompts = [[user(f'sim: call lookup {{"key": "k{n}"}}\nsim: result')] for n in range(5)]
        firsts = [await client.chat(messages, tools=TOOLS) for messages in prompts]
        for messages, first in zip(prompts, firsts, strict=True):
            messages += [first.message, *[result(call, call["function"]["arguments"]) for call in first.calls]]
        seconds = await asyncio.gather(*(client.chat(messages, tools=TOOLS) for messages in prompts))
        for n, answer in enumerate(seconds):
            assert f"k{n}" in answer.text
            assert answer.session == "resumed"
        while len(client.stand_in.left()) > 2:  # more than may work are not kept warm
            await asyncio.sleep(0.02)


async def test_a_program_killed_while_it_waits_is_replayed(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        messages = [user('sim: call lookup {"key": "a"}\nsim: result\nsim: call note {"text": "b"}\nsim: result')]
        first = await client.chat(messages, tools=TOOLS)
        (start,) = client.stand_in.starts("acp")
        os.killpg(start["pid"], signal.SIGKILL)
        messages += [first.message, *[result(call, "ONE") for call in first.calls]]
        answers = await loop(client, messages)
        assert answers[0].session == "replayed"
        assert [len(answer.calls) for answer in answers] == [1, 0], "no call is made twice"
        assert answers[0].text == "ONE"


async def test_a_program_killed_with_the_results_in_its_hands_is_replayed(tmp_path: Path) -> None:
    """It has said nothing of them yet: the history has them, and the client sees each call once."""
    async with cli_gateway(tmp_path, "acp") as client:
        calls = 'sim: call lookup {"key": "a"} & note {"text": "b"}\nsim: drop 1\nsim: result'
        messages = [user(f'{calls}\nsim: call note {{"text": "c"}}\nsim: result')]
        answers = await loop(client, messages)
        assert [answer.session for answer in answers] == ["fresh", "replayed", "resumed"]
        made = [call["function"]["arguments"] for answer in answers for call in answer.calls]
        assert made == ['{"key":"a"}', '{"text":"b"}', '{"text":"c"}'], "no call is made twice"
        assert answers[1].text.split() == ['R<{"key":"a"}>', 'R<{"text":"b"}>']
        assert len(client.stand_in.starts("acp")) == 3, "the first, one for the history, and one more that was lost"


@pytest.mark.parametrize("parked", [False, True], ids=["at work", "parked"])
async def test_a_program_that_listens_to_nobody_is_killed(tmp_path: Path, parked: bool) -> None:
    """Neither to a cancel nor to SIGTERM nor to the end of its input; with and without a call that waits."""
    stand_in = StandIn(tmp_path).install(SIM_AGENT_DEAF="yes")
    times = {"parked_timeout": 0.2, "disconnect_grace": 0, "cli_exit_grace": 0.1}
    async with cli_gateway(tmp_path, "acp", **times) as client:
        if parked:
            answer = await client.chat('sim: call lookup {"key": "a"}\nsim-agent: ignore-cancel', tools=TOOLS)
            assert len(answer.calls) == 1
        else:
            await client.abandon("sim: say word\nsim: mute\nsim-agent: ignore-cancel", tools=TOOLS)
        while stand_in.left():
            await asyncio.sleep(0.02)
        assert (await client.chat("sim: say on")).text == "on"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"SIM_AGENT_MCP": "ignored"}, "it does not look at our MCP server"),
        ({"SIM_AGENT_MCP": "rejected"}, "it rejects calls of our MCP server"),
        ({"SIM_AGENT_MCP": "old"}, "this build takes no MCP servers over HTTP"),
    ],
)
async def test_a_program_that_does_not_take_them_gets_text(
    tmp_path: Path, environment: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    StandIn(tmp_path).install(**environment)
    async with cli_gateway(tmp_path, "acp") as client:
        for _ in range(2):
            answers = await loop(client, [user('sim: call lookup {"key": "a"}\nsim: result')])
            assert [len(answer.calls) for answer in answers] == [1, 0]
            assert answers[-1].text == 'R<{"key":"a"}>'
    told = [record.message for record in caplog.records if "tools as text" in record.message]
    assert told == [f"cursor-agent gets clients' tools as text: {reason}"]


@pytest.mark.parametrize(("does", "sessions"), [("ignored", ["fresh", "resumed"]), ("old", ["fresh", "replayed"])])
async def test_a_refusal_is_forgotten_unless_the_program_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, sessions: list[str]
) -> None:
    """The same build: a program that was late says nothing of what it can do; one that says what it takes does."""
    monkeypatch.setattr("caretway.backends.cli.acp_tool_turn.LOOKED_AT_S", 0.1)
    stand_in = StandIn(tmp_path).install(SIM_AGENT_MCP=does)
    build = stand_in.program.stat()
    prompt = 'sim: call lookup {"key": "a"}\nsim: result'
    async with cli_gateway(tmp_path, "acp", cli_idle_timeout=0.01) as client:
        assert [answer.session for answer in await loop(client, [user(prompt)])] == ["fresh", "replayed"]
        stand_in.install()
        os.utime(stand_in.program, ns=(build.st_atime_ns, build.st_mtime_ns))
        while stand_in.left():
            await asyncio.sleep(0.01)
        assert [answer.session for answer in await loop(client, [user(prompt)])] == ["fresh", "replayed"], "not yet"
        monkeypatch.setattr("caretway.backends.cli.native_tools.AGAIN_S", 0.0)
        assert [answer.session for answer in await loop(client, [user(prompt)])] == sessions


async def test_text_where_a_workspace_is_named_or_the_settings_say_so(tmp_path: Path, home: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for settings in ({"workspace": project}, {"agent_quirks": {"cli_tools": "text"}}):
        async with cli_gateway(tmp_path, "acp", **settings) as client:
            answers = await loop(client, [user('sim: call lookup {"key": "a"}\nsim: result')])
            assert [answer.session for answer in answers] == ["fresh", "replayed"]
    assert list(project.iterdir()) == []
    assert not (home / ".cursor").exists()


async def test_what_a_killed_gateway_left_is_cleared_away(tmp_path: Path, home: Path) -> None:
    left = tmp_path / "data" / "cursor-agent" / "scratch" / "with-tools-999999999"
    left.mkdir(parents=True)
    slug = str(left.resolve()).strip("/").translate(str.maketrans("/_.", "---"))
    while "--" in slug:
        slug = slug.replace("--", "-")
    stale = home / ".cursor" / "projects" / slug / "mcp-approvals.json"
    stale.parent.mkdir(parents=True)
    stale.write_text('["caretway-0123456789abcdef"]')
    async with cli_gateway(tmp_path, "acp") as client:
        await loop(client, [user('sim: call lookup {"key": "a"}\nsim: result')])
    assert not left.exists() and not stale.parent.exists()


@pytest.mark.parametrize("tools", [TOOLS, []], ids=["tools", "none"])
async def test_a_directory_that_was_cleared_away_is_made_again(tmp_path: Path, tools: list[Any]) -> None:
    """With the rule that allows calls in it. A program that stands in the old one is of no use."""
    async with cli_gateway(tmp_path, "acp", progress_timeout=10.0) as client:
        messages = [user('sim: call lookup {"key": "a"}\nsim: result' if tools else "sim: say well")]
        assert (await client.chat(messages, tools=tools)).status == 200
        shutil.rmtree(tmp_path / "data" / "cursor-agent" / "scratch")
        first = await client.chat(messages, tools=tools)
        assert (first.status, len(first.calls)) == (200, bool(tools)), first.error
        messages += [first.message, *[result(call, "ONE") for call in first.calls]]
        if tools:
            second = await client.chat(messages, tools=tools)
            assert (second.session, second.text) == ("resumed", "ONE")


async def test_its_own_shell_is_off_and_the_model_takes_the_clients(tmp_path: Path) -> None:
    """Cursor's built-in shell is denied where the client has tools, and a rule of the project says what to use."""
    prompt = 'sim: exec shell {"command": "cat notes"}\nsim: say FINAL\nsim: result'
    async with cli_gateway(tmp_path, "acp") as client:
        messages, tools = [user(prompt)], [*TOOLS, tool("bash", "command")]
        first = await client.chat(messages, tools=tools, stream=True)
        (call,) = first.calls
        assert call["function"] == {"name": "bash", "arguments": '{"command":"cat notes"}'}
        messages += [first.message, result(call, "the notes")]
        assert (await client.chat(messages, tools=tools)).text.split() == ["FINAL", "the", "notes"]
        assert client.stand_in.prompts() == 1
        without = await client.chat([user(prompt)], tools=TOOLS)
        assert "denies it" in without.text, "there is nothing that it could take instead"
    async with cli_gateway(tmp_path, "acp", cli_mode="force") as client:
        allowed = await client.chat([user(prompt)], tools=[tool("bash", "command")])
        assert "simulated shell of cat notes" in allowed.text and not allowed.calls
