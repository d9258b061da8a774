"""How many tool calls a turn may have, how large one may be, how much of them is remembered; and the error for more."""

from typing import Final

from ...core.errors import ErrorKind, GatewayError

MAX_CALLS: Final = 20_000
"""Of one turn, finished ones included: their ids are remembered."""
MAX_OPEN_CALLS: Final = 512
"""Calls that are being written, asked for, or answered and in no checkpoint."""
MAX_WIRE_IDS: Final = 8
"""Of one call: each attempt may use others."""
MAX_ARGUMENT_CHARS: Final = 1024 * 1024
"""Of one call, as JSON. It is quoted in the answer, some dialects say it several times, and all of that at once."""
MAX_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Arguments and results that are kept until a checkpoint holds them. Of more, the oldest results are forgotten."""


def too_much(what: str) -> GatewayError:
    return GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor made {what}.", hint="Ask for less in one turn.")
