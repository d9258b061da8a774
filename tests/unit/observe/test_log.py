"""The line at the end of each response and for each refusal: what it says, how it looks, and that it comes once."""

import json
import logging
import socket

import pytest

from caretway.cli.log_lines import JsonFormatter, LineFormatter, NotGivenUp, NotTwice
from caretway.cli.terminal import Style
from caretway.core.caller import Caller
from caretway.core.events import RunUsage, Usage
from caretway.core.records import RefusedRequest, TurnRecord
from caretway.observe.log import AnswerNote, LogObserver, RefusalNote, short
from caretway.observe.redact import Redactor

CALLER = Caller("", "opencode")


def turn(**more: object) -> TurnRecord:
    known: dict[str, object] = {"caller": CALLER, "asked": "m", "first_event_ms": 840.0} | more
    outcome = str(known.pop("outcome", "end"))
    return TurnRecord("req", "openai_chat", "agent", "m", "continued", "known history", True, outcome, **known)  # type: ignore[arg-type]


REFUSED = RefusedRequest(
    "req", "POST", "/openai/v1", 404, "not_found", "", "There is nothing there.", 0.0, Caller("", "curl"), hint="Do so."
)

ANSWERS = [
    (turn(), "opencode  m  continued (known history)  0.8s  done"),
    (
        turn(asked="gpt-5", variant="m@fast=true"),
        "opencode  gpt-5 -> m@fast=true  continued (known history)  0.8s  done",
    ),
    (turn(usage=Usage(12_100, 9, 12_000)), "opencode  m  continued (known history)  100 + 12k cached > 9  0.8s  done"),
    (turn(usage=Usage(12_100, 9, estimated=True)), "opencode  m  continued (known history)  ~12k > ~9  0.8s  done"),
    (turn(calls=2, outcome="paused"), "opencode  m  continued (known history)  0.8s  2 calls"),
    (turn(outcome="hung up", first_event_ms=None), "opencode  m  continued (known history)  hung up"),
    (turn(caller=Caller()), "openai_chat  m  continued (known history)  0.8s  done"),
    (
        turn(outcome="quota", error="quota", message="Cursor:\nspent\x1b[2J."),
        "opencode  m  continued (known history)  0.8s  failed: quota: Cursor: spent [2J.",
    ),
    (turn(outcome="timeout"), "opencode  m  continued (known history)  0.8s  failed: timeout"),
    (
        turn(recoveries=(("resume", "cut"),)),
        "opencode  m  continued (known history)  0.8s  after resume: cut  done",
    ),
    (turn(asked="a\nb" * 100), f"opencode  {('a?b' * 100)[:200]} -> m  continued (known history)  0.8s  done"),
]


@pytest.mark.parametrize(("record", "line"), ANSWERS)
def test_a_response_is_one_line(record: TurnRecord, line: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "caretway.turns"):
        LogObserver().response_ended(record)
    assert caplog.messages == [line]
    assert (caplog.records[0].levelno == logging.WARNING) == ("failed" in line)


def test_a_refusal_is_a_warning_with_its_remedy(caplog: pytest.LogCaptureFixture) -> None:
    LogObserver().request_refused(REFUSED)
    assert caplog.messages == ["curl  refused: 404 POST /openai/v1  There is nothing there. Do so."]
    assert caplog.records[0].levelno == logging.WARNING


def log_record(message: object, level: int = logging.INFO, at: float = 0.0) -> logging.LogRecord:
    made = logging.LogRecord("caretway.turns", level, "", 0, message, None, None)
    made.created, made.msecs = at, 0.0
    return made


def lines(message: object, width: int, level: int = logging.INFO) -> list[str]:
    text = LineFormatter(Redactor(["hush-hush"]), Style(), width).format(log_record(message, level))
    return [line[9:] for line in text.split("\n")]


def test_a_narrow_terminal_gets_less_and_folds_what_went_wrong() -> None:
    note = AnswerNote(turn(asked="gpt-5", variant="m@fast=true", usage=Usage(12_100, 9, 12_000)))
    assert lines(note, 140) == [str(note)]
    assert lines(note, 76) == ["opencode  gpt-5 -> m  continued  100 + 12k cached > 9  0.8s  done"]
    assert lines(RefusalNote(REFUSED), 80) == [
        "curl  refused: 404 POST /openai/v1  There is nothing there.",
        "Do so.",
    ]
    failed = AnswerNote(turn(outcome="quota", error="quota", message="word " * 20))
    assert max(map(len, lines(failed, 60))) <= 51 and len(lines(failed, 60)) > 2


def test_in_a_file_there_is_the_date_and_no_colour() -> None:
    text = LineFormatter(Redactor(), Style()).format(log_record(RefusalNote(REFUSED)))
    assert text[:10].count("-") == 2 and "\x1b" not in text and "\n" not in text and text.endswith("Do so.")


def test_other_lines_have_their_level_and_no_secret() -> None:
    assert lines("it said hush-hush", 80, logging.WARNING) == ["warning turns: it said [secret]"]
    assert lines("all is well", 80) == ["all is well"]


def test_json_has_all_facts() -> None:
    form = JsonFormatter(Redactor(["hush-hush"]))
    usage = Usage(5, 9, run=RunUsage(40, 20, 30, 4, steps=3))
    told = json.loads(form.format(log_record(AnswerNote(turn(usage=usage)))))
    assert told["time"] == "1970-01-01T00:00:00.000Z" and told["event"] == "answer"
    assert (told["client"], told["session"], told["outcome"], told["first_ms"]) == (
        "opencode",
        "continued",
        "end",
        840.0,
    )
    assert told["run"]["steps"] == 3 and told["run"]["input_tokens"] == 40
    refused = json.loads(form.format(log_record(RefusalNote(REFUSED), logging.WARNING)))
    assert (refused["event"], refused["status"], refused["hint"]) == ("refused", 404, "Do so.")
    other = json.loads(form.format(log_record('a "line" with hush-hush')))
    assert other["message"] == 'a "line" with [secret]'


def test_the_same_warning_is_written_once_a_minute_and_counted() -> None:
    once = NotTwice(60.0)
    seen = [once.filter(log_record(RefusalNote(REFUSED), logging.WARNING, at)) for at in (0, 1, 59, 60)]
    assert seen == [True, False, False, True]
    again = log_record("x", logging.WARNING, 0)
    assert once.filter(again) and not hasattr(again, "repeated")
    later = log_record(RefusalNote(REFUSED), logging.WARNING, 130)
    for at in (61, 62):
        assert not once.filter(log_record(RefusalNote(REFUSED), logging.WARNING, at))
    assert once.filter(later)
    assert LineFormatter(Redactor(), Style()).format(later).endswith("(2 more like it before)")
    assert all(once.filter(log_record(AnswerNote(turn()))) for _ in range(3)), "answers are each their own"
    for number in range(1000):
        once.filter(log_record(f"{number}", logging.WARNING, 200))
    assert len(once._seen) <= 64


@pytest.mark.parametrize(
    ("name", "failure", "written"),
    [
        ("asyncio", socket.gaierror(-2, "Name or service not known"), False),
        ("asyncio", OSError("something else"), True),
        ("caretway", socket.gaierror(-2, "Name or service not known"), True),
    ],
)
def test_a_lookup_that_was_given_up_is_no_news(name: str, failure: OSError, written: bool) -> None:
    line = "Future exception was never retrieved\nfuture: <Future>"
    record = logging.LogRecord(name, logging.ERROR, "", 0, line, (), (type(failure), failure, None))
    assert NotGivenUp().filter(record) is written


@pytest.mark.parametrize(
    ("count", "text"), [(None, "?"), (0, "0"), (999, "999"), (1234, "1.2k"), (12_345, "12k"), (3_400_000, "3.4M")]
)
def test_short_counts(count: int | None, text: str) -> None:
    assert short(count) == text
