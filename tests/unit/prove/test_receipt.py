"""A receipt: what may stand in it, written and read; and files that are none."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cli.prove import CURSORS_OWN, how_to_send
from caretway.prove.facts import CaseVerdict, NoFact, checked, code_of
from caretway.prove.receipt import (
    LAST_RECEIPT,
    MAX_BYTES,
    VERSION,
    BadReceipt,
    Receipt,
    newest_receipt,
    read_facts,
    write,
)

FACTS: dict[str, Any] = {
    "text": "right",
    "gaps_ms": (1, 2),
    "long_ids": True,
    "flat_models": 181,
    "text_code": "not_found",
}


def test_facts_come_back_as_they_were() -> None:
    text = write(Receipt({"backend": "agent"}, FACTS, {"text": CaseVerdict("holds", "a marker comes back")}, 3, 4))
    assert read_facts(text.encode()) == FACTS
    document = json.loads(text)
    assert document["about"] == {"backend": "agent"}
    assert document["cases"][0]["case"] == "text"
    assert document["runs"] == 3


@pytest.mark.parametrize(
    "value", ["Bearer x\n", "user@example.org", "a" * 81, "/home/somebody?x", '"quoted"', "é" * 3 + "\0"]
)
def test_what_is_no_version_does_not_get_in(value: str) -> None:
    assert json.loads(write(Receipt({"client version": value}, {}, {})))["about"] == {"client version": "other"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", "a prompt"),
        ("text", True),
        ("text_code", "Bearer eyJhbGciOi.J9"),
        ("text_code", "a" * 61),
        ("text_code", "two\nlines"),
        ("long_ids", 1),
        ("long_ids", "yes"),
        ("flat_models", True),
        ("flat_models", -2),
        ("flat_models", 10**10),
        ("flat_models", 1.5),
        ("gaps_ms", [1] * 65),
        ("gaps_ms", ["secret"]),
        ("gaps_ms", [True]),
        ("nothing", 1),
        ("api_key", "crsr_x"),
    ],
)
def test_what_is_no_fact_does_not_get_in(name: str, value: object) -> None:
    with pytest.raises(NoFact):
        checked(name, value)
    assert read_facts(json.dumps({"receipt": VERSION, "facts": {name: value, "text": "right"}}).encode()) in (
        {"text": "right"},
        {},
    )


def test_codes() -> None:
    assert code_of("RESOURCE_EXHAUSTED") == "resource_exhausted"
    assert code_of("something <else>") == ""


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a receipt"),
        (b'{"facts": {}}', "not a receipt"),
        (b'{"receipt": 2, "facts": {}}', "another version"),
        (b'{"receipt": 1}', "no facts"),
        (b'{"receipt": 1, "facts": []}', "no facts"),
        (b" " * (MAX_BYTES + 1), "more than"),
    ],
)
def test_files_that_are_no_receipt(data: bytes, says: str) -> None:
    with pytest.raises(BadReceipt, match=says):
        read_facts(data)


@given(
    st.dictionaries(
        st.text(max_size=12) | st.sampled_from(sorted(FACTS)),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), st.lists, max_leaves=4
        ),
        max_size=6,
    )
)
def test_any_facts_are_read_or_left_out(facts: dict[str, Any]) -> None:
    for name, value in read_facts(json.dumps({"receipt": VERSION, "facts": facts}).encode()).items():
        assert checked(name, value) == value


def test_the_last_lines_say_where_to_send_it() -> None:
    """Only what Cursor itself answered; the form is one of this repository."""
    *_, link = how_to_send(CURSORS_OWN)
    form = link.strip().partition("template=")[2]
    assert (Path(__file__).parents[3] / ".github" / "ISSUE_TEMPLATE" / form).is_file()
    assert not any("http" in line for line in how_to_send("another address"))


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 5000, b"\xff", b'{"about": 1}', None])
def test_a_newest_receipt_that_is_none(content: bytes | None, tmp_path: Path) -> None:
    if content is None:
        os.mkfifo(tmp_path / LAST_RECEIPT)  # a pipe would be waited for
    else:
        (tmp_path / LAST_RECEIPT).write_bytes(content)
    assert newest_receipt(tmp_path) is None
