"""Globs, from a table."""

import pytest

from caretway.backends.builtin_tools.local.globs import BadGlob, file_filter

CASES = [
    ("*.py", "a.py", True),
    ("*.py", "deep/down/a.py", True),
    ("*.py", "a.pyc", False),
    ("src/*.py", "src/a.py", True),
    ("src/*.py", "src/in/a.py", False),
    ("src/*.py", "other/src/a.py", False),
    ("./src/*.py", "src/a.py", True),
    ("/a.py", "a.py", True),
    ("/a.py", "in/a.py", False),
    ("**/*.ts", "a.ts", True),
    ("**/*.ts", "x/y/a.ts", True),
    ("src/**", "src/x/y", True),
    ("src/**/test_*.py", "src/test_a.py", True),
    ("src/**/test_*.py", "src/x/y/test_a.py", True),
    ("*.{js,ts}", "a.ts", True),
    ("*.{js,ts}", "a.tsx", False),
    ("*.{js,ts{,x}}", "a.tsx", True),
    ("[ab]?.txt", "b1.txt", True),
    ("[!ab]?.txt", "b1.txt", False),
    ("[!ab]?.txt", "c1.txt", True),
    ("a+b(c).txt", "a+b(c).txt", True),
    ("!*.md", "a.md", False),
    ("!*.md", "a.py", True),
    ("a\\*b", "a*b", True),
    ("a\\*b", "axb", False),
    ("[", "[", True),
]


@pytest.mark.parametrize(("glob", "path", "matches"), CASES)
def test_glob(glob: str, path: str, matches: bool) -> None:
    assert file_filter(glob, "")(path) is matches


def test_types() -> None:
    assert file_filter("", "ts")("a.tsx")
    assert not file_filter("", "py")("a.ts")
    assert file_filter("", "zig")("a.zig")
    assert not file_filter("src/*", "py")("a.py")


@pytest.mark.parametrize("glob", ["*.{js", "[b-a]x"])
def test_what_is_no_glob(glob: str) -> None:
    with pytest.raises(BadGlob):
        file_filter(glob, "")
