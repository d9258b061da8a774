"""The size of the project for its readers: settings, commands, pages, words, lines. `scripts/check` prints it, and
enforces nothing."""

import re
from pathlib import Path

from caretway.cli.flags import subcommands
from caretway.cli.main import parser
from caretway.config.settings import BY_NAME

ROOT = Path(__file__).parents[1]


def words(*paths: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


def main() -> None:
    pages = sorted((ROOT / "docs").glob("*.md"))
    clients = sorted((ROOT / "docs" / "clients").glob("*.md"))
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    changes = re.split(r"^## \[", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    source = [path for path in (ROOT / "src").rglob("*.py") if "gen" not in path.parts]
    lines = sum(path.read_bytes().count(b"\n") for path in source)
    advanced = sum(setting.advanced for setting in BY_NAME.values())
    readme = ROOT / "README.md"
    print(f"settings  {len(BY_NAME)}, {advanced} of them advanced; commands {len(subcommands(parser()))}")
    print(
        f"pages     {len(pages)}, and {len(clients)} about clients; {words(*pages, *clients, *decisions, readme)} words"
    )
    print(
        f"words     README {words(readme)}; " + "; ".join(f"{one.split(']')[0]} {len(one.split())}" for one in changes)
    )
    print(f"source    {len(source)} files, {lines} lines")


if __name__ == "__main__":
    main()
