"""The loop guard's second eye: no progress. Counts steps in a row that only look (read, list, search, also by a shell
command) and bring no line that was not seen before, and estimates what they cost. Pure.

One new line in a result is progress, and so is anything that may change something, and a new word of the user. How many
steps are too many is in `rule`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ...core.estimate import tokens
from .rule import plain_name

READING: Final = frozenset(
    {
        *("read", "readfile", "readfiles", "readmanyfiles", "view", "viewfile", "cat", "open", "openfile", "tree"),
        *("ls", "list", "listdir", "listdirectory", "listfiles", "listcodedefinitionnames"),
        *("grep", "ripgrep", "rg", "search", "searchfiles", "searchcode", "codebasesearch", "searchcodebase"),
        *("glob", "find", "findfiles", "filesearch", "semsearch", "readlints"),
    }
)
"""Tools that only look: names in lower case, without separators and server prefix."""
SHELLS: Final = frozenset(
    {
        *("bash", "shell", "sh", "localshell", "terminal", "exec", "execcommand", "execute", "executecommand"),
        *("runcommand", "runcommands", "runshellcommand", "runterminalcmd"),
    }
)
_LOOKS: Final = frozenset(
    {
        *("cat", "ls", "head", "tail", "grep", "egrep", "fgrep", "rg", "wc", "pwd", "tree", "stat", "file", "nl", "cd"),
        *("sort", "uniq", "cut", "which", "echo", "true", "du", "diff", "jq", "awk"),
    }
)
_LOOKS_WITH: Final[Mapping[str, str]] = {
    "sed": r"sed\s+-n\b",
    "find": r"find\b(?!.*\s-(?:delete|exec|execdir|ok|okdir|fprint\w*|fls)\b)",
    "git": r"git\s+(?:--no-pager\s+)?(?:status|log|diff|show|ls-files|grep|blame|rev-parse)\b",
}
_CHANGES: Final = r">(?!&|\s*/dev/null)|`|\$\(|\btee\b"
_SPLIT: Final = r"\|\||&&|[|;\n]"
_COMMANDS: Final = ("command", "cmd", "script")
MAX_LINES: Final = 200_000
"""Lines that are remembered; a conversation with more is not judged further."""


def only_looks(tool: str, arguments: str) -> bool:
    """A call that changes nothing, as far as its name and its command tell."""
    name = plain_name(tool)
    if name in READING:
        return True
    return name in SHELLS and _command_looks(arguments)


def _command_looks(arguments: str) -> bool:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    told = next((value[key] for key in _COMMANDS if key in value), None) if isinstance(value, dict) else None
    if isinstance(told, list):
        told = told[-1] if len(told) == 3 and told[1] in ("-c", "-lc") else " ".join(map(str, told))
    if not isinstance(told, str) or re.search(_CHANGES, told):
        return False
    parts = [part.strip() for part in re.split(_SPLIT, told) if part.strip()]
    return bool(parts) and all(map(_part_looks, parts))


def _part_looks(part: str) -> bool:
    word = part.split(maxsplit=1)[0]
    pattern = _LOOKS_WITH.get(word)
    return re.match(pattern, part) is not None if pattern is not None else word in _LOOKS


class Wander:
    """One conversation, step by step."""

    __slots__ = ("_context", "_seen", "since", "steps", "tokens")

    def __init__(self, context_chars: int = 0) -> None:
        self.steps = 0
        """In a row, without anything new."""
        self.tokens = 0
        """What they made the model read, estimated: each step reads everything before it."""
        self.since: float | None = None
        """When the first of them was, where there is a clock."""
        self._context = context_chars
        self._seen: set[int] = set()

    def step(self, results: Iterable[str], *, looks: bool, now: float | None = None) -> None:
        """`looks`: none of the step's calls may change something."""
        new = not looks
        for result in results:
            self._context += len(result)
            lines = {hash(line) for line in _lines(result)}
            if not lines <= self._seen:
                new = True
                self._seen |= lines
        if new or len(self._seen) > MAX_LINES:
            self.start_again()
            return
        self.steps += 1
        self.tokens += tokens(self._context)
        self.since = now if self.since is None else self.since

    def start_again(self) -> None:
        self.steps = self.tokens = 0
        self.since = None

    def seconds(self, now: float | None) -> float:
        return now - self.since if now is not None and self.since is not None else 0.0


def _lines(result: str) -> Sequence[str]:
    return [stripped for line in result.splitlines() if (stripped := line.strip())] or [""]
