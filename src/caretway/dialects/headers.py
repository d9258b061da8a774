"""Our own request headers, in every dialect: `x-caretway-session` (auto, fresh, required), `x-caretway-workspace`,
`x-caretway-mcp`; a wrong value is an error. And where clients name their own conversation: headers, `metadata.user_id`.

The gateway adds a few of its own (`OWNER` and those below it), with a colon in front: no client can send such a name.
"""

import re
from collections.abc import Mapping
from typing import Final

from ..core.request import SessionMode
from .fields import invalid_value

OWNER: Final = ":owner"
"""Whose request it is: its key, by an id that no other key will have. Absent where no key is asked for."""
SOCKET: Final = ":socket"
"""The request is a message on this WebSocket."""


def owners(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Whose stored responses this request may use: those of its key, and those of its own connection."""
    key = headers.get(OWNER, "")
    return (key, headers[SOCKET]) if SOCKET in headers else (key,)


def session_mode(headers: Mapping[str, str]) -> SessionMode | None:
    """None: the gateway's setting decides."""
    given = headers.get("x-caretway-session")
    value = given.strip() if given else ""
    if not value:
        return None
    try:
        return SessionMode(value.lower())
    except ValueError:
        modes = ", ".join(mode.value for mode in SessionMode)
        raise invalid_value("x-caretway-session", f"use one of {modes}, not {value[:60]!r}.") from None


_HINTS: Final = (
    "x-claude-code-session-id",
    "thread-id",  # Codex; its sub-agents have one each
    "session-id",  # Codex; its sub-agents have that of the first agent
    "session_id",  # Codex before 0.120
    "x-opencode-session",
    "x-session-id",  # OpenCode with a provider of its own
    "agent-session-id",  # goose
)
"""Headers in which clients name their own conversation. A name is a hint: it never resumes anything."""
_HINT_NAMES: Final = frozenset(_HINTS)
MAX_HINT: Final = 128
MAX_USER_ID: Final = 512


def session_hint(headers: Mapping[str, str]) -> str:
    for name in () if _HINT_NAMES.isdisjoint(headers) else _HINTS:
        given = headers.get(name)
        if given:
            return given[:MAX_HINT]
    return ""


_OF_CLAUDE_CODE: Final = re.compile(r'(?:"session_id":\s*"|_session_)([0-9A-Za-z-]{8,64})')


def session_in_user_id(metadata: object) -> str:
    """Claude Code's session, as it stands in `metadata.user_id`: in JSON, before 2.1 at the end of one word."""
    given = metadata.get("user_id") if isinstance(metadata, dict) else None
    found = _OF_CLAUDE_CODE.search(given[-MAX_USER_ID:]) if isinstance(given, str) else None
    return found[1] if found else ""


def workspace(headers: Mapping[str, str]) -> str | None:
    given = headers.get("x-caretway-workspace")
    return given.strip() or None if given else None


_SWITCH: Final = {
    **dict.fromkeys(("on", "true", "1", "yes"), True),
    **dict.fromkeys(("off", "false", "0", "no"), False),
}


def bridge(headers: Mapping[str, str]) -> bool | None:
    """Whether the gateway's MCP tools are wanted. None: its setting decides."""
    given = headers.get("x-caretway-mcp")
    value = given.strip().lower() if given else ""
    if not value:
        return None
    if value not in _SWITCH:
        raise invalid_value("x-caretway-mcp", f"use on or off, not {value[:60]!r}.")
    return _SWITCH[value]
