"""Connect errors as JSON, read and written: the end-of-stream frame, the body of a failed unary call, Cursor's details
in base64, broken JSON. What a code means is `cursor/transport/faults.py`.

In: JSON bytes. Out: `ConnectError` or None for success.
"""

import base64
import binascii
from typing import Any, Final, cast

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Struct

from .messages import ai

DETAILS_TYPE: Final = "aiserver.v1.ErrorDetails"


class ConnectError(Struct, frozen=True):
    code: str
    """Connect's own code: `unauthenticated`, `resource_exhausted` ..."""
    message: str = ""
    error: int = 0
    """Cursor's `ErrorDetails.Error`; 0 when there were no details."""
    title: str = ""
    detail: str = ""
    retryable: bool | None = None
    info: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Cursor's name for the error, without the prefix: `BAD_MODEL_NAME`; empty when unknown."""
        value = ai.ErrorDetails.Error.DESCRIPTOR.values_by_number.get(self.error)
        return value.name.removeprefix("ERROR_") if value and self.error else ""


class ErrorSyntax(ValueError):
    """The JSON is not a Connect error."""


_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises on bytes that are no JSON: bad UTF-8 and deep nesting have exceptions of their own."""


def write_end(error: ConnectError | None = None) -> bytes:
    """The payload of an end-of-stream frame."""
    return b"{}" if error is None else msgspec.json.encode({"error": _to_json(error)})


def write_unary(error: ConnectError) -> bytes:
    """The body of a unary call that failed."""
    return msgspec.json.encode(_to_json(error))


def read_end(payload: bytes) -> ConnectError | None:
    """The outcome that an end-of-stream frame announces."""
    try:
        value = msgspec.json.decode(payload) if payload.strip() else {}
    except _NOT_JSON as broken:
        raise ErrorSyntax(f"the end-of-stream frame is not JSON: {broken}") from broken
    if not isinstance(value, dict):
        raise ErrorSyntax("the end-of-stream frame is not a JSON object")
    error = value.get("error")
    if error is None:
        return None
    if not isinstance(error, dict):
        raise ErrorSyntax("the end-of-stream error is not a JSON object")
    return _from_json(error)


def read_unary(body: bytes) -> ConnectError | None:
    """The error in the body of a failed unary call; None when the body is something else (a proxy's page, say)."""
    try:
        value = msgspec.json.decode(body)
    except _NOT_JSON:
        return None
    return _from_json(value) if isinstance(value, dict) and isinstance(value.get("code"), str) else None


def _to_json(error: ConnectError) -> dict[str, Any]:
    value: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.error or error.title or error.detail or error.retryable is not None or error.info:
        details = ai.ErrorDetails(error=cast("ai.ErrorDetails.Error", error.error))  # its number, known to us or not
        details.details.title = error.title
        details.details.detail = error.detail
        if error.retryable is not None:
            details.details.is_retryable = error.retryable
        for key, text in error.info:
            details.details.additional_info[key] = text
        packed = base64.b64encode(details.SerializeToString()).decode().rstrip("=")
        value["details"] = [{"type": DETAILS_TYPE, "value": packed}]
    return value


def _from_json(error: dict[str, Any]) -> ConnectError:
    code, message, details = error.get("code"), error.get("message"), error.get("details")
    if not isinstance(code, str) or not code:
        code = "unknown"  # as Connect itself calls a code that it does not know
    if not isinstance(message, str):
        message = ""
    for item in details if isinstance(details, list) else []:
        if isinstance(item, dict) and item.get("type") == DETAILS_TYPE and isinstance(item.get("value"), str):
            try:
                packed = base64.b64decode(item["value"] + "=" * (-len(item["value"]) % 4), validate=True)
                read = ai.ErrorDetails.FromString(packed)
            except (binascii.Error, DecodeError, ValueError):
                continue  # details only refine the code, which we have
            inner = read.details
            return ConnectError(
                code,
                message,
                error=read.error,
                title=inner.title,
                detail=inner.detail,
                retryable=inner.is_retryable if inner.HasField("is_retryable") else None,
                info=tuple(sorted(inner.additional_info.items())),
            )
    return ConnectError(code, message)
