"""What a request asks for in headers of ours, the same in every dialect. Header names are in lower case here."""

from collections.abc import Mapping

from ..core.request import SessionMode
from .fields import invalid_value


def session_mode(headers: Mapping[str, str]) -> SessionMode | None:
    """None: the gateway's setting decides."""
    value = headers.get("x-caretway-session", "").strip()
    if not value:
        return None
    try:
        return SessionMode(value.lower())
    except ValueError:
        modes = ", ".join(mode.value for mode in SessionMode)
        raise invalid_value("x-caretway-session", f"use one of {modes}, not {value[:60]!r}.") from None


def workspace(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-caretway-workspace", "").strip() or None
