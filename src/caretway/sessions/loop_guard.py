"""The loop guard for tools that run without the client during one turn (in the gateway, in cursor-agent, in the SDK),
with the same rules as for a client's tools.

Input: calls with their arguments, and results as text. Output: a verdict. At the limit it warns the model (`Tell`), if
the backend can; the next call ends the turn (`EndLoop`). Results are kept as hashes, up to a limit.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, Literal

import msgspec
from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError
from ..core.tally import tokens

# ---- The loop guard's limits and texts: how often a call may repeat (`tool_loop_max_repeat`, 0 is off), how long a
# model may find nothing new (`no_progress`), warnings and refusals for the model, errors for clients.
#
# The first call is no repeat. A call may repeat `max_repeat` times. A tool that only looks, or runs commands, may
# repeat five times as often: reading a file again is cheap, and waiting for a command is work.

GENEROUS_FACTOR: Final = 5
WANDER_STEPS: Final = 20
"""Consecutive steps that only look and find nothing new, before the model is warned."""
WANDER_TOKENS: Final = 50_000
WANDER_SECONDS: Final = 120.0
"""Steps below this time and below WANDER_TOKENS are cheap: twice as many are allowed."""
WANDER_AGAIN: Final = 10
"""Further steps after which the model is warned again."""

LOOKING: Final = frozenset(
    {
        *("read", "readfile", "readmanyfiles", "view", "viewfile", "viewimage", "cat", "open", "openfile", "tree"),
        *("ls", "list", "listdir", "listdirectory", "listfiles"),
        *("grep", "ripgrep", "rg", "search", "searchfiles", "searchcode", "codebasesearch"),
        *("glob", "find", "findfiles", "filesearch"),
        *("bash", "shell", "sh", "localshell", "terminal", "exec", "execcommand", "execute", "executecommand"),
        *("runcommand", "runshellcommand", "runterminalcmd"),
        *("writestdin", "bashoutput", "taskoutput", "taskget", "checkbackgroundjob", "waitagent"),
    }
)
"""Tools that only look, run commands or wait for them: names in lower case, without separators and server prefix."""

NoProgress = Literal["warn", "stop", "off"]
"""The action if a model looks around and finds nothing new."""

_ADVICE: Final = "Do something else, or answer with what you know."


class RepeatLevel(Enum):
    BELOW_LIMIT = "below_limit"
    AT_LIMIT = "at_limit"
    """The last allowed repeat: warn the model."""
    PAST_LIMIT = "past_limit"


def repeat_level(repeats: int, max_repeat: int, *, generous: bool) -> RepeatLevel:
    """The level of a call that has repeated `repeats` times. `max_repeat` 0: any number is allowed; `generous`: the
    tool may repeat more often."""
    limit = max_repeat * GENEROUS_FACTOR if generous else max_repeat
    if max_repeat <= 0 or repeats < limit:
        return RepeatLevel.BELOW_LIMIT
    return RepeatLevel.AT_LIMIT if repeats == limit else RepeatLevel.PAST_LIMIT


def wander_limit(tokens: int, seconds: float) -> int:
    """How many steps without progress are allowed; after twice as many the turn may end."""
    return WANDER_STEPS if tokens >= WANDER_TOKENS or seconds >= WANDER_SECONDS else 2 * WANDER_STEPS


def wander_level(steps: int, tokens: int, seconds: float, rule: NoProgress) -> RepeatLevel:
    """AT_LIMIT: warn the model, for the first time or again. PAST_LIMIT: end the turn of the warned model."""
    limit = wander_limit(tokens, seconds)
    if rule == "off" or steps < limit:
        return RepeatLevel.BELOW_LIMIT
    if rule == "stop" and steps >= 2 * limit:
        return RepeatLevel.PAST_LIMIT
    return RepeatLevel.AT_LIMIT if steps % WANDER_AGAIN == 0 else RepeatLevel.BELOW_LIMIT


def plain_name(tool: str) -> str:
    """`mcp__files__Read_File` -> `readfile`."""
    return re.sub(r"[^a-z0-9]", "", tool.rpartition("__")[2].lower())


def warning(calls: int) -> str:
    """The warning that is added to a result at the limit."""
    return (
        f"[Note from the gateway: this exact call has now been made {calls} times and gave this same result each time."
        f" Making it again will not help, and the turn will be ended if it is. {_ADVICE}]"
    )


def refusal(calls: int) -> str:
    """The text that replaces a result past the limit."""
    return f"This exact call was made {calls} times. {_ADVICE}"


def wander_warning(steps: int, tokens: int) -> str:
    return (
        f"[Note from the gateway: the last {steps} steps only looked and brought nothing new; they read about {tokens}"
        " tokens. Act on what you know, ask the user, or answer.]"
    )


def loop_error(tool: str, calls: int, outcome: str, *, warned: bool) -> GatewayError:
    """The error that ends a turn in a loop. `outcome`: of the repeated call in one word, empty if unknown."""
    result = f"the same result ({outcome})" if outcome else "the same result"
    return GatewayError(
        ErrorKind.TOOL_LOOP,
        f"The model called `{tool}` {calls} times with the same arguments and {result}"
        f"{', even after a warning' if warned else ''}. The turn was ended.",
        hint="Say what to do differently, or raise TOOL_LOOP_MAX_REPEAT (0: no limit of equal calls).",
        code="tool_loop_detected",
    )


def wander_error(steps: int, tokens: int) -> GatewayError:
    return GatewayError(
        ErrorKind.TOOL_LOOP,
        f"The model has only looked around for {steps} steps, without anything new, and read about {tokens} tokens."
        " The turn was ended.",
        hint="Say what to do next, or set no_progress to `warn`.",
        code="no_progress",
    )


# ---- The loop guard's second rule: no progress. Counts consecutive steps that only look (read, list, search, also by a
# shell command) and return only known lines, and estimates their cost. Pure.
#
# A new line in a result, a call that may change something and new words of the user are progress.

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
"""Remembered lines; a conversation with more is no longer checked."""


def only_looks(tool: str, arguments: str) -> bool:
    """Whether a call changes nothing, judged by its name and its command."""
    name = plain_name(tool)
    if name in READING:
        return True
    return name in SHELLS and _command_looks(arguments)


def _command_looks(arguments: str) -> bool:
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    command = next((value[key] for key in _COMMANDS if key in value), None) if isinstance(value, dict) else None
    if isinstance(command, list):
        command = command[-1] if len(command) == 3 and command[1] in ("-c", "-lc") else " ".join(map(str, command))
    if not isinstance(command, str) or re.search(_CHANGES, command):
        return False
    parts = [part.strip() for part in re.split(_SPLIT, command) if part.strip()]
    return bool(parts) and all(map(_part_looks, parts))


def _part_looks(part: str) -> bool:
    word = part.split(maxsplit=1)[0]
    pattern = _LOOKS_WITH.get(word)
    return re.match(pattern, part) is not None if pattern is not None else word in _LOOKS


class Wander:
    """Counts the steps without progress in one conversation."""

    __slots__ = ("_context", "_seen", "since", "steps", "tokens")

    def __init__(self, context_chars: int = 0) -> None:
        self.steps = 0
        """Consecutive steps without anything new."""
        self.tokens = 0
        """Estimated tokens that the model read in these steps: each step reads the whole context before it."""
        self.since: float | None = None
        """The time of the first of these steps, if there is a clock."""
        self._context = context_chars
        self._seen: set[int] = set()

    def step(self, results: Iterable[str], *, looks: bool, now: float | None = None) -> None:
        """Count a step that looks and finds nothing new; any other step ends the count. `looks`: no call of the step
        can change anything."""
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


# ---- The part of a tool's result that the loop guard compares: its text without keys that differ each time (times,
# ids), cut to a limit. Pure.

MAX_COMPARED: Final = 64 * 1024
_DEPTH: Final = 16
_UNSTEADY: Final = re.compile(r"(time|duration|ms|pid|id)$", re.IGNORECASE)


def result_words(value: object) -> str:
    text = "\n".join(_words(value, _DEPTH))
    return text if len(text) <= MAX_COMPARED else f"{text[:MAX_COMPARED]}({len(text)})"


def _words(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            if not _UNSTEADY.search(str(key)):
                yield from _words(inner, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for inner in value:
            yield from _words(inner, depth - 1)
    elif value is not None:
        yield str(value)


log = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 10_000
"""Different results of one turn; after that the count is reset."""


class GuardSettings(Struct, frozen=True):
    max_repeat: int = 2
    """Allowed repeats of a call; 0: any number."""
    no_progress: NoProgress = "warn"


class Tell(Struct, frozen=True):
    """A warning that the model should get before it goes on."""

    message: str
    lost: bool = False
    """True: the model finds nothing new. False: one call repeats."""


class EndLoop(Struct, frozen=True):
    error: GatewayError


LiveVerdict = Tell | EndLoop | None


class _LiveRun(Struct):
    """One call that repeats with the same result."""

    result: int
    repeats: int = 0


class LiveGuard:
    __slots__ = ("_clock", "_runs", "_seen", "_settings", "_tells", "_wander", "_warned")

    def __init__(
        self, settings: GuardSettings, clock: Callable[[], float], context_chars: int = 0, *, tells: bool = True
    ) -> None:
        """`context_chars`: the size of the context at the beginning. `tells`: whether the model can be warned."""
        self._settings = settings
        self._tells = tells
        self._clock = clock
        self._runs: dict[tuple[str, str], _LiveRun] = {}
        self._seen: set[tuple[str, str, int]] = set()
        self._wander = Wander(context_chars)
        self._warned = False

    def began(self, tool: str, arguments: str) -> EndLoop | None:
        """Check a call that is about to run or has just begun. Returns EndLoop if the call repeats too often."""
        run = self._runs.get((tool, arguments))
        if run is None or self._level(tool, run.repeats + 1) is not RepeatLevel.PAST_LIMIT:
            return None
        log.warning("loop guard: %s repeated %d times; the turn ends", tool, run.repeats + 1)
        return EndLoop(loop_error(tool, self.calls(tool, arguments), "", warned=self._warned and self._tells))

    def calls(self, tool: str, arguments: str) -> int:
        """How often this call was made with the same result, including the call that is about to run."""
        run = self._runs.get((tool, arguments))
        return 1 if run is None else run.repeats + 2

    def ended(self, tool: str, arguments: str, result: str) -> LiveVerdict:
        """Count the result of a call; `result` is empty if it is not known."""
        call, found = (tool, arguments), hash(result)
        if (*call, found) not in self._seen:  # the model makes another call, or the result changed
            self._runs.clear()
            if len(self._seen) >= MAX_REMEMBERED:
                self._seen.clear()
            self._seen.add((*call, found))
        run = self._runs.get(call)
        if run is None or run.result != found:
            run = self._runs[call] = _LiveRun(found)
        else:
            run.repeats += 1
        lost = self._no_progress(tool, arguments, result)
        if isinstance(lost, EndLoop):
            return lost
        if self._level(tool, run.repeats) is RepeatLevel.AT_LIMIT:
            self._warned = True
            self._log(tool, "repeated", run.repeats)
            return Tell(warning(run.repeats + 1))
        return lost

    def _level(self, tool: str, repeats: int) -> RepeatLevel:
        return repeat_level(repeats, self._settings.max_repeat, generous=plain_name(tool) in LOOKING)

    def _no_progress(self, tool: str, arguments: str, result: str) -> LiveVerdict:
        wander, now = self._wander, self._clock()
        wander.step((result,), looks=only_looks(tool, arguments), now=now)
        level = wander_level(wander.steps, wander.tokens, wander.seconds(now), self._settings.no_progress)
        if level is RepeatLevel.PAST_LIMIT:
            log.warning("loop guard: %s brought nothing new %d times; the turn ends", tool, wander.steps)
            return EndLoop(wander_error(wander.steps, wander.tokens))
        if level is not RepeatLevel.AT_LIMIT:
            return None
        self._log(tool, "brought nothing new", wander.steps)
        return Tell(wander_warning(wander.steps, wander.tokens), lost=True)

    def _log(self, tool: str, how: str, times: int) -> None:
        done = "the model is warned" if self._tells else "the model cannot be warned here"
        log.warning("loop guard: %s %s %d times; %s", tool, how, times, done)
