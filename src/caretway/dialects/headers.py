"""The gateway's request headers in every dialect: `x-caretway-session` (auto, fresh, required), `x-caretway-workspace`,
`x-caretway-mcp`; an invalid value is an error. Also the clients' names for their conversation, in headers and
`metadata.user_id`.
The gateway adds internal headers (`OWNER`, `SOCKET`) whose names begin with a colon, so no client can send them.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from ..core.request import SessionMode
from .fields import invalid_value

OWNER: Final = ":owner"
"""The owner of the request: the unique id of its key. Absent if no key is needed."""
SOCKET: Final = ":socket"
"""The WebSocket of a request that is a message on it."""


def owners(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The owners whose stored responses this request may use: its key, and its connection."""
    key = headers.get(OWNER, "")
    return (key, headers[SOCKET]) if SOCKET in headers else (key,)


def session_mode(headers: Mapping[str, str]) -> SessionMode | None:
    """The mode in `x-caretway-session`; None without one: the gateway's setting decides."""
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
    "x-claude-code-agent-id",  # each sub-agent has its own; they share the session
    "x-claude-code-session-id",
    "thread-id",  # Codex; each sub-agent has its own
    "session-id",  # Codex; sub-agents have the first agent's
    "session_id",  # Codex before 0.120
    "x-opencode-session",
    "x-session-id",  # OpenCode with a provider of its own
    "agent-session-id",  # goose
)
"""Headers with the clients' names for their conversation. A name is a hint and never resumes a turn."""
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
    """Claude Code's session in `metadata.user_id`: in JSON, or before 2.1 as a suffix."""
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
    """Whether to offer the gateway's MCP tools. None: the gateway's setting decides."""
    given = headers.get("x-caretway-mcp")
    value = given.strip().lower() if given else ""
    if not value:
        return None
    if value not in _SWITCH:
        raise invalid_value("x-caretway-mcp", f"use on or off, not {value[:60]!r}.")
    return _SWITCH[value]


class HeaderFields(Struct, frozen=True, gc=False):
    """The fields of a request that its headers set."""

    session: SessionMode | None = None
    hint: str = ""
    workspace: str | None = None
    bridge: bool | None = None


_NOTHING_SET: Final = HeaderFields()
_SETTING: Final = _HINT_NAMES | {"x-caretway-session", "x-caretway-workspace", "x-caretway-mcp"}


def read_headers(headers: Mapping[str, str]) -> HeaderFields:
    if _SETTING.isdisjoint(headers):
        return _NOTHING_SET
    return HeaderFields(session_mode(headers), session_hint(headers), workspace(headers), bridge(headers))
