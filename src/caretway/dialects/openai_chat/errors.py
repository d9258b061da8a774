"""ErrorKind -> OpenAI's HTTP status, error `type` and `code`, for Chat Completions and Responses (429 overloaded, 409,
402 quota, context_length_exceeded ...). One table.
"""

from typing import Final

import msgspec
from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError


class ChatErrorRow(Struct, frozen=True):
    status: int
    type: str
    code: str
    """Used when the error has no code of its own."""


ERRORS: Final[dict[ErrorKind, ChatErrorRow]] = {
    ErrorKind.BAD_REQUEST: ChatErrorRow(400, "invalid_request_error", "invalid_request"),
    ErrorKind.UNSUPPORTED: ChatErrorRow(400, "invalid_request_error", "unsupported"),
    ErrorKind.NOT_FOUND: ChatErrorRow(404, "invalid_request_error", "not_found"),
    ErrorKind.WRONG_METHOD: ChatErrorRow(405, "invalid_request_error", "method_not_allowed"),
    ErrorKind.WRONG_PROTOCOL: ChatErrorRow(426, "invalid_request_error", "websocket_version"),
    ErrorKind.TOO_LARGE: ChatErrorRow(413, "invalid_request_error", "request_too_large"),
    ErrorKind.HEAD_TOO_LARGE: ChatErrorRow(431, "invalid_request_error", "headers_too_large"),
    ErrorKind.SLOW_REQUEST: ChatErrorRow(408, "invalid_request_error", "request_timeout"),
    ErrorKind.ACCESS_DENIED: ChatErrorRow(401, "authentication_error", "invalid_api_key"),
    ErrorKind.SIGNED_OUT: ChatErrorRow(401, "authentication_error", "not_authenticated"),
    ErrorKind.FORBIDDEN: ChatErrorRow(403, "permission_error", "forbidden"),
    ErrorKind.REFUSED: ChatErrorRow(403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: ChatErrorRow(400, "invalid_request_error", "model_not_found"),
    ErrorKind.CONTEXT_TOO_LONG: ChatErrorRow(400, "invalid_request_error", "context_length_exceeded"),
    ErrorKind.QUOTA: ChatErrorRow(402, "insufficient_quota", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: ChatErrorRow(429, "rate_limit_error", "rate_limited"),
    ErrorKind.OVERLOADED: ChatErrorRow(429, "rate_limit_error", "overloaded"),
    ErrorKind.TOOL_LOOP: ChatErrorRow(502, "api_error", "tool_loop_detected"),
    ErrorKind.TURN_GONE: ChatErrorRow(409, "invalid_request_error", "turn_gone"),
    ErrorKind.IN_PROGRESS: ChatErrorRow(409, "invalid_request_error", "turn_in_progress"),
    ErrorKind.UPSTREAM_DOWN: ChatErrorRow(503, "api_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_PROTOCOL: ChatErrorRow(502, "api_error", "upstream_protocol"),
    ErrorKind.UPSTREAM_DEPRECATED: ChatErrorRow(502, "api_error", "upstream_deprecated"),
    ErrorKind.UPSTREAM_ERROR: ChatErrorRow(502, "api_error", "upstream_error"),
    ErrorKind.TIMEOUT: ChatErrorRow(504, "api_error", "upstream_timeout"),
    ErrorKind.CANCELLED: ChatErrorRow(503, "api_error", "cancelled"),
    ErrorKind.INTERNAL: ChatErrorRow(500, "internal_error", "server_error"),
}


def encode_error(error: GatewayError) -> tuple[int, bytes]:
    """HTTP status and body. The same body is the last data frame of a stream that failed: there, no header can say
    any more whether asking again helps."""
    wire = ERRORS[error.kind]
    body: dict[str, object] = {
        "message": str(error),
        "type": wire.type,
        "code": error.code or wire.code,
        "param": error.param,
        "status": wire.status,
        "should_retry": error.may_repeat,
    }
    if error.reason:
        body["reason"] = error.reason
    return wire.status, msgspec.json.encode({"error": body})
