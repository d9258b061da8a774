"""Tools that a client added, changed or removed while its turn was parked: whether the turn goes on without them, or
must be replayed because a new one was asked for or loaded. Pure.

A live run cannot be given new tools. Mostly nobody misses them (a server of the client's came up late): they wait until
the next run. But some tools load others, and the model is about to call what it loaded.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ..core.request import Message, Role, ToolCall, ToolResult, ToolSpec
from .transcript import tools_key

MOST_OF_ONE: Final = 16_384
MOST_IN_ALL: Final = 131_072
"""Characters of one text, and of all, that are searched for new tools' names; texts that load tools are short."""
_WORD: Final = re.compile(r"[\w-]+")
_LOADS: Final = re.compile(r"tool", re.IGNORECASE)
"""In the name of a tool that loads others: ToolSearch, load_tools, enable_toolset."""


def grown(offered: Sequence[ToolSpec], now: Sequence[ToolSpec]) -> tuple[str, ...] | None:
    """The names of the tools that were added; None when one was changed or taken away. A tool of another namespace
    that has the name now is another one: the live run's calls are not meant for it."""
    if offered == now:
        return ()
    by_name = {tool.name: tool for tool in now}
    for tool in offered:
        same = by_name.pop(tool.name, None)
        if same is None or same.namespace != tool.namespace:
            return None
        if same != tool and tools_key((same,)) != tools_key((tool,)):
            return None
    return tuple(by_name)


def asked_for(new: Sequence[str], answer: Message, tail: Sequence[Message], history: Sequence[Message]) -> str | None:
    """The first of the new tools that is mentioned: in our calls, results, or by the user; None when none is. Words
    that are meant for the model may name a tool's server instead (`vault` for `mcp__vault__reveal`)."""
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    prompt = next((message for message in reversed(history) if message.role is Role.USER), None)
    beside = [message.text for message in tail]
    said = _words([*(call.arguments for call in calls), *beside, prompt.text if prompt is not None else ""])
    given = _words(part.text for message in tail for part in message.parts if isinstance(part, ToolResult))
    meant = [name for name in new if name in said or name in given] or [name for name in new if _server(name) in said]
    if not meant and any(_LOADS.search(call.name) for call in calls):
        return new[0]  # some do not say what they loaded
    return meant[0] if meant else None


def _server(tool: str) -> str:
    parts = tool.split("__", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "mcp" else tool


def _words(texts: Iterable[str]) -> set[str]:
    words: set[str] = set()
    left = MOST_IN_ALL
    for text in texts:
        if left <= 0:
            break
        read = text[: min(MOST_OF_ONE, left)]
        words.update(_WORD.findall(read))
        left -= len(read)
    return words
