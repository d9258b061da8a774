"""The files of the page: small, all of them here, and nothing in them that could turn text into markup."""

import re
from pathlib import Path

import pytest

import caretway

FOLDER = Path(caretway.__file__).parent / "dashboard" / "static"
FILES = sorted(FOLDER.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MAX_BYTES = 130_000
FORBIDDEN = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "createPolicy")
_LOADED = re.compile(r'(?:src|href)="(/page/[^"]+)"|from "\./([^"]+)"')
_ELSEWHERE = re.compile(r'https?://(?!www\.w3\.org/2000/svg"|\$|127\.)')


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < MAX_BYTES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_everything_is_here(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = {(page or script).removeprefix("/page/") for page, script in _LOADED.findall(text)}
    assert names <= {path.name for path in FILES}
    assert _ELSEWHERE.search(text) is None, "nothing comes from another address"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.name))
def test_text_stays_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [word for word in FORBIDDEN if word in text] == []


def test_the_page_has_no_inline_code() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page) is None
