"""The kinds of errors, and `GatewayError`, the one exception between packages. A client may retry `RETRYABLE` kinds,
but never after tools have run.

`message` says what happened, `hint` says what to do next. Every boundary has a table from its own codes to an
`ErrorKind`; every dialect has a table from kinds to its own error bodies. No other code branches on message text.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

LONGEST_WAIT_S: Final = 30 * 86_400.0
"""The longest wait that a client gets, whatever upstream says."""
MAX_SAID: Final = 2000
"""Characters of foreign text that a message may quote."""
OWN_BUDGET: Final = "budget_exceeded"
"""The reason of a refusal by a budget of the gateway, not of Cursor."""
KEYS_PAGE: Final = "https://cursor.com/dashboard?tab=integrations"
"""The page where users create API keys, for hints. The page has had several names; this URL redirects to it."""


class ErrorKind(Enum):
    BAD_REQUEST = "bad_request"
    """The caller's request is malformed; repeating it will not help."""
    UNSUPPORTED = "unsupported"
    """The request is valid, but this gateway or this backend cannot do it."""
    NOT_FOUND = "not_found"
    """No such route or object."""
    WRONG_METHOD = "wrong_method"
    """The route exists, but does not support this method."""
    WRONG_PROTOCOL = "wrong_protocol"
    """The route exists, but does not support the protocol that the client wants to switch to."""
    TOO_LARGE = "too_large"
    """The body is larger than the configured limit."""
    HEAD_TOO_LARGE = "head_too_large"
    """The request's headers exceed the configured limits."""
    SLOW_REQUEST = "slow_request"
    """The request did not arrive in time."""
    ACCESS_DENIED = "access_denied"
    """The gateway's own key is missing or wrong."""
    SIGNED_OUT = "signed_out"
    """Cursor does not accept the credentials."""
    FORBIDDEN = "forbidden"
    """Cursor knows the user and refuses: plan, region, team rule, blocked model."""
    REFUSED = "refused"
    """Cursor refuses and gives no reason. The hint names the known causes; repeating the request will not help."""
    MODEL_UNKNOWN = "model_unknown"
    """Cursor has no such model."""
    CONTEXT_TOO_LONG = "context_too_long"
    """The conversation does not fit the model's context window; the client should compact it."""
    QUOTA = "quota"
    """The subscription's usage is used up; waiting or paying helps, retrying does not."""
    RATE_LIMITED = "rate_limited"
    """Too many requests; retrying later helps."""
    OVERLOADED = "overloaded"
    """The gateway's own limits are reached; retrying soon helps."""
    TOOL_LOOP = "tool_loop"
    """The model repeated one call without progress; the loop guard ended the turn."""
    TURN_GONE = "turn_gone"
    """The turn no longer exists. The history goes to a new run, unless `session: required` forbids that."""
    IN_PROGRESS = "in_progress"
    """The same request is already being answered; asking again soon helps."""
    UPSTREAM_DOWN = "upstream_down"
    """Cursor cannot be reached, or the connection broke and could not be recovered."""
    UPSTREAM_PROTOCOL = "upstream_protocol"
    """Cursor sent something that breaks the protocol."""
    UPSTREAM_DEPRECATED = "upstream_deprecated"
    """Cursor requires a newer client."""
    UPSTREAM_ERROR = "upstream_error"
    """Cursor reports a failure of its own."""
    TIMEOUT = "timeout"
    """No progress within the time limits."""
    CANCELLED = "cancelled"
    """The client disconnected, or the gateway is stopping."""
    INTERNAL = "internal"
    """A bug in the gateway."""


RETRYABLE: Final = frozenset(
    {
        ErrorKind.RATE_LIMITED,
        ErrorKind.OVERLOADED,
        ErrorKind.SLOW_REQUEST,
        ErrorKind.IN_PROGRESS,
        ErrorKind.UPSTREAM_DOWN,
        ErrorKind.UPSTREAM_ERROR,
        ErrorKind.TIMEOUT,
    }
)
"""Kinds for which the same request may succeed later, unchanged."""
SOON: Final = frozenset({ErrorKind.OVERLOADED, ErrorKind.IN_PROGRESS, ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT})
"""Retryable kinds whose default wait is one second."""


@dataclass(slots=True)
class GatewayError(Exception):
    """The only exception that crosses package borders, and the payload of `TurnFailed`."""

    kind: ErrorKind
    message: str
    hint: str = ""
    param: str | None = None
    """The request field with the problem, as the caller spelled it."""
    code: str | None = None
    """A code more exact than the kind's default one (`invalid_json`, `missing_messages` ...)."""
    retry_after: float | None = None
    """Seconds to wait, if known."""
    repeatable: bool | None = None
    """Whether the same request may be sent again; None: the kind decides (`RETRYABLE`)."""
    reason: str = ""
    """The reason, if one code has several (`budget_exceeded`)."""

    @property
    def may_repeat(self) -> bool:
        return self.kind in RETRYABLE if self.repeatable is None else self.repeatable

    def __post_init__(self) -> None:
        Exception.__init__(self, self.message)

    def __str__(self) -> str:
        """Message and hint as sentences; adds a full stop that foreign messages often lack."""
        if not self.hint or not self.message:
            return self.message or self.hint
        ended = self.message.rstrip().endswith((".", "!", "?", ":", ";", ".)")) or self.hint.startswith("(")
        end = "" if ended else "."
        return f"{self.message.rstrip()}{end} {self.hint}"

    def __hash__(self) -> int:
        return hash((self.kind, self.message))

    def __reduce__(self) -> tuple[type["GatewayError"], tuple[object, ...]]:
        """Copy all fields; Exception copies only `args`, which is the message."""
        arguments = (
            self.kind,
            self.message,
            self.hint,
            self.param,
            self.code,
            self.retry_after,
            self.repeatable,
            self.reason,
        )
        return GatewayError, arguments

    def after_work(self) -> "GatewayError":
        """The failure of a turn whose tools ran inside the gateway: repeating it would run them again."""
        hint = "Tools have already run here: asking again may run them again. Look at what they did first."
        return GatewayError(self.kind, self.message, hint, self.param, self.code, repeatable=False, reason=self.reason)


def gateway_stops() -> GatewayError:
    """The error while the gateway stops. It is repeatable, because a restarted gateway answers the same request, even
    with tool results."""
    return GatewayError(
        ErrorKind.CANCELLED,
        "The gateway is stopping.",
        hint="Ask again when it runs again.",
        retry_after=1.0,
        repeatable=True,
    )


def bounded_wait(seconds: float) -> float | None:
    """Seconds to wait, as upstream gave them; None if they are not valid."""
    return min(seconds, LONGEST_WAIT_S) if seconds >= 0 else None  # also None for NaN


def said(words: str) -> str:
    """Foreign text, cut if it is too long."""
    return words if len(words) <= MAX_SAID else f"{words[:MAX_SAID].rstrip()} … ({len(words)} characters)"


def bad_request(message: str, *, param: str | None = None, code: str | None = None, hint: str = "") -> GatewayError:
    return GatewayError(ErrorKind.BAD_REQUEST, message, hint=hint, param=param, code=code)
