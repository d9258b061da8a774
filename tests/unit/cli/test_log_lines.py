"""When lines of the log are written: those of answers together, any other at once, none out of order."""

import asyncio
import io
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from caretway.cli.log_file import log_file
from caretway.cli.log_lines import MOST_TOGETHER, TOGETHER_S, LineFormatter, LineHandler
from caretway.cli.terminal import Style
from caretway.config import ConfigError
from caretway.core.events import Usage
from caretway.core.records import TurnRecord
from caretway.observe.log import AnswerNote
from caretway.observe.redact import Redactor

SECRET = "correct horse battery"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


def answer(number: int) -> logging.LogRecord:
    record = TurnRecord(
        request_id="r",
        dialect="chat",
        backend="agent",
        model=f"m{number}",
        session="fresh",
        reason="",
        stream=False,
        outcome="end",
        calls=0,
        first_event_ms=None,
        total_ms=1.0,
        usage=None,
    )
    return logging.LogRecord("caretway.turns", logging.INFO, "", 0, AnswerNote(record), (), None)


def other(level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("caretway", level, "", 0, "something else", (), None)


@pytest.fixture
def handler() -> LineHandler:
    return LineHandler(io.StringIO())


def written(handler: LineHandler) -> list[str]:
    assert isinstance(handler.stream, io.StringIO)
    words = (line.split() for line in handler.stream.getvalue().splitlines())
    return [line[1] if line[0] == "chat" else line[0] for line in words]


async def test_answers_are_written_together(handler: LineHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *timer: timers.append(timer))
    handler.handle(answer(1))
    handler.handle(answer(2))
    assert written(handler) == []
    assert [wait for wait, _ in timers] == [TOGETHER_S], "one look for all of them"
    timers[0][1]()
    assert written(handler) == ["m1", "m2"]
    handler.handle(answer(3))
    assert len(timers) == 2, "the next ones have a look of their own"


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
async def test_another_line_comes_at_once_and_after_them(handler: LineHandler, level: int) -> None:
    handler.handle(answer(1))
    handler.handle(other(level))
    assert written(handler) == ["m1", "something"]


async def test_not_too_many_wait(handler: LineHandler) -> None:
    for number in range(MOST_TOGETHER + 1):
        handler.handle(answer(number))
    assert len(written(handler)) == MOST_TOGETHER


def test_without_an_event_loop_nothing_waits(handler: LineHandler) -> None:
    handler.handle(answer(1))
    assert written(handler) == ["m1"]


async def test_the_end_of_the_program_writes_what_waits(handler: LineHandler) -> None:
    handler.handle(answer(1))
    handler.flush()  # as logging does at exit
    assert written(handler) == ["m1"]


async def test_a_stream_that_is_closed_fails_no_answer(
    handler: LineHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    handler.stream.close()
    handler.handle(other())
    assert "ValueError" in capsys.readouterr().err


async def test_a_line_that_cannot_be_made_costs_only_itself(
    handler: LineHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = logging.LogRecord("caretway", logging.INFO, "", 0, "%d", ("no number",), None)
    for record in (answer(1), odd, answer(2)):
        handler.handle(record)
    handler.flush()
    assert written(handler) == ["m1", "m2"]
    assert "no number" in capsys.readouterr().err


def test_no_line_is_wider_than_the_terminal() -> None:
    """Names of clients and models may be long, and so may the words of other log lines."""
    look = LineFormatter(Redactor(()), Style(), 80)
    record = answer(1)
    note = TurnRecord(
        request_id="r",
        dialect="chat",
        backend="agent",
        model="claude-opus-5-thinking-extra-high-with-a-name",
        session="replayed",
        reason="the tools changed",
        stream=False,
        outcome="failed",
        usage=Usage(input_tokens=120_000, cache_read_tokens=90_000, cache_write_tokens=20_000, output_tokens=1_200),
        asked="anthropic/claude-opus-5-latest-alias-of-a-client",
        error="upstream_down",
        message="Cursor closed the connection before the answer was whole, and nothing was left to try",
        first_event_ms=12.0,
    )
    record.msg = AnswerNote(note)
    lines = look.format(record).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) >= 3
    assert "10k + 20k written + 90k cached > 1.2k" in " ".join(lines)
    warning = logging.LogRecord("caretway.gateway", logging.WARNING, "", 0, "a word " * 40, (), None)
    lines = look.format(warning).splitlines()
    assert max(map(len, lines)) <= 80 and lines[1].startswith(" " * 9)
    assert "\n" not in LineFormatter(Redactor(()), Style()).format(warning)


def test_a_pipe_in_place_of_the_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(ConfigError, match="cannot write"):
        log_file(tmp_path / "log")


def test_a_traceback_carries_no_header(caplog: pytest.LogCaptureFixture) -> None:
    formatter = LineFormatter(Redactor([SECRET]), Style())
    try:
        raise ValueError({"authorization": f"Bearer {JWT}", "x-api-key": SECRET})
    except ValueError:
        logging.getLogger("test").exception("failed with %s", SECRET)
    shown = formatter.format(caplog.records[-1])
    assert "Traceback" in shown
    assert SECRET not in shown
    assert JWT not in shown
