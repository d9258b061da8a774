"""What the SDK throws before a run -> GatewayError, by its class, codes and words; an SDK that is too old or missing;
and the error when its process ended in the middle of a turn.

How a run that was under way was refused is told by Cursor itself, and read where the Agent API's refusals are.
"""

import re
from collections.abc import Mapping
from typing import Final

from ...core.errors import KEYS_PAGE, ErrorKind, GatewayError, said
from ...cursor.transport.faults import BY_CODE, BY_STATUS, HINTS, fault_from_connect
from ...cursor.transport.refusals import AskedRun
from ...cursor.wire.errors import ConnectError
from ...installation import install_command
from .frames import Frame, code_and_words

BROKEN: Final = re.compile(
    r"network request failed|fetch failed|socket hang up|^terminated$|econn|enotfound|eai_again", re.IGNORECASE
)
"""How Node tells of a connection."""

BY_NAME: Final[Mapping[str, ErrorKind]] = {
    "usage_limit_exceeded": ErrorKind.QUOTA,
    "rate_limit_exceeded": ErrorKind.RATE_LIMITED,
    "rate_limited": ErrorKind.RATE_LIMITED,
    "invalid_model": ErrorKind.MODEL_UNKNOWN,
    "agent_not_found": ErrorKind.TURN_GONE,
    "agent_busy": ErrorKind.TURN_GONE,
    "timeout": ErrorKind.TIMEOUT,
    "unreadable": ErrorKind.UPSTREAM_PROTOCOL,
    "AuthenticationError": ErrorKind.SIGNED_OUT,
    "NetworkError": ErrorKind.UPSTREAM_DOWN,
}
"""The SDK's own codes and classes; Connect's codes and words are looked up where they always are."""

_HINTS: Final[Mapping[ErrorKind, str]] = {
    **HINTS,
    ErrorKind.SIGNED_OUT: f"Set CURSOR_API_KEY to a key from {KEYS_PAGE}.",
    ErrorKind.UPSTREAM_DOWN: f"{HINTS[ErrorKind.UPSTREAM_DOWN]} The SDK ignores proxies; --backend agent does not.",
    ErrorKind.TURN_GONE: "",
}


def fault_of(frame: Frame) -> GatewayError:
    """An exception of the SDK, told by its fields."""
    code, message = code_and_words(frame)
    kind = BY_NAME.get(frame.code or "") or BY_STATUS.get(frame.http) or BY_NAME.get(frame.name)
    words = ConnectError(code if code in BY_CODE else "unknown", message)
    kind = kind or (ErrorKind.UPSTREAM_DOWN if BROKEN.search(message) else fault_from_connect(words, AskedRun()).kind)
    return GatewayError(kind, f"Cursor: {said(' '.join(message.split()))}", hint=_HINTS.get(kind, ""))


def bridge_lost() -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        "The Cursor SDK's bridge process ended in the middle of the turn.",
        hint="Send the request again: a new bridge is started for it.",
    )


def sdk_unfit(what: str) -> GatewayError:
    return GatewayError(
        ErrorKind.UNSUPPORTED,
        f"The installed cursor-sdk cannot be used: {said(what)}.",
        hint=f"Reinstall it with `{install_command('sdk', again=True)}`, or use --backend agent.",
    )
