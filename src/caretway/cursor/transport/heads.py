"""Request headers for both transports: lower-case names, hop-by-hop headers left out, forbidden characters (a line
break in a pasted key) refused without showing the value, request ids. Response headers as text. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ..wire.paths import STREAM_TYPE, UNARY_TYPE

RUN_HEADERS: Final[Mapping[str, str]] = {
    "content-type": STREAM_TYPE,
    "connect-protocol-version": "1",
    "connect-accept-encoding": "gzip",
}
REQUEST_ID: Final = "x-request-id"
ORIGINAL_ID: Final = "x-original-request-id"
APPEND_HEADERS: Final[Mapping[str, str]] = {
    "content-type": UNARY_TYPE,
    "connect-protocol-version": "1",
}

_CARRIERS_OWN: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_NOT_IN_VALUES: Final = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


def head(defaults: Mapping[str, str], headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Lower-case names, the caller's word over the default, and nothing that belongs to the carrier. A value that could
    not be sent (a line break in a pasted key, say) is an error that names the header and does not show the value."""
    merged = dict(defaults)
    for name, value in headers.items():
        merged[name.lower()] = value.strip()
    fields = [(name, value) for name, value in merged.items() if name not in _CARRIERS_OWN]
    for name, value in fields:
        if not _NAME.fullmatch(name) or _NOT_IN_VALUES.search(value):
            raise _unsendable(name)
    return fields


def run_ids(request_id: str, original: str) -> list[tuple[str, str]]:
    """What of a run's head is another for each attempt; `original` may be empty."""
    if _NOT_IN_VALUES.search(request_id + original):
        raise _unsendable(REQUEST_ID)
    return [(REQUEST_ID, request_id), (ORIGINAL_ID, original)] if original else [(REQUEST_ID, request_id)]


def _unsendable(name: str) -> GatewayError:
    return GatewayError(
        ErrorKind.BAD_REQUEST,
        f"the header {name!r} for Cursor cannot be sent: it holds characters that HTTP does not allow",
        hint="If it is a key or a token, copy it again without line breaks.",
    )


def read_fields(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Response fields as text with lower-case names; repeated ones are joined, as HTTP has it."""
    found: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
