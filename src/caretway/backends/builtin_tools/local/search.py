"""The search worker for grep and glob: accepts ripgrep's regular expressions, skips binary files, orders by path or
date, and limits files, bytes, results, CPU time and memory.

    python -I -m caretway.backends.builtin_tools.local.search

The worker is a separate process, because Python cannot interrupt a regular expression with catastrophic backtracking
(ReDoS). The process can be killed, and limits its own CPU time and memory in case its parent is gone. Standard library
only. It searches regular files below the workspace, never follows a link on the way, and returns the results so far
when it reaches a limit. It knows nothing about Cursor's wire format.
"""

import contextlib
import io
import json
import os
import re
import stat
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from .confine import Folder, NotAFile, PathRefused, Workspace, kind_of, shown
from .globs import BadGlob, file_filter
from .texts import as_utf8, is_binary

SKIPPED: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache"}
)
MAX_DEPTH: Final = 64
MAX_PATTERN: Final = 10_000
MAX_LINE: Final = 1_000
"""Characters of a line that are shown; minified files have lines of megabytes."""
POSIX_CLASSES: Final = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "word": r"\w",
    "xdigit": "0-9a-fA-F",
    "punct": r"!-/:-@\[-`{-~",
}
MEMORY: Final = 2 << 30
CHECK_EVERY: Final = 512
"""Lines between two checks of the time."""


@dataclass(frozen=True, slots=True)
class Job:
    root: str
    path: str
    pattern: str
    mode: str
    """content, files_with_matches or count."""
    seconds: float
    output_bytes: int
    max_file_bytes: int
    max_results: int
    max_files: int
    max_total_bytes: int
    glob: str = ""
    file_type: str = ""
    before: int = 0
    after: int = 0
    ignore_case: bool = False
    multiline: bool = False
    limit: int = 0
    offset: int = 0
    newest_first: bool | None = None
    """The order by date; None orders by path."""


@dataclass(slots=True)
class SearchResult:
    """The worker's answer."""

    files: list[str] = field(default_factory=list)
    counts: list[tuple[str, int]] = field(default_factory=list)
    lines: list[tuple[str, list[tuple[int, str, bool, bool]]]] = field(default_factory=list)
    """(file, [(line number, text, cut, is context)])"""
    total_files: int = 0
    total_lines: int = 0
    total_matches: int = 0
    truncated: bool = False


class Enough(Exception):
    """A limit is reached."""


class Unsearchable(Exception):
    """The job itself is not valid; the text says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    path: str
    """Relative to the workspace."""
    folder: Folder
    name: str


class Search:
    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        self._deadline = clock() + job.seconds
        self._wanted = file_filter(job.glob, job.file_type)
        self._matcher = _compiled(job) if job.pattern else None
        self._found = SearchResult()
        self._seen_files = self._seen_bytes = 0
        self._skip = max(0, job.offset)
        self._room = min(job.limit, job.max_results) if job.limit > 0 else job.max_results
        self._bytes_left = job.output_bytes
        self._dated: list[tuple[float, str]] = []

    def run(self) -> SearchResult:
        try:
            if self._matcher is None:
                self._list_files()
            else:
                for candidate in self._candidates():
                    self._search(candidate, self._matcher)
        except Enough:
            self._found.truncated = True
        if self._dated:
            self._keep_dated()
        return self._found

    # ---- the files

    def _candidates(self) -> Iterator[Candidate]:
        job = self._job
        with Workspace(job.root).locate(job.path) as spot:
            start = os.path.relpath(spot.folder.path, os.path.realpath(job.root)).replace(os.sep, "/")
            prefix = "" if start == "." else f"{start}/"
            if spot.name is None:
                yield from self._below(spot.folder, prefix, len(prefix), 0)
            elif spot.found is None:
                raise Unsearchable(f"no such file or directory: {job.path}")
            elif not stat.S_ISREG(spot.found.st_mode):
                raise Unsearchable(f"neither a file nor a directory but a {kind_of(spot.found.st_mode)}: {job.path}")
            else:
                yield Candidate(prefix + spot.name, spot.folder, spot.name)

    def _below(self, folder: Folder, prefix: str, start: int, depth: int) -> Iterator[Candidate]:
        names: list[tuple[str, bool]] = []
        with folder.entries() as entries:
            for entry in entries:
                self._step()
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        names.append((entry.name, True))
                elif entry.is_file(follow_symlinks=False):
                    names.append((entry.name, False))
        for name, is_directory in sorted(names):
            path = prefix + name
            if not is_directory:
                if self._wanted(path[start:]):
                    yield Candidate(path, folder, name)
            elif depth < MAX_DEPTH:
                try:
                    inner = folder.enter(name)
                except OSError:
                    continue  # unreadable, gone, or no longer a directory
                try:
                    yield from self._below(inner, f"{path}/", start, depth + 1)
                except OSError:
                    continue
                finally:
                    inner.close()

    def _step(self) -> None:
        self._seen_files += 1
        if self._seen_files > self._job.max_files:
            raise Enough
        self._check()

    def _check(self) -> None:
        if self._clock() > self._deadline:
            raise Enough

    # ---- their content

    def _list_files(self) -> None:
        for candidate in self._candidates():
            self._keep_file(candidate)

    def _search(self, candidate: Candidate, matcher: "re.Pattern[str]") -> None:
        self._check()
        text = self._text(candidate)
        if text is None:
            return
        hit = _hits(text, matcher, self._job.multiline, self._check)
        if self._job.mode == "content":
            self._keep_lines(candidate, text, hit)
            return
        count = 0
        for number, line in self._numbered(text):
            if hit(number, line):
                count += 1
                if self._job.mode != "count":
                    break
        if count and self._job.mode == "count":
            self._found.total_files += 1
            self._found.total_matches += count
            if self._keep(len(candidate.path)):
                self._found.counts.append((shown(candidate.path), count))
        elif count:
            self._keep_file(candidate)

    def _text(self, candidate: Candidate) -> str | None:
        try:
            with open(candidate.folder.open_file(candidate.name), "rb") as file:
                data = file.read(self._job.max_file_bytes + 1)
        except (OSError, NotAFile):
            return None
        if len(data) > self._job.max_file_bytes:
            data = data[: self._job.max_file_bytes]
            self._found.truncated = True
        self._seen_bytes += len(data)
        if self._seen_bytes > self._job.max_total_bytes:
            raise Enough
        data = as_utf8(data)
        return None if is_binary(data) else data.decode("utf-8", "replace")

    def _numbered(self, text: str) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
            if number % CHECK_EVERY == 0:
                self._check()
            yield number, line.rstrip("\r\n")

    # ---- the results

    def _keep(self, cost: int) -> bool:
        """Whether the next result is within the requested window."""
        if self._skip:
            self._skip -= 1
            return False
        if self._room <= 0 or self._bytes_left < cost:
            raise Enough
        self._room -= 1
        self._bytes_left -= cost
        return True

    def _keep_file(self, candidate: Candidate) -> None:
        self._found.total_files += 1
        if self._job.newest_first is not None:
            seen = candidate.folder.look(candidate.name)
            self._dated.append((seen.st_mtime if seen is not None else 0.0, candidate.path))
        elif self._keep(len(candidate.path)):
            self._found.files.append(shown(candidate.path))

    def _keep_dated(self) -> None:
        """Keep the requested window of the files sorted by date, which needs all files."""
        try:
            for _, path in sorted(self._dated, reverse=bool(self._job.newest_first)):
                if self._keep(len(path)):
                    self._found.files.append(shown(path))
        except Enough:
            self._found.truncated = True

    def _keep_lines(self, candidate: Candidate, text: str, hit: "Hit") -> None:
        kept: list[tuple[int, str, bool, bool]] = []

        def keep(number: int, line: str, *, context: bool) -> None:
            if self._keep(min(len(line), MAX_LINE) + 8):
                if not kept:
                    self._found.lines.append((shown(candidate.path), kept))
                    self._found.total_files += 1
                kept.append((number, line[:MAX_LINE], len(line) > MAX_LINE, context))
            self._found.total_lines += 1
            self._found.total_matches += not context

        recent: deque[tuple[int, str]] = deque(maxlen=self._job.before)
        following = 0
        for number, line in self._numbered(text):
            if hit(number, line):
                for earlier in recent:
                    keep(*earlier, context=True)
                recent.clear()
                keep(number, line, context=False)
                following = self._job.after
            elif following:
                keep(number, line, context=True)
                following -= 1
            else:
                recent.append((number, line))


Hit = Callable[[int, str], bool]


def _hits(text: str, matcher: "re.Pattern[str]", multiline: bool, check: Callable[[], None]) -> Hit:
    if not multiline:
        return lambda _, line: matcher.search(line) is not None
    lines: set[int] = set()
    number, at = 1, 0
    for match in matcher.finditer(text):
        check()
        number += text.count("\n", at, match.start())
        at = match.start()
        last = number + text.count("\n", match.start(), max(match.start(), match.end() - 1))
        lines.update(range(number, last + 1))
    return lambda number, _: number in lines


def python_pattern(pattern: str) -> str:
    """Convert a ripgrep pattern to Python's syntax. Python would silently misread POSIX classes."""
    for name, members in POSIX_CLASSES.items():
        pattern = pattern.replace(f"[:{name}:]", members)
    return re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern).replace("\\z", "\\Z")


def _compiled(job: Job) -> "re.Pattern[str]":
    if len(job.pattern) > MAX_PATTERN:
        raise Unsearchable(f"the pattern is longer than {MAX_PATTERN} characters")
    flags = (re.IGNORECASE if job.ignore_case else 0) | re.MULTILINE | (re.DOTALL if job.multiline else 0)
    try:
        return re.compile(python_pattern(job.pattern), flags)
    except (re.error, OverflowError, RecursionError) as wrong:
        raise Unsearchable(f"the regular expression cannot be used: {wrong}") from wrong


def outcome(job: Job) -> dict[str, Any]:
    try:
        found = Search(job).run()
    except (PathRefused, Unsearchable, BadGlob) as refused:
        return {"error": str(refused)}
    except OSError as failure:
        return {"error": failure.strerror or str(failure)}
    except MemoryError:
        return {"error": "the search needs too much memory"}
    return {name: getattr(found, name) for name in SearchResult.__slots__}


def main() -> None:
    job = Job(**json.load(sys.stdin))
    with contextlib.suppress(ValueError, OSError):  # not always allowed
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (int(job.seconds) + 5, int(job.seconds) + 6))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")  # warnings about patterns in later versions of Python
    json.dump(outcome(job), sys.stdout)


if __name__ == "__main__":
    main()
