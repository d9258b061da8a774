"""ErrorKind -> OpenAI's HTTP status, `type` and `code`. One table; a test checks that no kind is missing."""

from dataclasses import dataclass
from typing import Final

import msgspec

from ...core.errors import ErrorKind, GatewayError


@dataclass(frozen=True, slots=True)
class Wire:
    status: int
    type: str
    code: str
    """Used when the error has no code of its own."""


ERRORS: Final[dict[ErrorKind, Wire]] = {
    ErrorKind.BAD_REQUEST: Wire(400, "invalid_request_error", "invalid_request"),
    ErrorKind.UNSUPPORTED: Wire(400, "invalid_request_error", "unsupported"),
    ErrorKind.NOT_FOUND: Wire(404, "invalid_request_error", "not_found"),
    ErrorKind.WRONG_METHOD: Wire(405, "invalid_request_error", "method_not_allowed"),
    ErrorKind.TOO_LARGE: Wire(413, "invalid_request_error", "request_too_large"),
    ErrorKind.HEAD_TOO_LARGE: Wire(431, "invalid_request_error", "headers_too_large"),
    ErrorKind.SLOW_REQUEST: Wire(408, "invalid_request_error", "request_timeout"),
    ErrorKind.ACCESS_DENIED: Wire(401, "authentication_error", "invalid_api_key"),
    ErrorKind.SIGNED_OUT: Wire(401, "authentication_error", "not_authenticated"),
    ErrorKind.FORBIDDEN: Wire(403, "permission_error", "forbidden"),
    ErrorKind.MODEL_UNKNOWN: Wire(400, "invalid_request_error", "model_not_found"),
    ErrorKind.CONTEXT_TOO_LONG: Wire(400, "invalid_request_error", "context_length_exceeded"),
    ErrorKind.QUOTA: Wire(402, "insufficient_quota", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: Wire(429, "rate_limit_error", "rate_limited"),
    ErrorKind.OVERLOADED: Wire(429, "rate_limit_error", "overloaded"),
    ErrorKind.TOOL_LOOP: Wire(502, "api_error", "tool_loop_detected"),
    ErrorKind.TURN_GONE: Wire(409, "invalid_request_error", "turn_gone"),
    ErrorKind.IN_PROGRESS: Wire(409, "invalid_request_error", "turn_in_progress"),
    ErrorKind.UPSTREAM_DOWN: Wire(503, "api_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_PROTOCOL: Wire(502, "api_error", "upstream_protocol"),
    ErrorKind.UPSTREAM_DEPRECATED: Wire(502, "api_error", "upstream_deprecated"),
    ErrorKind.UPSTREAM_ERROR: Wire(502, "api_error", "upstream_error"),
    ErrorKind.TIMEOUT: Wire(504, "api_error", "upstream_timeout"),
    ErrorKind.CANCELLED: Wire(503, "api_error", "cancelled"),
    ErrorKind.INTERNAL: Wire(500, "internal_error", "server_error"),
}


def encode_error(error: GatewayError) -> tuple[int, bytes]:
    """HTTP status and body. The same body is the last data frame of a stream that failed."""
    wire = ERRORS[error.kind]
    body = {
        "message": str(error),
        "type": wire.type,
        "code": error.code or wire.code,
        "param": error.param,
        "status": wire.status,
    }
    return wire.status, msgspec.json.encode({"error": body})
