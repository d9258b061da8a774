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
            extra: dict[str, Any] = {"api_key": "test-key", "access_token": None} if name == "sdk" else {}
            yield (await stack.enter_async_context(gateway(backend=name, **extra))).http


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
