"""What counts as newer, what an index may say, and when it is asked again. Pure; the sockets are in
tests/contract/test_update_notice.py."""

import json
from pathlib import Path

import pytest

from caretway.update_notice import DAY_S, FILE, UpdateNote, due, newer, read_note, told_version

VERSIONS = [
    ("0.2.0", "0.2.0", False),
    ("0.2.1", "0.2.0", True),
    ("0.10", "0.9.9", True),
    ("0.2", "0.2.0", False),
    ("1", "0.99.99", True),
    ("0.1.9", "0.2.0", False),
    ("0.3.0rc1", "0.2.0", False),
    ("0.3.0.dev1", "0.2.0", False),
    ("9.9.9; rm -rf ~", "0.2.0", False),
    ("\x1b[2J9.9", "0.2.0", False),
    ("٣.٠", "0.2.0", False),
    ("", "0.2.0", False),
    ("0.3.0", "0.3.0.dev1+local", False),
]


@pytest.mark.parametrize(("newest", "ours", "expected"), VERSIONS)
def test_newer(newest: str, ours: str, expected: bool) -> None:
    assert newer(newest, ours) is expected


ANSWERS = [
    (b'{"info": {"version": "0.3.0"}, "releases": {}}', "0.3.0"),
    (b'{"info": {"version": "0.3.0b1"}}', ""),
    (b'{"info": {"version": 3}}', ""),
    (b'{"info": []}', ""),
    (b'{"info": null}', ""),
    (b"[]", ""),
    (b"<html>", ""),
    (b"\xff\xfe", ""),
    (b"[" * 100_000, ""),
    (b"", ""),
]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
def test_what_an_index_may_say(answer: bytes, expected: str) -> None:
    assert told_version(answer) == expected


@pytest.mark.parametrize(
    ("since", "expected"), [(0.0, False), (DAY_S - 1, False), (DAY_S, True), (-1.0, True), (1e9, True)]
)
def test_once_a_day_also_when_the_clock_was_set_back(since: float, expected: bool) -> None:
    assert due(UpdateNote(1e9, "0.3.0"), 1e9 + since) is expected


@pytest.mark.parametrize("text", ["", "{", "[]", '{"asked": "x", "newest": "1"}', '{"asked": 1}', "null"])
def test_a_note_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    assert read_note(tmp_path) == UpdateNote()


def test_a_note_is_read_as_carefully_as_an_answer(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"asked": 5, "newest": "1.0\x1b[2J"}))
    assert read_note(tmp_path) == UpdateNote(5.0, "")
