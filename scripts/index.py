"""Writes the section "Every module" of docs/architecture.md from the modules' docstrings, for `scripts/check --fix`.

A row is the beginning of a docstring: as many sentences of its first paragraph as fit.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "caretway"
PAGE = ROOT / "docs" / "architecture.md"

HEADING = "## Every module\n"
INTRODUCTION = """
The first sentences of each module's docstring. `./scripts/check --fix` writes this section: change the docstrings, not
the rows. Generated code and `__init__` files are left out.
"""
MAX_ROW = 280
"""Characters of a row's sentences. The first one is always shown."""

_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`\"(\d])")


def summary(docstring: str) -> str:
    """What a row says: the first paragraph in one line, up to the last sentence that fits."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    text, *others = _SENTENCE_END.split(paragraph)
    for sentence in others:
        if len(text) + 1 + len(sentence) > MAX_ROW:
            break
        text += f" {sentence}"
    return text.replace("|", "\\|")


def modules(source: Path) -> Iterator[Path]:
    """The modules below `source`, by folder; without packages and generated code."""
    wanted = (
        path
        for path in source.rglob("*.py")
        if path.name != "__init__.py" and "gen" not in path.relative_to(source).parts
    )
    return iter(sorted(wanted, key=lambda path: (path.parent.relative_to(source).parts, path.name)))


def section(source: Path) -> str:
    """The whole section: a table for each room."""
    lines: list[str] = []
    room = None
    for path in modules(source):
        name = path.relative_to(source)
        if room != (room := name.parts[0] if len(name.parts) > 1 else ""):
            title = f"`{room}/`" if room else "Beside the rooms"
            lines += ["", f"### {title}", "", "| file | what it does |", "|---|---|"]
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"| `{name.as_posix()}` | {summary(docstring)} |")
    return HEADING + INTRODUCTION + "\n".join(lines) + "\n"


def with_section(page: str, new: str) -> str:
    """The page with this section at its end, in place of the one that it had."""
    return page.split(HEADING)[0].rstrip("\n") + "\n\n" + new


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), section(SOURCE)), encoding="utf-8")
