"""grep and glob through the worker process, and the bounds of the search itself."""

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from caretway.backends.builtin_tools.local.search import Job, Search, SearchResult
from caretway.cursor.wire.messages import pb
from unit.backends.builtin_tools.local.asking import ask, tools


@pytest.fixture
def place(tmp_path: Path) -> Path:
    contents = {
        "a.py": "import os\nx = 1\nprint(x)\n# Import again\n",
        "src/b.py": "one\ntwo\nimport re\nthree\nfour\n",
        "src/c.txt": "no match\nimport nothing\r\n",
        ".git/config": "import git\n",
        "node_modules/m/i.js": "import m\n",
        "bin.dat": "import \0 binary\n",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    return tmp_path


async def grep(place: Path, **args: Any) -> pb.GrepUnionResult:
    which, value = await ask(tools(place, "read-only"), "grep", **args)
    assert which == "success", value
    assert list(value.workspace_results) == [str(place)]
    result = value.workspace_results[str(place)]
    assert isinstance(result, pb.GrepUnionResult)
    return result


def content(result: pb.GrepUnionResult) -> dict[str, list[tuple[int, str, bool]]]:
    return {
        match.file: [(line.line_number, line.content, line.is_context_line) for line in match.matches]
        for match in result.content.matches
    }


async def test_content_as_the_official_client_answers(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello world\nsecond line\n")
    which, value = await ask(tools(tmp_path), "grep", pattern="hello", path=str(tmp_path), output_mode="content")
    assert which == "success"
    assert (value.pattern, value.path, value.output_mode) == ("hello", str(tmp_path), "content")
    found = value.workspace_results[str(tmp_path)].content
    assert content(value.workspace_results[str(tmp_path)]) == {"./hello.txt": [(1, "hello world", False)]}
    assert (found.total_lines, found.total_matched_lines, found.client_truncated) == (1, 1, False)


async def test_content(place: Path) -> None:
    assert content(await grep(place, pattern="^import")) == {
        "./a.py": [(1, "import os", False)],
        "./src/b.py": [(3, "import re", False)],
        "./src/c.txt": [(2, "import nothing", False)],
    }


async def test_case_and_context(place: Path) -> None:
    found = content(await grep(place, pattern="import", case_insensitive=True, context=1, path="a.py"))
    assert found == {
        "./a.py": [(1, "import os", False), (2, "x = 1", True), (3, "print(x)", True), (4, "# Import again", False)]
    }
    found = content(await grep(place, pattern="import", context_before=1, glob="*.py", path="src"))
    assert found == {"./src/b.py": [(2, "two", True), (3, "import re", False)]}
    found = content(await grep(place, pattern="import", context_after=1, glob="*.py", path="src"))
    assert found == {"./src/b.py": [(3, "import re", False), (4, "three", True)]}


async def test_files_and_counts(place: Path) -> None:
    files = (await grep(place, pattern="i", output_mode="files_with_matches", type="py")).files
    assert list(files.files) == ["./a.py", "./src/b.py"]
    assert files.total_files == 2
    count = (await grep(place, pattern="(?i)import", output_mode="count")).count
    assert [(c.file, c.count) for c in count.counts] == [("./a.py", 2), ("./src/b.py", 1), ("./src/c.txt", 1)]
    assert (count.total_files, count.total_matches) == (3, 4)


@pytest.mark.parametrize(
    ("args", "files"),
    [
        ({"glob": "*.py"}, ["./a.py", "./src/b.py"]),
        ({"glob": "**/*.py", "output_mode": "files_with_matches"}, ["./a.py", "./src/b.py"]),
        ({"glob": "src/*"}, ["./src/b.py", "./src/c.txt"]),
        ({"glob": "*.txt", "path": "src"}, ["./src/c.txt"]),
        ({"glob": "!*.py"}, ["./bin.dat", "./src/c.txt"]),
        ({"path": "src"}, ["./src/b.py", "./src/c.txt"]),
        ({"glob": "*.nope"}, []),
    ],
)
async def test_glob_only(place: Path, args: dict[str, str], files: list[str]) -> None:
    assert list((await grep(place, **args)).files.files) == files


async def test_limit_and_offset(place: Path) -> None:
    result = await grep(place, pattern="import", head_limit=1)
    assert content(result) == {"./a.py": [(1, "import os", False)]}
    assert result.content.client_truncated
    assert content(await grep(place, pattern="^import", head_limit=1, offset=1)) == {
        "./src/b.py": [(3, "import re", False)]
    }
    files = (await grep(place, glob="*", head_limit=2)).files
    assert (list(files.files), files.client_truncated) == (["./a.py", "./bin.dat"], True)


async def test_newest_first(place: Path) -> None:
    os.utime(place / "a.py", (1, 1))
    os.utime(place / "src/b.py", (2, 2))
    files = (await grep(place, glob="*.py", sort="modified")).files
    assert list(files.files) == ["./src/b.py", "./a.py"]
    files = (await grep(place, glob="*.py", sort="modified", sort_ascending=True, head_limit=1)).files
    assert (list(files.files), files.client_truncated) == (["./a.py"], True)


async def test_multiline(place: Path) -> None:
    found = content(await grep(place, pattern="two.*three", multiline=True))
    assert found == {"./src/b.py": [(2, "two", False), (3, "import re", False), (4, "three", False)]}
    assert content(await grep(place, pattern="two.*three")) == {}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"pattern": "("}, "regular expression"),
        ({"pattern": "x" * 20_000}, "longer"),
        ({"pattern": "x", "path": "missing"}, "no such file"),
        ({"pattern": "x", "path": "a.py/x"}, "ot a directory"),
        ({"pattern": "x", "glob": "{a"}, "glob"),
        ({"pattern": "x", "output_mode": "poem"}, "content, files_with_matches, count"),
    ],
)
async def test_errors_are_said(place: Path, args: dict[str, str], words: str) -> None:
    which, value = await ask(tools(place), "grep", **args)
    assert which == "error"
    assert words in value.error


@pytest.mark.parametrize(
    ("pattern", "line"),
    [("[[:digit:]]", "x = 1"), ("x [[:punct:]] [^[:alpha:]]", "x = 1"), (r"(?<what>os)\z", "import os")],
)
async def test_what_python_writes_differently(place: Path, pattern: str, line: str) -> None:
    ((_, found, _),) = content(await grep(place, pattern=pattern, path="a.py"))["./a.py"]
    assert found == line


async def test_a_catastrophic_pattern_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caretway.backends.builtin_tools.local.grep.START_S", 0.5)
    (tmp_path / "a").write_text("a" * 64 + "!\n")
    began = time.monotonic()
    which, value = await ask(tools(tmp_path, search_timeout_s=1.0), "grep", pattern="^(a+)+$")
    assert which == "error"
    assert "took longer" in value.error
    assert time.monotonic() - began < 60


async def test_cancelling_kills_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a" * 64 + "!\n")
    children: list[subprocess.Popen[bytes]] = []
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    popen = subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> "subprocess.Popen[bytes]":
        children.append(popen(*args, **kwargs))
        loop.call_soon_threadsafe(began.set)
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    task = asyncio.ensure_future(ask(tools(tmp_path), "grep", pattern="^(a+)+$"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children[0].returncode is not None


# ---- the search itself, in this process


def search(place: Path, clock: list[float] | None = None, **changed: Any) -> SearchResult:
    job: dict[str, Any] = {
        "root": str(place),
        "path": "",
        "pattern": "import",
        "mode": "content",
        "seconds": 10.0,
        "output_bytes": 10_000,
        "max_file_bytes": 10_000,
        "max_results": 100,
        "max_files": 100,
        "max_total_bytes": 100_000,
    } | changed
    times = iter(clock or [])
    return Search(Job(**job), clock=(lambda: next(times, 99.0)) if clock else lambda: 0.0).run()


def test_bounds(place: Path) -> None:
    whole = search(place)
    assert (len(whole.lines), whole.truncated) == (3, False)
    assert search(place, max_files=2).truncated
    assert search(place, max_total_bytes=50).truncated
    assert search(place, output_bytes=20).truncated
    assert search(place, max_results=1).total_files == 1
    cut = search(place, path="src/b.py", max_file_bytes=5)
    assert (cut.lines, cut.truncated) == ([], True)


def test_time_ends_the_search_with_what_was_found(place: Path) -> None:
    found = search(place, clock=[0.0] * 9, seconds=10.0)
    assert found.truncated
    assert len(found.lines) <= 1


def test_long_lines_are_cut(tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("import" + "x" * 5000)
    ((_, ((_, text, cut, _),)),) = search(tmp_path).lines
    assert (len(text), cut) == (1000, True)


def test_links_are_not_followed_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "ws/d").mkdir(parents=True)
    (tmp_path / "ws/d/loop").symlink_to("..")
    (tmp_path / "out").write_text("import secret")
    (tmp_path / "ws/link").symlink_to("../out")
    (tmp_path / "ws/d/a").write_text("import a")
    assert [file for file, _ in search(tmp_path / "ws").lines] == ["d/a"]
