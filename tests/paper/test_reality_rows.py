"""The table of recorded facts and their tests: every test that it names exists, and no row is without one."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = TESTS / "contract" / "REALITY_ROWS.md"
_NAMED = re.compile(r"`([\w./]+\.py)::(test_\w+)`")


def rows() -> list[tuple[str, str]]:
    """(row, what shows it), headings left out."""
    cells = [line.strip("|").split("|") for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    return [(row.strip(), shown.strip()) for row, _, shown in cells[1:] if not row.strip().startswith("**")]


@cache
def defined_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_named_test_exists() -> None:
    named = [(row, *one) for row, shown in rows() for one in _NAMED.findall(shown)]
    assert len(named) > 60
    lost = [(row, test) for row, file, test in named if test not in defined_in((TABLE.parent / file).resolve())]
    assert not lost


def test_every_row_is_shown_or_says_what_is_not_built() -> None:
    assert [row for row, shown in rows() if not _NAMED.search(shown) and "not built: " not in shown] == []
