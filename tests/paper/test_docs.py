"""The pages speak of what exists: links and paths in Markdown lead to files of this repository."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from caretway.cli.flags import flags_of, subcommands
from caretway.cli.main import parser
from caretway.core.recovery import as_markdown

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "caretway"
BASES: Final = (ROOT, SOURCE, SOURCE.parent)
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")])

_LINK: Final = re.compile(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)")
_PATH: Final = re.compile(r"`((?:tests|src|scripts|docs)/[\w./-]+|(?:[a-z_0-9]+/)+[a-z_0-9]+\.py)`")
_MODULE: Final = re.compile(r"`([a-z_0-9]+\.py)`")
"""Named without its folder, where the text says which one is meant."""
_MODULES: Final = {path.name for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")}


@pytest.mark.seed("A10")
def test_links_and_paths_exist() -> None:
    dead = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        dead += [(page, link) for link in _LINK.findall(text) if not (page.parent / link).exists()]
        dead += [(page, path) for path in _PATH.findall(text) if not any((base / path).exists() for base in BASES)]
        dead += [(page, name) for name in _MODULE.findall(text) if name not in _MODULES]
    assert dead == []


def test_the_table_of_recovery_is_current() -> None:
    """Write it anew with `python -m caretway.core.recovery`."""
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert as_markdown() in page


def test_the_pages_were_found() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "docs/architecture.md", "src/caretway/cursor/wire/README.md"} <= names


@pytest.mark.seed("A03")
@pytest.mark.parametrize("client", ["OpenCode", "Factory Droid", "oh-my-pi", "curl", "openai-python", "Kilo Code"])
def test_the_clients_of_the_seeds_are_described(client: str) -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "clients").glob("*.md")]
    assert any(client in page for page in pages)


_BLOCK: Final = re.compile(r"^ *```(?:sh|bash|shell|console)?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SHELL: Final = re.compile(r"^ *```(?:sh|bash)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """The command lines of a page's blocks that call Caretway, as words from the command's own name on."""
    found = []
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            called = re.search(r"(?:^|[ ;|&(])(?:\./scripts/)?caretway ([a-z][^;|&>)]*)", line)
            if called and not line.lstrip().startswith("#"):
                found.append(called[1].partition(" #")[0].split())
    return found


def test_commands_in_blocks_exist_with_their_flags() -> None:
    known = subcommands(parser())
    wrong = []
    for words in (words for page in PAGES for words in commands(page)):
        ours = words[: words.index("--")] if "--" in words else words
        flags = set(flags_of(known[ours[0]])) if ours[0] in known else set()
        unknown = [word for word in ours[1:] if word.startswith("--") and word.partition("=")[0] not in flags]
        wrong += [" ".join(words)] if ours[0] not in known or unknown else []
    assert wrong == []


def test_shell_blocks_are_shell() -> None:
    """A shell reads them, each as a function that is never called."""
    blocks = [block for page in PAGES for block in _SHELL.findall(page.read_text(encoding="utf-8"))]
    functions = "".join(f"block{n}() {{\n:\n{block}\n}}\n" for n, block in enumerate(blocks))
    done = subprocess.run(["bash", "-n"], input=functions, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_scripts_in_blocks_exist() -> None:
    blocks = "".join(block for page in PAGES for block in _BLOCK.findall(page.read_text(encoding="utf-8")))
    assert [name for name in re.findall(r"\./scripts/([\w-]+)", blocks) if not (ROOT / "scripts" / name).exists()] == []


def test_every_page_of_the_site_is_in_its_index() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = re.findall(r": ([\w/-]+\.md)$", nav, re.MULTILINE)
    assert [page for page in pages if not (ROOT / "docs" / page).is_file()] == []
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= set(pages)


def test_every_extra_is_on_the_page_about_installing() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert [name for name in extras if f"| `{name}` |" not in page] == []
