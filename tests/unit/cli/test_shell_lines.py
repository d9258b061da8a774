"""Folded for a terminal, and still the same words for a shell."""

import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cli.shell_lines import between_values, command, comment, export

WIDTHS = st.integers(20, 100)
JSON = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.text(st.characters(exclude_categories=["C"]), min_size=1), min_size=1), WIDTHS)
def test_a_shell_reads_the_words_that_were_given(words: list[str], width: int) -> None:
    lines = command([shlex.quote(word) for word in words], width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == words  # shlex does not know how lines go on


@pytest.mark.parametrize("width", [0, 20, 60])
def test_a_real_shell_reads_them_too(width: int) -> None:
    value = {"provider": {"caretway": {"name": 'it\'s, {a} "name"', "models": {f"m{n}": {} for n in range(40)}}}}
    text = json.dumps(value)
    lines = [*comment("a gateway " * 12, width), *export("SETTINGS", text, width)]
    lines += command(["printf", "'%s|'", '"$SETTINGS"', "-c", "'x y'"], width)
    done = subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    printed, *words = done.stdout.split("|")
    assert json.loads(printed) == value
    assert words == ["-c", "x y", ""]
    assert width == 0 or max(map(len, lines)) <= 60


@given(JSON, WIDTHS)
def test_json_that_is_folded_is_the_same(value: object, width: int) -> None:
    line = json.dumps(value)
    assert json.loads("\n".join(between_values(line, width))) == value


@pytest.mark.parametrize(
    ("line", "width", "folded"),
    [
        ("codex -c a=1 exec", 80, ["codex -c a=1 exec"]),
        ("codex -c a=1 exec", 0, ["codex -c a=1 exec"]),
        ("codex -c a=1 exec", 14, ["codex -c a=1 \\", "    exec"]),
        ("codex -c a=1 exec", 10, ["codex \\", "    -c a=1 \\", "    exec"]),
    ],
)
def test_a_flag_keeps_its_value(line: str, width: int, folded: list[str]) -> None:
    assert command(line.split(), width) == folded
