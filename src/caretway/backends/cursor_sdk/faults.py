"""The SDK's exceptions and the texts of failed runs (`[code] words`) -> GatewayError, with Retry-After; and the error
when its bridge process ended in the middle of a turn.

A run that fails is not raised by the SDK; it ends with a sentence, sometimes with a Connect code in brackets before it.
The words are weighed as the Agent API's are, after a few that only the SDK says.
"""

import re
from collections.abc import Mapping
from typing import Final

from ...core.errors import KEYS_PAGE, ErrorKind, GatewayError, bounded_wait, said
from ...cursor_transport.faults import BY_CODE, HINTS, fault_from_connect
from ...cursor_transport.refusals import AskedRun
from ...wire.errors import ConnectError

SDK_WORDS: Final[tuple[tuple[re.Pattern[str], ErrorKind], ...]] = (
    (re.compile(r"invalid api key|api key (is )?(not (accepted|valid|found)|invalid)"), ErrorKind.SIGNED_OUT),
    (re.compile(r"client (is )?too old|version of the client is no longer"), ErrorKind.UPSTREAM_DEPRECATED),
    (
        re.compile(r"network request failed|fetch failed|socket hang up|econnrefused|econnreset|enotfound|eai_again"),
        ErrorKind.UPSTREAM_DOWN,
    ),
)

BY_SDK_CODE: Final[Mapping[str, ErrorKind]] = {
    "unauthorized": ErrorKind.SIGNED_OUT,
    "api_key_not_found": ErrorKind.SIGNED_OUT,
    "role_forbidden": ErrorKind.FORBIDDEN,
    "forbidden": ErrorKind.FORBIDDEN,
    "usage_limit_exceeded": ErrorKind.QUOTA,
    "rate_limit_exceeded": ErrorKind.RATE_LIMITED,
    "rate_limited": ErrorKind.RATE_LIMITED,
    "validation_error": ErrorKind.BAD_REQUEST,
    "bad_request": ErrorKind.BAD_REQUEST,
    "invalid_model": ErrorKind.MODEL_UNKNOWN,
    "agent_not_found": ErrorKind.TURN_GONE,
    "agent_busy": ErrorKind.TURN_GONE,
    "timeout": ErrorKind.TIMEOUT,
    "upstream_error": ErrorKind.UPSTREAM_ERROR,
    "internal_error": ErrorKind.UPSTREAM_ERROR,
}
"""The SDK's own error codes, without their prefix; Connect's codes are looked up where they always are."""

_BRACKETED: Final = re.compile(r"^\[(\w+)\]\s*(.*)$", re.DOTALL)
_PREFIX: Final = "SDK_ERROR_CODE_"
_HINTS: Final[Mapping[ErrorKind, str]] = {
    **HINTS,
    ErrorKind.SIGNED_OUT: f"Set CURSOR_API_KEY to a key from {KEYS_PAGE}.",
    ErrorKind.UPSTREAM_DOWN: f"{HINTS[ErrorKind.UPSTREAM_DOWN]} The SDK ignores proxies; --backend agent does not.",
    ErrorKind.TURN_GONE: "",
}


def fault_from_text(text: str) -> GatewayError:
    """The failure of a run that was under way."""
    found = _BRACKETED.match(text)
    code, message = found.groups() if found else ("unknown", text)
    return _fault(_kind(code, message), message.strip() or f"a run failed: {code}")


def fault_from_sdk(message: str, *, code: str | None, sdk_code: str | None, retry_after: str | None) -> GatewayError:
    """An exception of the SDK, told by its fields."""
    name = (sdk_code or "").removeprefix(_PREFIX).lower()
    known = BY_SDK_CODE.get(name) or BY_SDK_CODE.get(code or "")
    fault = _fault(known if known is not None else _kind(code or "unknown", message), message)
    fault.retry_after = _seconds(retry_after)
    return fault


def bridge_lost(detail: str = "") -> GatewayError:
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        "The Cursor SDK's bridge process ended in the middle of the turn." + (f" {detail}" if detail else ""),
        hint="Send the request again: a new bridge is started for it.",
    )


def _kind(code: str, message: str) -> ErrorKind:
    words = message.lower()
    for pattern, kind in SDK_WORDS:
        if pattern.search(words):
            return kind
    return fault_from_connect(ConnectError(code if code in BY_CODE else "unknown", message), AskedRun()).kind


def _fault(kind: ErrorKind, message: str) -> GatewayError:
    return GatewayError(kind, f"Cursor: {said(' '.join(message.split()))}", hint=_HINTS.get(kind, ""))


def _seconds(text: str | None) -> float | None:
    return bounded_wait(float(text)) if text and text.isascii() and text.isdigit() else None
