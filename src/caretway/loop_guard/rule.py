"""The loop guard's limits and words: how often a call may repeat (`tool_loop_max_repeat`, 0 is off), five times more
for tools that only look or run commands, the warning and the refusal that the model reads.

The first call is no repeat. A call may repeat `max_repeat` times. A tool that only looks, or runs commands, may repeat
five times as often: reading a file again is cheap, and waiting for a command is work.
"""

import re
from enum import Enum
from typing import Final

GENEROUS_FACTOR: Final = 5

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

_ADVICE: Final = "Do something else, or answer with what you know."


class RepeatLevel(Enum):
    BELOW_LIMIT = "below_limit"
    AT_LIMIT = "at_limit"
    """The last repeat that is allowed: time to warn the model."""
    PAST_LIMIT = "past_limit"


def repeat_level(repeats: int, max_repeat: int, *, generous: bool) -> RepeatLevel:
    """`max_repeat` 0 switches the guard off."""
    limit = max_repeat * GENEROUS_FACTOR if generous else max_repeat
    if max_repeat <= 0 or repeats < limit:
        return RepeatLevel.BELOW_LIMIT
    return RepeatLevel.AT_LIMIT if repeats == limit else RepeatLevel.PAST_LIMIT


def plain_name(tool: str) -> str:
    """`mcp__files__Read_File` -> `readfile`."""
    return re.sub(r"[^a-z0-9]", "", tool.rpartition("__")[2].lower())


def warning(calls: int) -> str:
    """Goes with a result that the model gets for the last time."""
    return (
        f"[Note from the gateway: this exact call has now been made {calls} times and gave this same result each time."
        f" Making it again will not help, and the turn will be ended if it is. {_ADVICE}]"
    )


def refusal(calls: int) -> str:
    """Replaces a result."""
    return f"This exact call was made {calls} times. {_ADVICE}"
