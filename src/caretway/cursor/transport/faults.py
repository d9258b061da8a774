"""Maps Cursor's Connect errors and HTTP statuses to a kind of error, a hint, Retry-After (seconds or a date), and
whether the same run may be retried. Cursor's error enum counts first, then the code, then words.
Words count only if enum and code are vague. `refusals.py` has rows for ends of runs that need more than a kind.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from ...core.errors import RETRYABLE, ErrorKind, GatewayError, bounded_wait, gateway_stops, said
from ...core.turn import BackendStatus
from ..wire.envelope import ConnectError, read_unary
from .refusals import EMPTY_STREAM, VERSION_HINT, AskedRun, Refusal, call_hint, refusal_of, words_for

RETRY_AFTER_INFO: Final = "retryAfterMs"
"""The key of `additional_info` with Cursor's wait time."""
BLOB_NOT_FOUND: Final = "blob_not_found"
"""The error code for a checkpoint whose blobs are gone: replay, do not resume."""

BY_NAME: Final[Mapping[str, ErrorKind]] = {
    "BAD_API_KEY": ErrorKind.SIGNED_OUT,
    "NOT_LOGGED_IN": ErrorKind.SIGNED_OUT,
    "INVALID_AUTH_ID": ErrorKind.SIGNED_OUT,
    "USER_NOT_FOUND": ErrorKind.SIGNED_OUT,
    "AUTH_TOKEN_NOT_FOUND": ErrorKind.SIGNED_OUT,
    "AUTH_TOKEN_EXPIRED": ErrorKind.SIGNED_OUT,
    "AGENT_REQUIRES_LOGIN": ErrorKind.SIGNED_OUT,
    "UNAUTHORIZED": ErrorKind.SIGNED_OUT,
    "BAD_USER_API_KEY": ErrorKind.SIGNED_OUT,
    "NOT_HIGH_ENOUGH_PERMISSIONS": ErrorKind.FORBIDDEN,
    "PRO_USER_ONLY": ErrorKind.FORBIDDEN,
    "HOOKS_BLOCKED": ErrorKind.FORBIDDEN,
    "SUSPICIOUS_USAGE_BLOCKED": ErrorKind.FORBIDDEN,
    "MODEL_BLOCKED": ErrorKind.FORBIDDEN,
    "MAX_MODE_REQUIRED": ErrorKind.FORBIDDEN,
    "UNSUPPORTED_REGION": ErrorKind.FORBIDDEN,
    "ACCOUNT_CLOSED": ErrorKind.FORBIDDEN,
    "BAD_MODEL_NAME": ErrorKind.MODEL_UNKNOWN,
    "MODEL_NO_LONGER_SUPPORTED": ErrorKind.MODEL_UNKNOWN,
    "CONVERSATION_TOO_LONG": ErrorKind.CONTEXT_TOO_LONG,
    "MAX_TOKENS": ErrorKind.CONTEXT_TOO_LONG,
    "FREE_USER_USAGE_LIMIT": ErrorKind.QUOTA,
    "PRO_USER_USAGE_LIMIT": ErrorKind.QUOTA,
    "USAGE_PRICING_REQUIRED": ErrorKind.QUOTA,
    "USAGE_PRICING_REQUIRED_CHANGEABLE": ErrorKind.QUOTA,
    "PRICING_WARNING": ErrorKind.QUOTA,
    "FREE_USER_RATE_LIMIT_EXCEEDED": ErrorKind.RATE_LIMITED,
    "PRO_USER_RATE_LIMIT_EXCEEDED": ErrorKind.RATE_LIMITED,
    "OPENAI_RATE_LIMIT_EXCEEDED": ErrorKind.RATE_LIMITED,
    "GENERIC_RATE_LIMIT_EXCEEDED": ErrorKind.RATE_LIMITED,
    "API_KEY_RATE_LIMIT": ErrorKind.RATE_LIMITED,
    "DEBOUNCED": ErrorKind.RATE_LIMITED,
    "RATE_LIMITED": ErrorKind.RATE_LIMITED,
    "RATE_LIMITED_CHANGEABLE": ErrorKind.RATE_LIMITED,
    "SLOW_POOL": ErrorKind.RATE_LIMITED,
    "BAD_REQUEST": ErrorKind.BAD_REQUEST,
    "CLAUDE_IMAGE_TOO_LARGE": ErrorKind.BAD_REQUEST,
    "OUTDATED_CLIENT": ErrorKind.UPSTREAM_DEPRECATED,
    "DEPRECATED": ErrorKind.UPSTREAM_DEPRECATED,
    "TIMEOUT": ErrorKind.TIMEOUT,
    "USER_ABORTED_REQUEST": ErrorKind.CANCELLED,
    "NETWORK_ERROR": ErrorKind.UPSTREAM_DOWN,
    "OPENAI": ErrorKind.UPSTREAM_ERROR,
    "PROVIDER_ERROR": ErrorKind.UPSTREAM_ERROR,
    "INTERNAL": ErrorKind.UPSTREAM_ERROR,
}
"""Cursor's enum, without the vague values CUSTOM, CUSTOM_MESSAGE, NOT_FOUND and RESOURCE_EXHAUSTED."""

BY_CODE: Final[Mapping[str, ErrorKind]] = {
    "canceled": ErrorKind.CANCELLED,
    "unknown": ErrorKind.UPSTREAM_ERROR,
    "invalid_argument": ErrorKind.BAD_REQUEST,
    "deadline_exceeded": ErrorKind.TIMEOUT,
    "not_found": ErrorKind.UPSTREAM_ERROR,
    "already_exists": ErrorKind.UPSTREAM_ERROR,
    "permission_denied": ErrorKind.FORBIDDEN,
    "resource_exhausted": ErrorKind.RATE_LIMITED,
    "failed_precondition": ErrorKind.BAD_REQUEST,
    "aborted": ErrorKind.UPSTREAM_ERROR,
    "out_of_range": ErrorKind.BAD_REQUEST,
    "unimplemented": ErrorKind.UPSTREAM_DEPRECATED,
    "internal": ErrorKind.UPSTREAM_ERROR,
    "unavailable": ErrorKind.UPSTREAM_DOWN,
    "data_loss": ErrorKind.UPSTREAM_ERROR,
    "unauthenticated": ErrorKind.SIGNED_OUT,
}

VAGUE_CODES: Final = frozenset(
    {"unknown", "internal", "not_found", "aborted", "invalid_argument", "failed_precondition", "resource_exhausted"}
)
"""Connect codes that Cursor uses for very different errors, so that words may refine them."""

BY_WORDS: Final[tuple[tuple[str, ErrorKind], ...]] = (
    (
        (
            r"usage limit|spend(ing)? limit|quota|out of (credits|usage)|insufficient credits|"
            r"usage[- ]based pricing|hit your (\w+ )?limit|unpaid invoice"
        ),
        ErrorKind.QUOTA,
    ),
    (
        (
            r"context (length|window|limit)|(prompt|conversation|input|message) (is )?too long|"
            r"too many tokens|maximum (context|prompt)|token limit"
        ),
        ErrorKind.CONTEXT_TOO_LONG,
    ),
    (
        r"rate[- ]limit|too many requests|slow down|too quickly|(high|heavy) (demand|load)",
        ErrorKind.RATE_LIMITED,
    ),
    (
        (
            r"(unknown|invalid|bad) model|model (name )?(is )?(not (found|valid|available|supported)|unknown)|"
            r"cannot use this model|no longer supported"
        ),
        ErrorKind.MODEL_UNKNOWN,
    ),
    (
        (
            r"(outdated|deprecated|unsupported) client|client (is )?too old|update required|"
            r"(update|upgrade) (your )?(client|cursor)\b"
        ),
        ErrorKind.UPSTREAM_DEPRECATED,
    ),
    (
        r"not logged in|\bunauthori[sz]ed\b|\bunauthenticated\b|invalid api key|api key (is )?(not|invalid)",
        ErrorKind.SIGNED_OUT,
    ),
)
"""Last resort, in this order: a quota must never look like an overflow (clients would compact), nor the reverse."""

_BLOB_WORDS: Final = r"blob (was )?not found|missing blob"

BY_STATUS: Final[Mapping[int, ErrorKind]] = {
    401: ErrorKind.SIGNED_OUT,
    402: ErrorKind.QUOTA,
    403: ErrorKind.FORBIDDEN,
    407: ErrorKind.UPSTREAM_DOWN,
    408: ErrorKind.TIMEOUT,
    413: ErrorKind.CONTEXT_TOO_LONG,
    426: ErrorKind.UPSTREAM_DEPRECATED,
    429: ErrorKind.RATE_LIMITED,
    500: ErrorKind.UPSTREAM_ERROR,
    501: ErrorKind.UPSTREAM_PROTOCOL,
    504: ErrorKind.TIMEOUT,
}
"""For answers without a Connect error; `_kind_of_status` covers the other statuses."""

HINTS: Final[Mapping[ErrorKind, str]] = {
    ErrorKind.BAD_REQUEST: "Cursor refused the content of the request; change it before trying again.",
    ErrorKind.SIGNED_OUT: "Run `caretway login` or set CURSOR_API_KEY.",
    ErrorKind.FORBIDDEN: "Your plan, team or region does not allow this; `caretway models` lists what you can use.",
    ErrorKind.REFUSED: "Ask another model and a new conversation without tools, to see which of them is refused.",
    ErrorKind.MODEL_UNKNOWN: "Run `caretway models` to see the ids your account can use.",
    ErrorKind.CONTEXT_TOO_LONG: "Shorten or compact the conversation, or choose a model with a larger window.",
    ErrorKind.QUOTA: "Your Cursor usage is spent; https://cursor.com/dashboard shows when it resets.",
    ErrorKind.RATE_LIMITED: "Wait a little, then try again.",
    ErrorKind.UPSTREAM_DOWN: "Try again in a moment; `caretway doctor` tests the connection.",
    ErrorKind.UPSTREAM_PROTOCOL: "Check --agent-url; if it is right, Cursor's API has changed: update Caretway.",
    ErrorKind.UPSTREAM_DEPRECATED: "Update Caretway (`caretway doctor` says how), or choose another --backend.",
    ErrorKind.UPSTREAM_ERROR: "This is a failure on Cursor's side; try again, or choose another model.",
    ErrorKind.TIMEOUT: "Try again; if it keeps happening, choose another model.",
    ErrorKind.CANCELLED: "The request was cancelled.",
}

HTTP2_ONLY: Final = 464
"""The answer of Cursor's load balancer to `Run` over HTTP/1.1."""

STATUS_HINTS: Final[Mapping[int, str]] = {
    426: VERSION_HINT,
    HTTP2_ONLY: "Cursor takes this call over HTTP/2 only, and something on the way speaks HTTP/1.1 to it: start with "
    "`--agent-transport http1`, which uses other calls.",
}
"""Hints for statuses that are more specific than their kind."""

RETRIED_CODES: Final = frozenset({"unavailable"})
"""Codes that are retried if the details do not decide. The official client also repeats `invalid_argument`, but other
implementations observed that this never helps."""
_CALLED_TEMPORARY: Final = r"(?i)exhausted|unavailable"
"""Words that make some clients repeat a request, regardless of the status."""
NEVER_RETRIED: Final = frozenset(
    {
        ErrorKind.SIGNED_OUT,
        ErrorKind.FORBIDDEN,
        ErrorKind.REFUSED,
        ErrorKind.MODEL_UNKNOWN,
        ErrorKind.CONTEXT_TOO_LONG,
        ErrorKind.QUOTA,
        ErrorKind.RATE_LIMITED,
        ErrorKind.UPSTREAM_DEPRECATED,
        ErrorKind.CANCELLED,
    }
)
"""Kinds that a short wait does not change, and that the client handles better than the gateway."""


class NeedsHttp1(GatewayError):
    """The run was answered with 464: the calls for HTTP/1.1 work where `Run` does not."""


def fault_from_connect(error: ConnectError, run: AskedRun | None = None) -> GatewayError:
    """The error for a client. `run`: the run that Cursor's error ended; None if it answers another call."""
    kind = _kind_of_connect(error, run)
    row = _row_of(error, run)
    message = ": ".join(dict.fromkeys(part for part in (error.title, error.detail or error.message) if part))
    label = said(error.name or error.code)
    if kind not in RETRYABLE and re.search(_CALLED_TEMPORARY, label):
        label = ""
    text = f"Cursor: {said(message)}" if message else f"Cursor answered {label or 'with an error'}"
    if message and label:
        text += f" ({label})"
    hint, code = HINTS[kind], BLOB_NOT_FOUND if re.search(_BLOB_WORDS, _words(error)) else None
    if run is None:
        hint = call_hint(error) or hint
    elif row is not None:
        hint = words_for(row.hint, run)
        text, code = words_for(row.message, run) or text, code or row.code
    return GatewayError(kind, text, hint=hint, code=code, retry_after=_retry_after_info(error))


def fault_from_status(status: int, headers: Mapping[str, str], body: bytes) -> GatewayError:
    """The error for an unsuccessful response. `headers` have lower-case names."""
    wait = retry_after(headers)
    error = read_unary(body)
    if error is not None and (error.code in BY_CODE or error.name):
        fault = fault_from_connect(error)
        if fault.retry_after is None:
            fault.retry_after = wait
        return fault
    kind = _kind_of_status(status)
    hint = STATUS_HINTS.get(status, HINTS[kind])
    if status == HTTP2_ONLY:
        return NeedsHttp1(kind, f"Cursor answered HTTP {status}{_glimpse(body)}", hint=hint)
    return GatewayError(kind, f"Cursor answered HTTP {status}{_glimpse(body)}", hint=hint, retry_after=wait)


def retryable(error: ConnectError) -> bool:
    """Whether to open the run again, unchanged."""
    row = refusal_of(error)
    if row is not None and row.kind not in RETRYABLE:
        return False
    if error.retryable is False or _kind_of_connect(error, AskedRun()) in NEVER_RETRIED:
        return False
    return error.retryable is True or error.code in RETRIED_CODES


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait in seconds. A date is relative to the response's own `date`, so the local clock does not matter."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return bounded_wait(float(text))
    until, now = _http_date(text), _http_date(headers.get("date", ""))
    return bounded_wait(max(0.0, (until - now).total_seconds())) if until and now else None


def _kind_of_connect(error: ConnectError, run: AskedRun | None) -> ErrorKind:
    row = _row_of(error, run)
    if row is not None:
        return row.kind
    known = BY_NAME.get(error.name)
    if known is not None:
        return known
    if error.code in VAGUE_CODES or error.code not in BY_CODE:
        words = _words(error)
        for pattern, kind in BY_WORDS:
            if re.search(pattern, words):
                return kind
    if error.code == "resource_exhausted" and run is not None and run.fills_window:
        return ErrorKind.CONTEXT_TOO_LONG
    return BY_CODE.get(error.code, ErrorKind.UPSTREAM_ERROR)


def _row_of(error: ConnectError, run: AskedRun | None) -> Refusal | None:
    """The row of an error that ended a run. A refusal of a run that fills the window has no row: it is too long."""
    row = refusal_of(error)
    if row is None or run is None or (row.unheard and run.heard):
        return None
    return None if row.kind is ErrorKind.REFUSED and run.fills_window else row


def _kind_of_status(status: int) -> ErrorKind:
    default = ErrorKind.UPSTREAM_DOWN if status >= 500 else ErrorKind.UPSTREAM_PROTOCOL
    return BY_STATUS.get(status, default)


def _words(error: ConnectError) -> str:
    return f"{error.title}\n{error.detail}\n{error.message}".lower()


def _retry_after_info(error: ConnectError) -> float | None:
    text = dict(error.info).get(RETRY_AFTER_INFO, "")
    try:
        wait = float(text) / 1000
    except ValueError:
        return None
    return bounded_wait(wait) if wait != float("inf") else None


def _http_date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime  # few servers give a date, and it imports much

    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else None


def _glimpse(body: bytes) -> str:
    """The first words of a text body, which help the user find the proxy that wrote it."""
    text = re.sub(r"<[^>]*>", " ", body[:2000].decode("utf-8", "replace"))
    words = " ".join(text.split())[:200]
    return f": {words}" if words and words.isprintable() else ""


def unheard() -> GatewayError:
    """The error after two streams that ended before their first message."""
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        "Cursor accepted the run and ended its stream without a word.",
        hint="That is how a host answers that does not serve this account or region, and Cursor named no other that "
        "works. Members of a team: start with `--run-url https://HOST`; cursor-agent keeps their host in its "
        "cli-config.json, as `agentnUrl`. Others: check a VPN or proxy of this machine; `caretway doctor` tests the "
        "connection.",
        code=EMPTY_STREAM,
        repeatable=False,
    )


def cut(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_DOWN, f"Cursor: {what}", hint=HINTS[ErrorKind.UPSTREAM_DOWN])


def broke_protocol(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor: {what}", hint=HINTS[ErrorKind.UPSTREAM_PROTOCOL])


def unhandled(bug: Exception) -> GatewayError:
    """The error for a bug in the gateway: a message's handler failed."""
    return GatewayError(ErrorKind.INTERNAL, f"a message could not be handled: {bug!r}")


def late(path: str, timeout_s: float) -> GatewayError:
    return GatewayError(
        ErrorKind.TIMEOUT, f"Cursor did not answer {path} within {timeout_s:g} s", hint=HINTS[ErrorKind.TIMEOUT]
    )


def stopping() -> GatewayError:
    return replace(gateway_stops(), message="The connection to Cursor is being closed: the gateway stops.")


def unusable(failure: GatewayError) -> BackendStatus:
    """The status after a failed account query: signed out only if Cursor says so, else unknown."""
    there = failure.kind not in (ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT)
    refused = False if failure.kind is ErrorKind.SIGNED_OUT else None
    return BackendStatus(signed_in=refused, detail=str(failure), reachable=there)
