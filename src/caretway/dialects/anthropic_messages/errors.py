"""ErrorKind -> Anthropic's HTTP status and error `type` (529 overloaded, "prompt is too long" for clients that compact,
409, 402 ...). One table.

Anthropic has a handful of types for everything; what exactly happened is in `details.error_code`, as in its own bodies.
"""

from typing import Final

import msgspec
from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError

THREAD_UNSUPPORTED: Final = "thread_unsupported_request"
"""The code with which anthropic-python gives up message threads and sends the whole history from then on."""


class MessagesErrorRow(Struct, frozen=True):
    status: int
    type: str
    code: str
    """Used when the error has no code of its own."""
    prefix: str = ""
    """Words that clients look for at the beginning of the message."""


ERRORS: Final[dict[ErrorKind, MessagesErrorRow]] = {
    ErrorKind.BAD_REQUEST: MessagesErrorRow(400, "invalid_request_error", "invalid_request"),
    ErrorKind.UNSUPPORTED: MessagesErrorRow(400, "invalid_request_error", "unsupported"),
    ErrorKind.NOT_FOUND: MessagesErrorRow(404, "not_found_error", "not_found"),
    ErrorKind.WRONG_METHOD: MessagesErrorRow(405, "invalid_request_error", "method_not_allowed"),
    ErrorKind.WRONG_PROTOCOL: MessagesErrorRow(426, "invalid_request_error", "websocket_version"),
    ErrorKind.TOO_LARGE: MessagesErrorRow(413, "request_too_large", "request_too_large"),
    ErrorKind.HEAD_TOO_LARGE: MessagesErrorRow(431, "request_too_large", "headers_too_large"),
    ErrorKind.SLOW_REQUEST: MessagesErrorRow(408, "invalid_request_error", "request_timeout"),
    ErrorKind.ACCESS_DENIED: MessagesErrorRow(401, "authentication_error", "invalid_api_key"),
    ErrorKind.SIGNED_OUT: MessagesErrorRow(401, "authentication_error", "not_authenticated"),
    ErrorKind.FORBIDDEN: MessagesErrorRow(403, "permission_error", "forbidden"),
    ErrorKind.REFUSED: MessagesErrorRow(403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: MessagesErrorRow(400, "invalid_request_error", "model_not_found"),
    # Claude Code knows by these words that the conversation has to be compacted.
    ErrorKind.CONTEXT_TOO_LONG: MessagesErrorRow(
        400, "invalid_request_error", "context_length_exceeded", prefix="prompt is too long"
    ),
    ErrorKind.QUOTA: MessagesErrorRow(402, "billing_error", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: MessagesErrorRow(429, "rate_limit_error", "rate_limited"),
    ErrorKind.OVERLOADED: MessagesErrorRow(529, "overloaded_error", "overloaded"),
    ErrorKind.TOOL_LOOP: MessagesErrorRow(502, "api_error", "tool_loop_detected"),
    ErrorKind.TURN_GONE: MessagesErrorRow(409, "invalid_request_error", "turn_gone"),
    ErrorKind.IN_PROGRESS: MessagesErrorRow(409, "invalid_request_error", "turn_in_progress"),
    ErrorKind.UPSTREAM_DOWN: MessagesErrorRow(503, "overloaded_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_PROTOCOL: MessagesErrorRow(502, "api_error", "upstream_protocol"),
    ErrorKind.UPSTREAM_DEPRECATED: MessagesErrorRow(502, "api_error", "upstream_deprecated"),
    ErrorKind.UPSTREAM_ERROR: MessagesErrorRow(502, "api_error", "upstream_error"),
    ErrorKind.TIMEOUT: MessagesErrorRow(504, "timeout_error", "upstream_timeout"),
    ErrorKind.CANCELLED: MessagesErrorRow(503, "api_error", "cancelled"),
    ErrorKind.INTERNAL: MessagesErrorRow(500, "api_error", "server_error"),
}


def encode_error(error: GatewayError) -> tuple[int, bytes]:
    """HTTP status and body. The same body is the last event of a stream that failed."""
    wire = ERRORS[error.kind]
    message = str(error)
    if wire.prefix and wire.prefix not in message.lower():
        message = f"{wire.prefix}: {message}"
    details: dict[str, object] = {"error_code": error.code or wire.code, "should_retry": error.may_repeat}
    if error.reason:
        details["reason"] = error.reason
    if error.code == THREAD_UNSUPPORTED:
        details["unsupported"] = ["thread"]
    elif error.param is not None:
        details["param"] = error.param
    body = {"type": "error", "error": {"type": wire.type, "message": message, "details": details}}
    return wire.status, msgspec.json.encode(body)
