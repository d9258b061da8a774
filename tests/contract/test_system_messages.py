"""System messages among the user's words, as Claude Code sends them: told where they stand, and part of the transcript.

The first comes as a list of blocks and later as a string, with an environment of some length; each later turn has a
reminder of its own. Four user turns are one conversation, on every backend that keeps conversations, in every API.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from contract.cursor_cli.stand_in import StandIn, cli_gateway
from contract.gateways import gateway
from contract.speakers import SPEAKERS, Heard, Speaker, ask

TURNS: Final = 4
ENVIRONMENT: Final = "The working directory is /home/me. " * 200
INSTRUCTIONS: Final = "Be brief. " * 20
INPUTS: Final = {"chat": "messages", "messages": "messages", "responses": "input"}
BLOCKS: Final = {"chat": "text", "messages": "text", "responses": "input_text"}


@asynccontextmanager
async def backend(name: str, root: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with AsyncExitStack() as stack:
        if name.startswith("cli-"):
            StandIn(root).install()
            cli = await stack.enter_async_context(cli_gateway(root, cli_transport=name.removeprefix("cli-")))
            yield cli.http
        else:
            yield (await stack.enter_async_context(gateway(**_settings(name)))).http


def system(speaker: Speaker, text: str, *, blocks: bool) -> dict[str, Any]:
    return {"role": "system", "content": [{"type": BLOCKS[speaker.name], "text": text}] if blocks else text}


def first(speaker: Speaker, prompt: str) -> dict[str, Any]:
    body = speaker.body(prompt, [], stream=False)
    match speaker.name:
        case "chat":
            body["messages"].insert(0, {"role": "system", "content": INSTRUCTIONS})
        case "messages":
            body["system"] = INSTRUCTIONS
        case _:
            body["instructions"] = INSTRUCTIONS
    return body


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
@pytest.mark.parametrize("name", ["agent", "sdk", "cli-print", "cli-acp"])
async def test_four_turns_are_one_conversation(name: str, speaker: Speaker, tmp_path: Path) -> None:
    sessions: list[str] = []
    uncached: list[int] = []
    async with backend(name, tmp_path) as http:
        body = first(speaker, "The codeword is PELICAN.\nsim: say noted")
        said = body[INPUTS[speaker.name]]
        for turn in range(TURNS):
            words = f"Reminder {turn}.\nsim: say heard {turn}" if turn else ENVIRONMENT
            said.append(system(speaker, words, blocks=True))
            heard = await ask(speaker, http, body)
            assert (heard.status, heard.text) == (200, f"heard {turn}" if turn else "noted"), heard
            sessions.append(heard.headers["x-caretway-session"])
            uncached.append(_uncached(heard))
            said[-1] = system(speaker, words, blocks=False)
            said += [{"role": "assistant", "content": heard.text}, {"role": "user", "content": f"Turn {turn + 1}."}]
    assert sessions == ["fresh", "continued", "continued", "continued"]
    if name in ("agent", "sdk"):
        assert max(uncached[1:]) < 300 < uncached[0]


@pytest.mark.parametrize("name", ["agent", "sdk"])
async def test_steps_of_claude_code_with_a_claude_name_are_one_run(name: str, tmp_path: Path) -> None:
    """After each result it says how many tokens are left. Cursor's own `read`, `grep` and `ls` are its tools."""
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in ("file_path", "pattern", "path")}}
    tools = [{"name": one, "input_schema": schema} for one in ("Read", "Grep", "Glob")]
    execs = ['read {"path": "/a"}', 'grep {"pattern": "b"}', 'read {"path": "/c"}', 'grep {"glob": "*.py"}']
    script = "\n".join([f"sim: exec {one}" for one in execs] + ["sim: say done"])
    headers = {"anthropic-version": "2023-06-01"}
    async with gateway(**_settings(name)) as client:

        async def asked() -> tuple[dict[str, Any], str]:
            body = {"model": "sim-auto", "max_tokens": 100, "messages": talk, "tools": tools}
            answer = await client.http.post("/v1/messages", json=body, headers=headers)
            talk.append({"role": "assistant", "content": answer.json()["content"]})
            return answer.json(), answer.headers["x-caretway-session"]

        talk: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": script}]}]
        sessions = []
        for step in range(len(execs) + 1):
            answer, session = await asked()
            sessions.append(session)
            calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
            assert len(calls) == (step < len(execs))
            for call in calls:
                given = {"tool_use_id": call, "type": "tool_result", "content": "nothing", "is_error": False}
                talk += [{"role": "user", "content": [given]}, _tokens_left(step)]
        talk += [{"role": "user", "content": "sim: say next"}, _tokens_left(9)]
        answer, session = await asked()
        assert [block["text"] for block in answer["content"]] == ["next"]
        assert [*sessions, session] == ["fresh", "resumed", "resumed", "resumed", "resumed", "continued"]
        assert client.stats()["runs_opened"] == 2


def _tokens_left(step: int) -> dict[str, Any]:
    left = f"<system-reminder>\n<total_tokens>{15_000_000 - step} tokens left</total_tokens>\n</system-reminder>"
    return {"role": "system", "content": [{"type": "text", "text": left, "cache_control": {"type": "ephemeral"}}]}


def _settings(backend: str) -> dict[str, Any]:
    return {"backend": backend} | ({"api_key": "test-key", "access_token": None} if backend == "sdk" else {})


def _uncached(heard: Heard) -> int:
    told = heard.told
    if "cache_read_input_tokens" in told:
        return int(told["input_tokens"]) + int(told.get("cache_creation_input_tokens") or 0)
    details = told.get("prompt_tokens_details") or told.get("input_tokens_details") or {}
    return int(told.get("prompt_tokens", told.get("input_tokens", 0))) - int(details.get("cached_tokens", 0))


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
@pytest.mark.parametrize("name", ["agent", "legacy-chat", "cli-print", "cli-acp"])  # on `sdk` they are the user's words
async def test_only_the_leading_ones_are_instructions(name: str, speaker: Speaker, tmp_path: Path) -> None:
    async with backend(name, tmp_path) as http:
        body = first(speaker, "sim: instructions")
        body[INPUTS[speaker.name]].append(system(speaker, "A word in the middle.", blocks=False))
        heard = await ask(speaker, http, body)
    assert "Be brief." in heard.text
    assert "in the middle" not in heard.text
