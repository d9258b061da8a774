"""One setting changed in a settings file: everything else stays, byte for byte; an unusual file is left alone."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.config.editing import NotEditable, file_value, with_setting
from caretway.config.settings import BY_NAME
from caretway.storage.toml_text import written

OWN = """\
# mine
port = 8080  # as always
workspaces = [
  "/a",  # one
  "/b",
]

# below are tables
[model_aliases]
fast = "x"

[advanced]
mcp_start_wait = "1s"
"""

CHANGES = [
    ("replaced", OWN, "port", 1, OWN.replace("port = 8080  # as always", "port = 1")),
    ("many lines", OWN, "workspaces", ["/c"], OWN.replace('[\n  "/a",  # one\n  "/b",\n]', '["/c"]')),
    ("removed", OWN, "port", None, OWN.replace("port = 8080  # as always\n", "")),
    ("added above the tables", OWN, "host", "::1", OWN.replace('  "/b",\n]\n', '  "/b",\n]\nhost = "::1"\n')),
    ("advanced", OWN, "mcp_start_wait", "2s", OWN.replace('"1s"', '"2s"')),
    ("advanced, added", OWN, "stream_buffer_bytes", "4MiB", OWN + 'stream_buffer_bytes = "4MiB"\n'),
    ("the first", "", "port", 1, "port = 1\n"),
    ("the first advanced one", "", "mcp_start_wait", "1s", '[advanced]\nmcp_start_wait = "1s"\n'),
    ("advanced ones also work above", 'mcp_start_wait = "1s"\n', "mcp_start_wait", "2s", 'mcp_start_wait = "2s"\n'),
    ("nothing to remove", OWN, "host", None, OWN),
    ("no last line end", "host = 'x'", "port", 1, "host = 'x'\nport = 1\n"),
    (
        "a header in a string",
        "user = '''\n[advanced]\n'''\n",
        "port",
        1,
        "user = '''\n[advanced]\n'''\nport = 1\n",
    ),
    (
        "an array of tables between",
        "[a.b]\nx = 1\n\n[[c]]\n\n[a.d]\n",
        "port",
        1,
        "port = 1\n\n[a.b]\nx = 1\n\n[[c]]\n\n[a.d]\n",
    ),
    ("only tables", '[model_aliases]\na = "b"\n', "port", 1, 'port = 1\n\n[model_aliases]\na = "b"\n'),
]


@pytest.mark.parametrize(("case", "text", "name", "value", "after"), CHANGES, ids=[row[0] for row in CHANGES])
def test_changes(case: str, text: str, name: str, value: object, after: str) -> None:
    assert with_setting(text, BY_NAME[name], value) == after


ODD = [
    ("a quoted key", '"port" = 1\n', "port", 2),
    ("a table where a value is wanted", '[model_aliases]\na = "b"\n', "model_aliases", {"c": "d"}),
    ("dotted", 'advanced.mcp_start_wait = "1s"\n', "mcp_start_wait", "2s"),
]


@pytest.mark.parametrize(("case", "text", "name", "value"), ODD, ids=[row[0] for row in ODD])
def test_what_is_not_understood_is_left_alone(case: str, text: str, name: str, value: object) -> None:
    with pytest.raises(NotEditable):
        with_setting(text, BY_NAME[name], value)


def test_a_broken_file_is_named() -> None:
    with pytest.raises(ValueError, match="line 1"):
        with_setting("port = = 1", BY_NAME["port"], 1)


TEXTS = st.text()
SIMPLE = st.one_of(TEXTS, st.integers(-(2**60), 2**60), st.booleans())


@given(st.one_of(SIMPLE, st.lists(SIMPLE), st.dictionaries(TEXTS, TEXTS)))
def test_every_value_is_read_back(value: object) -> None:
    text = f"a = {written(value)}"
    assert tomllib.loads(text) == {"a": value}


VALUES = [
    ("port", "8080", 8080),
    ("strict_models", "yes", True),
    ("parked_timeout", " 15m", "15m"),
    ("workspace", "src", "/here/src"),
    ("workspace", "~/src", "~/src"),
    ("workspaces", "/a:b", ["/a", "/here/b"]),
    ("models", "a,b", ["a", "b"]),
    ("model_aliases", "fast=x", {"fast": "x"}),
]


@pytest.mark.parametrize(("name", "typed", "value"), VALUES)
def test_what_is_written_for_what_was_typed(name: str, typed: str, value: object) -> None:
    assert file_value(BY_NAME[name], typed, Path("/here")) == value
