"""For mkdocs: links from docs/ to other files of the repository lead to the repository's own page."""

import re
from pathlib import PurePosixPath
from typing import Any

FILES = "https://github.com/caretway/caretway/blob/main/"
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[\w-]+)?\))")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = PurePosixPath("docs") / PurePosixPath(page.file.src_uri).parent

    def outside(found: re.Match[str]) -> str:
        place = _resolved(folder / found[2])
        return found[0] if place.startswith("docs/") else f"{found[1]}{FILES}{place}{found[3]}"

    return _LINK.sub(outside, markdown)


def _resolved(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
