"""The pages speak of what exists: links and paths in Markdown lead to files of this repository."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "caretway"
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")])

_LINK: Final = re.compile(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)")
_PATH: Final = re.compile(r"`((?:tests|src|scripts|docs)/[\w./-]+|(?:[a-z_0-9]+/)+[a-z_0-9]+\.py)`")
_MODULE: Final = re.compile(r"`([a-z_0-9]+\.py)`")
"""Named without its folder, where the text says which one is meant."""
_MODULES: Final = {path.name for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")}


@pytest.mark.seed("A10")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    dead = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    dead += [path for path in _PATH.findall(text) if not any((base / path).exists() for base in (ROOT, SOURCE))]
    dead += [name for name in _MODULE.findall(text) if name not in _MODULES]
    assert dead == []


def test_the_pages_were_found() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "docs/architecture.md", "src/caretway/wire/README.md"} <= names


@pytest.mark.seed("A03")
@pytest.mark.parametrize("page", ["opencode", "factory-droid", "pi", "curl", "openai-python", "cline-kilo"])
def test_the_clients_of_the_seeds_have_their_pages(page: str) -> None:
    assert (ROOT / "docs" / "clients" / f"{page}.md").is_file()
