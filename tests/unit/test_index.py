"""The section "Every module" of docs/architecture.md says what the modules' docstrings say (scripts/index.py)."""

import runpy
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
INDEX: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "scripts" / "index.py"))  # a plain script, in no package


def test_the_page_says_what_the_docstrings_say() -> None:
    page = INDEX["PAGE"].read_text(encoding="utf-8")
    fresh = INDEX["with_section"](page, INDEX["section"](INDEX["SOURCE"]))
    odd = sorted(set(page.splitlines()) ^ set(fresh.splitlines()))
    assert page == fresh, "docs/architecture.md is not up to date. Type: ./scripts/check --fix\n" + "\n".join(odd)


@pytest.mark.seed("A10")
def test_a_first_sentence_fits_in_a_row() -> None:
    rows = [line for line in INDEX["section"](INDEX["SOURCE"]).splitlines() if line.startswith("| `")]
    assert len(rows) > 300
    texts = {row.split(" | ", 1)[0]: row.split(" | ", 1)[1].removesuffix(" |") for row in rows}
    assert {name: text for name, text in texts.items() if not 20 < len(text) <= INDEX["MAX_ROW"]} == {}


LONG: Final = "X" * 280

DOCSTRINGS: Final = [
    ("One thing.", "One thing."),
    ("One thing. Another. A third.", "One thing. Another. A third."),
    ("One thing,\nin two lines. Another.\n\nA paragraph.", "One thing, in two lines. Another."),
    (f"One thing. {LONG}", "One thing."),
    (f"{LONG}. Another.", f"{LONG}."),
    (f"Reads `a.py` (e.g. Names). `b` too. {LONG}", "Reads `a.py` (e.g. Names). `b` too."),
    ("Fresh | Replay. No?", "Fresh \\| Replay. No?"),
]


@pytest.mark.parametrize(("docstring", "row"), DOCSTRINGS)
def test_a_row(docstring: str, row: str) -> None:
    assert INDEX["summary"](docstring) == row


def test_the_section_stands_at_the_end_and_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "app.py").write_text('"""Starts all. Ends all."""\n')
    (tmp_path / "web" / "__init__.py").write_text('"""The room."""\n')
    (tmp_path / "web" / "answer.py").write_text('"""Writes answers."""\n')
    section = INDEX["section"](tmp_path)
    assert "| `app.py` | Starts all. Ends all. |\n\n### `web/`\n" in section
    assert section.endswith("| `web/answer.py` | Writes answers. |\n")
    page = INDEX["with_section"]("# Page\n", section)
    assert page == f"# Page\n\n{section}"
    assert INDEX["with_section"](page, section) == page
