"""The loop guard's limits and words: how often a call may repeat (`tool_loop_max_repeat`, 0 is off), five times more
for tools that only look or run commands; how long a model may find nothing new (`no_progress`). Warnings and refusals
for the model, errors for clients.

The first call is no repeat. A call may repeat `max_repeat` times. A tool that only looks, or runs commands, may repeat
five times as often: reading a file again is cheap, and waiting for a command is work.
"""

import re
from enum import Enum
from typing import Final, Literal

from ...core.errors import ErrorKind, GatewayError

GENEROUS_FACTOR: Final = 5
WANDER_STEPS: Final = 20
"""Steps in a row that only look and bring nothing new, before the model is told."""
WANDER_TOKENS: Final = 50_000
WANDER_SECONDS: Final = 120.0
"""What makes them costly. Steps that cost less than both may be twice as many."""
WANDER_AGAIN: Final = 10
"""After so many more the model is told again."""

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
"""What is done about a model that looks around without anything new."""

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


def wander_limit(tokens: int, seconds: float) -> int:
    """How many such steps are allowed; after twice as many the turn may be ended."""
    return WANDER_STEPS if tokens >= WANDER_TOKENS or seconds >= WANDER_SECONDS else 2 * WANDER_STEPS


def wander_level(steps: int, tokens: int, seconds: float, rule: NoProgress) -> RepeatLevel:
    """AT_LIMIT: it is time to tell the model, the first time or again. PAST_LIMIT: it was told, and the turn ends."""
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
    """Goes with a result that the model gets for the last time."""
    return (
        f"[Note from the gateway: this exact call has now been made {calls} times and gave this same result each time."
        f" Making it again will not help, and the turn will be ended if it is. {_ADVICE}]"
    )


def refusal(calls: int) -> str:
    """Replaces a result."""
    return f"This exact call was made {calls} times. {_ADVICE}"


def wander_warning(steps: int, tokens: int) -> str:
    return (
        f"[Note from the gateway: the last {steps} steps only looked and brought nothing new; they read about {tokens}"
        " tokens. Act on what you know, ask the user, or answer.]"
    )


def loop_error(tool: str, calls: int, outcome: str, *, warned: bool) -> GatewayError:
    """`outcome`: in a word, empty if unknown."""
    result = f"the same result ({outcome})" if outcome else "the same result"
    return GatewayError(
        ErrorKind.TOOL_LOOP,
        f"The model called `{tool}` {calls} times with the same arguments and {result}"
        f"{', even after a warning' if warned else ''}. The turn was ended.",
        hint="Say what to do differently, or raise TOOL_LOOP_MAX_REPEAT (0 switches the loop guard off).",
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
