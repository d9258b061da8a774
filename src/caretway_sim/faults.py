"""The simulator's failures as Connect errors with Cursor's details: one for each name of `sim: fail`, with the
retryable flag and `retryAfterMs`.

`is_retryable` is always set: the official client retries an error without it.
"""

from typing import Final

from caretway.cursor.wire.envelope import ConnectError
from caretway.cursor.wire.messages import ai

_Error = ai.ErrorDetails
RETRY_AFTER_MS: Final = 1000


def _bare(code: str, message: str = "Error") -> ConnectError:
    """An error without details, as the real service often sends."""
    return ConnectError(code, message)


def _fault(code: str, error: int, title: str, detail: str, **extra: str) -> ConnectError:
    return ConnectError(
        code,
        title,
        error=error,
        title=title,
        detail=detail,
        retryable=code == "unavailable",
        info=tuple(sorted(extra.items())),
    )


SCRIPTED: Final = {
    "unauthenticated": _fault(
        "unauthenticated", _Error.ERROR_NOT_LOGGED_IN, "Not logged in", "Simulated: sign in and try again."
    ),
    "usage_limit": _fault(
        "resource_exhausted",
        _Error.ERROR_PRO_USER_USAGE_LIMIT,
        "Usage limit reached",
        "Simulated: the usage limit of this plan is used up.",
    ),
    "rate_limit": _fault(
        "resource_exhausted",
        _Error.ERROR_RATE_LIMITED,
        "Rate limit reached",
        "Simulated: too many requests in a short time.",
        retryAfterMs=str(RETRY_AFTER_MS),
    ),
    "overflow": _fault(
        "invalid_argument",
        _Error.ERROR_CONVERSATION_TOO_LONG,
        "Conversation too long",
        "Simulated: the conversation does not fit the model's context.",
    ),
    "bad_model": _fault(
        "invalid_argument", _Error.ERROR_BAD_MODEL_NAME, "Unknown model", "Simulated: no such model is available."
    ),
    "deprecated": _fault(
        "failed_precondition",
        _Error.ERROR_DEPRECATED,
        "Client too old",
        "Simulated: this version of the client is no longer served.",
    ),
    "unavailable": _fault(
        "unavailable", _Error.ERROR_UNSPECIFIED, "Service unavailable", "Simulated: try again in a moment."
    ),
    "internal": _fault("internal", _Error.ERROR_INTERNAL, "Internal error", "Simulated: something broke."),
    # The errors below were recorded by others; see the table of errors in wire/README.md.
    "bare": _bare("resource_exhausted"),
    "quota": _bare("resource_exhausted", "You've hit your usage limit"),
    "outdated": _fault(
        "permission_denied", _Error.ERROR_OUTDATED_CLIENT, "Update Required", "Simulated: this client is too old."
    ),
    "schema": _fault(
        "internal",
        _Error.ERROR_PROVIDER_ERROR,
        "Provider Error",
        "We're having trouble connecting to the model provider. (simulated)",
        providerStatusCode="400",
    ),
    "policy": _fault(
        "failed_precondition",
        _Error.ERROR_MODEL_BLOCKED,
        "Review Data Policy",
        "Simulated: accept the policy of this model in the dashboard first.",
    ),
    "plan": _bare("failed_precondition"),
    "not_in_plan": _bare("failed_precondition", "This model is not included in your plan"),
    "gone": _bare("not_found"),
    "late": _bare("invalid_argument"),
    "region": _fault(
        "permission_denied",
        _Error.ERROR_UNSUPPORTED_REGION,
        "Model not available",
        "Simulated: this model is not served in your region.",
    ),
    "team_region": _bare("failed_precondition", "This region is not yet available for your team"),
    "max_mode": _fault(
        "invalid_argument",
        _Error.ERROR_MAX_MODE_REQUIRED,
        "Max mode required",
        "Simulated: this variant needs max mode.",
    ),
    "denied": _bare("permission_denied"),
    "no_exec": _bare("internal", "No exec result"),
    "picture": _bare("internal", "Unable to parse image"),
    "eof": _bare("unavailable"),
}
"""`eof` is not an error on the wire: named in the newest user message, it ends the stream without a frame."""
VERSION_REFUSALS: Final = {
    "bare": SCRIPTED["bare"],
    "outdated": SCRIPTED["outdated"],
    "update_words": _bare("resource_exhausted", "Update Required"),
}
"""How a client version is refused."""
NOT_FOUND: Final = SCRIPTED["gone"]
UNKNOWN_MODEL: Final = _fault(
    "not_found", _Error.ERROR_BAD_MODEL_NAME, "Unknown model", "Simulated: no such model is available."
)

NOT_SIGNED_IN: Final = _fault(
    "unauthenticated", _Error.ERROR_NOT_LOGGED_IN, "Not logged in", "The call carries no token that is accepted."
)
BLOB_NOT_FOUND: Final = _fault(
    "internal", _Error.ERROR_INTERNAL, "Blob not found", "The client could not give back a blob that its state names."
)
NO_CUSTOM_PROMPT: Final = ConnectError(
    "invalid_argument",
    "Custom system prompt is not enabled for this account. Contact Cursor support to request access.",
    retryable=False,
)
CANCELLED: Final = ConnectError("canceled", "The client ended the run", retryable=False)


def bad_request(message: str) -> ConnectError:
    return _fault("invalid_argument", _Error.ERROR_BAD_REQUEST, message, message)


def unimplemented(path: str) -> ConnectError:
    return ConnectError("unimplemented", f"{path} is not simulated", retryable=False)
