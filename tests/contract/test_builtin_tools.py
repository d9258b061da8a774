"""Cursor's own tools: redirected to the client's, run here inside a workspace, or refused with what exists."""

import json
from pathlib import Path

import pytest

from caretway_sim.manners import Manners
from contract.gateways import Client, gateway, result, tool

pytestmark = pytest.mark.both_profiles
BASH = tool("bash", "command")
PROMPT = 'sim: exec shell {"command": "cat nonce.txt"}\nsim: say FINAL\nsim: result'


@pytest.mark.parametrize("kind", ["shell", "shell_stream"])
async def test_the_models_shell_is_run_by_the_client(client: Client, stream: bool, kind: str) -> None:
    messages = [{"role": "user", "content": PROMPT.replace("exec shell ", f"exec {kind} ")}]
    first = await client.chat(messages, stream=stream, tools=[BASH])
    (call,) = first.calls
    assert call["function"]["name"] == "bash"
    assert json.loads(call["function"]["arguments"]) == {"command": "cat nonce.txt"}
    second = await client.chat([*messages, first.message, result(call, "NONCE-1")], stream=stream, tools=[BASH])
    assert second.text.split() == ["FINAL", "NONCE-1"]
    assert second.session == "resumed"
    assert client.stats()["runs_opened"] == 1


@pytest.mark.seed("F13")
async def test_a_builtin_without_equivalent_is_refused_by_name(client: Client) -> None:
    answer = await client.chat('sim: exec read {"path": "/etc/hosts"}\nsim: result', tools=[tool("weather", "city")])
    assert not answer.calls
    assert "weather" in answer.text


@pytest.mark.parametrize("kind", ["shell", "shell_stream"])
@pytest.mark.parametrize("role", ["user", "system"])
async def test_words_beside_a_shell_s_result_stand_behind_its_output(client: Client, kind: str, role: str) -> None:
    """Claude Code sends a system message beside each result."""
    messages = [{"role": "user", "content": PROMPT.replace("exec shell ", f"exec {kind} ")}]
    first = await client.chat(messages, tools=[BASH])
    output = result(first.calls[0], '{"output": "NONCE-2", "metadata": {"exit_code": 0}}')
    more = {"role": role, "content": "please hurry"}
    second = await client.chat([*messages, first.message, output, more], tools=[BASH])
    assert (second.session, client.stats()["runs_opened"]) == ("resumed", 1)
    assert second.text.split()[:2] == ["FINAL", "NONCE-2"]
    assert "please hurry" in second.text and "metadata" not in second.text


READ = tool("Read", "file_path")


async def test_the_system_s_words_beside_a_typed_result_wait_for_one_with_text(client: Client) -> None:
    """What Cursor's `read` answers is a file's content, and its edits are made of it: nothing else may stand in it."""
    script = (
        'sim: exec read {"path": "a"}\nsim: result\nsim: exec read {"path": "b"}\nsim: result\n'
        'sim: exec shell {"command": "ls"}\nsim: result'
    )
    talk = [{"role": "user", "content": script}]
    texts = []
    for count in range(4):
        answer = await client.chat(talk, tools=[READ, BASH])
        assert answer.session == ("resumed" if count else "fresh")
        texts.append(answer.text)
        talk.append(answer.message)
        if answer.calls:
            talk += [result(answer.calls[0], f"CONTENT-{count}"), {"role": "system", "content": f"Reminder {count}."}]
    assert texts[:3] == ["", "CONTENT-0", "CONTENT-1"]
    assert [texts[3].count(f"Reminder {count}.") for count in range(3)] == [1, 1, 1]
    assert texts[3].startswith("CONTENT-2") and texts[3].index("Reminder 0.") < texts[3].index("Reminder 2.")
    assert client.stats()["runs_opened"] == 1


async def test_the_system_s_words_that_no_result_took_reach_the_next_turn(client: Client) -> None:
    client.simulator.prepared.watched = True
    talk = [{"role": "user", "content": 'sim: exec read {"path": "a"}\nsim: say done'}]
    first = await client.chat(talk, tools=[READ])
    talk += [first.message, result(first.calls[0], "CONTENT"), {"role": "system", "content": "Mind the budget."}]
    second = await client.chat(talk, tools=[READ])
    talk += [second.message, {"role": "user", "content": "sim: recall"}]
    third = await client.chat(talk, tools=[READ])
    assert (second.session, third.session, client.stats()["runs_opened"]) == ("resumed", "continued", 2)
    prompt = client.simulator.prepared.requests[-1].prompt
    assert prompt.startswith("<system_message>\nMind the budget.\n</system_message>")
    assert prompt.endswith("sim: recall")
    talk += [third.message, {"role": "user", "content": "sim: recall"}]
    assert (await client.chat(talk, tools=[READ])).session == "continued"
    assert "budget" not in client.simulator.prepared.requests[-1].prompt, "once"


async def test_the_user_s_words_beside_words_that_wait_are_replayed_with_them(client: Client) -> None:
    client.simulator.prepared.watched = True
    talk = [{"role": "user", "content": 'sim: exec read {"path": "a"}\nsim: exec read {"path": "b"}\nsim: result'}]
    for more in ({"role": "system", "content": "Mind the budget."}, {"role": "user", "content": "please hurry"}):
        answer = await client.chat(talk, tools=[READ])
        talk += [answer.message, result(answer.calls[0], "CONTENT"), more]
    assert (await client.chat(talk, tools=[READ])).session == "replayed"
    told = "".join(message.text for message in client.simulator.prepared.requests[-1].messages)
    assert told.count("Mind the budget.") == told.count("please hurry") == 1


async def test_words_beside_a_typed_result_are_replayed_not_lost(client: Client) -> None:
    cat = tool("read", "path")
    messages = [{"role": "user", "content": PROMPT.replace('shell {"command": "cat', 'read {"path": "')}]
    first = await client.chat(messages, tools=[cat])
    more = {"role": "user", "content": "please hurry"}
    second = await client.chat([*messages, first.message, result(first.calls[0], "NONCE-2"), more], tools=[cat])
    assert second.session == "replayed"
    assert "NONCE-2" in second.text or "hurry" in second.text


async def test_local_tools_read_inside_the_workspace(transport: str, tmp_path: Path, manners: Manners) -> None:
    (tmp_path / "poem.txt").write_text("roses are red\n")
    async with gateway(transport, manners=manners, workspace=tmp_path) as client:
        answer = await client.chat('sim: exec read {"path": "poem.txt"}\nsim: result')
        assert "roses are red" in answer.text
        answer = await client.chat('sim: exec grep {"pattern": "roses"}\nsim: result')
        assert "poem.txt" in answer.text
        for path in ("../secret", "/etc/passwd"):
            answer = await client.chat(f'sim: exec read {{"path": "{path}"}}\nsim: result')
            assert "root:" not in answer.text
            assert answer.finish == "stop"
        answer = await client.chat('sim: exec shell {"command": "echo pwned > pwned"}\nsim: result')
        assert "rejected" in answer.text
        assert not (tmp_path / "pwned").exists()


@pytest.mark.seed("E10")
async def test_local_tools_all_and_off(transport: str, tmp_path: Path, manners: Manners) -> None:
    (tmp_path / "poem.txt").write_text("roses")
    async with gateway(transport, manners=manners, workspace=tmp_path, local_tools="all") as client:
        answer = await client.chat('sim: exec shell {"command": "echo $((40+2))"}\nsim: result')
        assert "42" in answer.text
    async with gateway(transport, manners=manners, workspace=tmp_path, local_tools="off") as client:
        answer = await client.chat('sim: exec read {"path": "poem.txt"}\nsim: result')
        assert "roses" not in answer.text


@pytest.mark.seed("M08")
async def test_a_request_names_its_workspace_within_the_allow_list(
    transport: str, tmp_path: Path, manners: Manners
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "name.txt").write_text(folder.name)
    prompt = 'sim: exec read {"path": "name.txt"}\nsim: result'
    async with gateway(transport, manners=manners, workspaces=(inside,)) as client:
        answer = await client.chat(prompt, headers={"x-caretway-workspace": str(inside)})
        assert "inside" in answer.text
        answer = await client.chat(prompt, headers={"x-caretway-workspace": str(outside)})
        assert answer.status == 403


@pytest.mark.parametrize("failure", ["sim: drop 9", "sim: fail unavailable"])
async def test_after_a_command_ran_here_nobody_is_told_to_ask_again(
    tmp_path: Path, failure: str, manners: Manners
) -> None:
    """An SDK that obeys would run the command once more."""
    async with gateway(manners=manners, local_tools="all", workspace=tmp_path) as client:
        answer = await client.chat(f'sim: exec shell {{"command": "echo ran >> log"}}\n{failure}')
        assert answer.error is not None
        assert (answer.status, answer.headers["x-should-retry"]) == (503, "false")
        assert "retry-after" not in answer.headers
        assert "already run" in answer.error["message"]
    assert (tmp_path / "log").read_text() == "ran\n"
