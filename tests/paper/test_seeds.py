"""tests/SEEDS.md and the marks of the tests say the same, both ways."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
PAGE: Final = TESTS / "SEEDS.md"
ROW: Final = re.compile(r"^- ([A-Z]\d\d) .+?\. (`[^`]+::.+`|(?:Later|Out): .{15,})$", re.MULTILINE)
"""A number, what it states, and its tests or the reason why there is none."""
COUNT: Final = {"A": 10, "B": 37, "C": 18, "D": 20, "E": 18, "F": 28, "G": 5, "H": 6, "I": 5, "J": 12} | {
    "K": 7,
    "L": 5,
    "M": 9,
    "N": 14,
}
"""How many statements the seeds have in each chapter."""

ROWS: Final = dict(ROW.findall(PAGE.read_text()))


def marked() -> dict[str, set[str]]:
    """Number -> the tests that carry it, as `unit/test_x.py::test_y`. Read, not imported: marks are written plainly."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "mark.seed" not in text:
            continue
        nodes = ast.walk(ast.parse(text))
        for node in [one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]:
            calls = [one for one in node.decorator_list if isinstance(one, ast.Call)]
            for mark in [one for one in calls if ast.unparse(one.func) == "pytest.mark.seed"]:
                for number in mark.args:
                    assert isinstance(number, ast.Constant)
                    found[str(number.value)].add(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return found


MARKED: Final = marked()


def test_every_statement_has_a_row() -> None:
    assert set(ROWS) == {f"{letter}{n:02}" for letter, count in COUNT.items() for n in range(1, count + 1)}


def test_rows_and_marks_agree() -> None:
    named = {number: set(re.findall(r"`([^`]+)`", tests)) for number, tests in ROWS.items() if tests.startswith("`")}
    assert named == MARKED, "each row has its tests, or a reason"


def test_every_mark_has_a_row() -> None:
    assert set(MARKED) <= set(ROWS)
