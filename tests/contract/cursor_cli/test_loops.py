"""Tools that cursor-agent runs itself, again and again: it is told where it can be, and its process is ended."""

import asyncio
from pathlib import Path

import pytest

from contract.cursor_cli.stand_in import cli_gateway

SAME = 'sim: exec read {"path": "a"}\n' * 200 + "sim: say done"
WANDER = "\n".join(f'sim: exec read {{"path": "{n % 12}"}}' for n in range(100)) + "\nsim: say done"
SLOWLY = "\nsim-agent: slow-tool 100"
DEAF = "\nsim-agent: ignore-cancel"


async def gone(stand_in_left: object) -> None:
    async with asyncio.timeout(10):
        while stand_in_left():  # type: ignore[operator]  # a bound method
            await asyncio.sleep(0.02)


@pytest.mark.seed("D20", "L03")
@pytest.mark.parametrize(("transport", "deaf"), [("print", ""), ("acp", DEAF)])
async def test_two_hundred_identical_calls_are_stopped_and_the_process_is_gone(
    transport: str, deaf: str, tmp_path: Path
) -> None:
    async with cli_gateway(tmp_path, transport, cli_exit_grace=0.2) as client:
        answer = await client.chat(SAME + deaf)
        assert (answer.status, answer.text) == (502, "")
        assert answer.error is not None and answer.error["code"] == "tool_loop_detected"
        times = "12 times" if transport == "print" else "17 times"
        assert f"`read` {times}" in answer.error["message"], "the last one was not waited for"
        assert ("even after a warning" in answer.error["message"]) == (transport == "acp")
        await gone(client.stand_in.left)


async def test_a_program_that_falls_silent_when_it_is_told_is_not_waited_for(tmp_path: Path) -> None:
    """The limits of silence are minutes here."""
    silent = 'sim: exec read {"path": "a"}\n' * 11 + "sim: mute\nsim-agent: ignore-cancel"
    async with cli_gateway(tmp_path, "acp", cli_exit_grace=0.1) as client:
        async with asyncio.timeout(60):
            answer = await client.chat(silent)
        assert answer.status == 504
        assert answer.error is not None and "was warned that it repeats itself" in answer.error["message"]
        await gone(client.stand_in.left)


async def test_a_model_that_can_be_told_goes_on(tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "acp") as client:
        answer = await client.chat(SAME + SLOWLY)
        assert (answer.status, answer.error) == (200, None)
        assert "this exact call has now been made 11 times" in answer.text, "the stand-in repeats what it is told"
        assert len(client.stand_in.starts("acp")) == 1


@pytest.mark.parametrize(("rule", "status", "text"), [("warn", 200, "done"), ("stop", 502, "")])
async def test_a_hundred_looks_at_twelve_files(rule: str, status: int, text: str, tmp_path: Path) -> None:
    async with cli_gateway(tmp_path, "print", no_progress=rule, cli_tool_events="reasoning") as client:
        answer = await client.chat(WANDER, stream=True)
        assert answer.text == text
        assert "the last 40 steps only looked and brought nothing new" in answer.reasoning
        if rule == "stop":
            assert answer.error is not None and answer.error["code"] == "no_progress"
            await gone(client.stand_in.left)


async def test_a_tool_whose_result_changes_is_not_stopped(tmp_path: Path) -> None:
    """Thirty different reads, twice: nothing repeats often enough."""
    script = "\n".join(f'sim: exec read {{"path": "{n % 30}"}}' for n in range(60)) + "\nsim: say done"
    async with cli_gateway(tmp_path, "print") as client:
        assert (await client.chat(script)).text == "done"
