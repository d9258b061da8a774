"""The purpose of a request: the conversation itself, its title, its summary, or a sub-agent's work. Only for
accounting: it does not change the answer.

Codex, Claude Code and OpenCode mark sub-agents, and Codex its summaries and titles. Other requests are recognised by
the first words of the client's prompt; if these change, the request counts as a turn.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ..core.request import Message, Role, Text, ToolSpec

TURN: Final = "turn"
TITLE: Final = "title"
COMPACTION: Final = "compaction"
SUBAGENT: Final = "subagent"

_CODEX_SUBAGENT: Final = "x-openai-subagent"
_CODEX_TURN: Final = "x-codex-turn-metadata"
_SUBAGENTS: Final = frozenset((_CODEX_SUBAGENT, "x-claude-code-agent-id", "x-parent-session-id"))
"""Headers that only sub-agents send; the last is OpenCode's."""
_MARKS: Final = {
    re.compile(r'"request_kind":\s*"compaction"'): COMPACTION,
    re.compile(r'"thread_source":\s*"thread_title"'): TITLE,
}
"""A pattern in the metadata of a Codex turn -> the purpose of the request."""
_MAX_METADATA: Final = 4096
_INSTRUCTIONS: Final = {
    "You are a title generator.": TITLE,  # OpenCode
    "You are a context summarization agent.": COMPACTION,  # OpenCode
}
_COMPACT: Final = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."  # Claude Code's /compact


def kind_of_request(
    messages: Sequence[Message], tools: Sequence[ToolSpec], headers: Mapping[str, str], metadata: object = None
) -> str:
    """The purpose of a request in one word. `metadata`: Codex's `client_metadata`, which replaces the headers over a
    WebSocket."""
    codex = metadata if isinstance(metadata, dict) else {}
    header = codex.get(_CODEX_TURN) or headers.get(_CODEX_TURN)
    if isinstance(header, str):
        for mark, kind in _MARKS.items():
            if mark.search(header[:_MAX_METADATA]):
                return kind
    if messages and messages[0].role is Role.SYSTEM and not tools:
        for words, kind in _INSTRUCTIONS.items():
            if messages[0].text.startswith(words):
                return kind
    for last in reversed(messages):
        if last.role is not Role.SYSTEM:
            for part in last.parts:
                if isinstance(part, Text) and part.text.startswith(_COMPACT):
                    return COMPACTION
            break
    return SUBAGENT if codex.get(_CODEX_SUBAGENT) or not _SUBAGENTS.isdisjoint(headers) else TURN
