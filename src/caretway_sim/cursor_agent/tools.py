"""Tools that the cursor-agent stand-in pretends to run: their keys, which need permission, made-up results.

Nothing is ever run, read or written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class OwnTool:
    key: str
    kind: str
    """As ACP sorts tools."""
    gated: bool = False
    """It changes something, or uses the network: not in ask mode, and otherwise only with permission."""


TOOLS: Final[Mapping[str, OwnTool]] = {
    "shell": OwnTool("shellToolCall", "execute", gated=True),
    "shell_stream": OwnTool("shellToolCall", "execute", gated=True),
    "background_shell": OwnTool("shellToolCall", "execute", gated=True),
    "read": OwnTool("readToolCall", "read"),
    "write": OwnTool("writeToolCall", "edit", gated=True),
    "delete": OwnTool("deleteToolCall", "edit", gated=True),
    "ls": OwnTool("lsToolCall", "read"),
    "grep": OwnTool("grepToolCall", "search"),
    "fetch": OwnTool("webFetchToolCall", "fetch", gated=True),
}
OTHER: Final = OwnTool("mcpToolCall", "other")

QUERIES: Final[Mapping[str, str]] = {
    "web_search": "webSearchRequestQuery",
    "ask_question": "askQuestionInteractionQuery",
    "create_plan": "createPlanRequestQuery",
    "web_fetch": "webFetchRequestQuery",
    "switch_mode": "switchModeRequestQuery",
}


def tool(kind: str) -> OwnTool:
    return TOOLS.get(kind, OTHER)


def outcome(kind: str, args: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """(the `success` member, the text of it)."""
    subject = str(next(iter(args.values()), ""))
    text = f"simulated {kind} of {subject}" if subject else f"simulated {kind}"
    if tool(kind).key == "shellToolCall":
        return {"stdout": text + "\n", "stderr": "", "exitCode": 0}, text
    return {"content": text}, text
