"""Converts ripgrep's globs into regular expressions: `**`, braces, sets, a leading `!`, file types by extension. An
invalid glob is an error. Pure; standard library only.

`*` and `?` stay within one path component. A glob without a slash matches names at any depth; a glob with a slash
matches paths from the start of the search.
"""

import re
from collections.abc import Callable
from typing import Final

TYPES: Final[dict[str, tuple[str, ...]]] = {
    "c": ("c", "h"),
    "cpp": ("cpp", "cc", "cxx", "hpp", "hh", "hxx", "h"),
    "cs": ("cs",),
    "css": ("css", "scss"),
    "go": ("go",),
    "html": ("html", "htm"),
    "java": ("java",),
    "js": ("js", "jsx", "mjs", "cjs", "vue"),
    "json": ("json",),
    "kotlin": ("kt", "kts"),
    "markdown": ("md", "markdown", "mdx"),
    "md": ("md", "markdown", "mdx"),
    "php": ("php",),
    "py": ("py", "pyi"),
    "python": ("py", "pyi"),
    "ruby": ("rb", "gemspec"),
    "rust": ("rs",),
    "sh": ("sh", "bash", "zsh"),
    "sql": ("sql",),
    "swift": ("swift",),
    "toml": ("toml",),
    "ts": ("ts", "tsx", "mts", "cts"),
    "typescript": ("ts", "tsx", "mts", "cts"),
    "txt": ("txt",),
    "xml": ("xml",),
    "yaml": ("yaml", "yml"),
}
"""A file type's extensions; a name that is not in the table is used as an extension."""

Matches = Callable[[str], bool]
"""Takes a path relative to the start of the search, with `/`."""


class BadGlob(ValueError):
    """The glob is not valid."""


def file_filter(glob: str, file_type: str) -> Matches:
    tests: list[Matches] = []
    if glob:
        tests.append(_test(glob))
    if file_type:
        endings = tuple(f".{ending}" for ending in TYPES.get(file_type, (file_type,)))
        tests.append(lambda path: path.endswith(endings))
    return lambda path: all(test(path) for test in tests)


def _test(glob: str) -> Matches:
    wanted = not glob.startswith("!")
    body = glob if wanted else glob[1:]
    compiled = re.compile(pattern_of(body))
    if "/" in body:
        return lambda path: (compiled.fullmatch(path) is not None) is wanted
    return lambda path: (compiled.fullmatch(path.rpartition("/")[2]) is not None) is wanted


def pattern_of(glob: str) -> str:
    glob = glob.removeprefix("./").lstrip("/")
    out: list[str] = []
    depth = at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if glob.startswith("**/", at - 1) and (at == 1 or glob[at - 2] == "/"):
            out.append("(?:[^/]+/)*")
            at += 2
        elif glob.startswith("**", at - 1):
            out.append(".*")
            at += 1
        elif char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := glob.find("]", at + 1)) > 0:
            inside = glob[at:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"(?!/)[^{inside[1:]}]" if inside[0] in "!^" else f"(?!/)[{inside}]")
            at = end + 1
        elif char == "{":
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        elif char == "\\" and at < len(glob):
            out.append(re.escape(glob[at]))
            at += 1
        else:
            out.append(re.escape(char))
    if depth:
        raise BadGlob(f"the glob has an unclosed brace: {glob}")
    pattern = "".join(out)
    try:
        re.compile(pattern)
    except re.error as wrong:
        raise BadGlob(f"the glob cannot be understood: {glob} ({wrong})") from wrong
    return f"(?s:{pattern})"
