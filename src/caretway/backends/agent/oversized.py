"""Tool calls whose arguments are too large: the model is told as the tool's result and may try again, 8 times in a
turn; a call of which the client has the beginning ends the turn.

`wire.heavy.Oversized` marks them. A client that has the beginning of such a call cannot be told that it is void.
"""

from typing import Final

from ...core.errors import ErrorKind, GatewayError
from ...core.json_bounds import crowded
from ...core.request import Text, ToolResult
from ...cursor.wire.heavy import MAX_ASKED_BYTES
from ...cursor.wire.messages import pb
from ..builtin_tools import execs
from .arguments import complete
from .wire_calls import mcp_answer

MAX_OVERSIZED: Final = 8
"""Of one turn. A model that does not learn from so many answers never will."""
_LIMIT: Final = f"at most {MAX_ASKED_BYTES // 1024} KiB and about 5,000 values in one call"
_TOLD: Final = f"The arguments of this call are too large ({_LIMIT}). Nothing was done. Make several smaller calls."


def whole(text: str) -> bool:
    """The model's own text of a call is all of it, and no more than can be worked on."""
    return bool(text) and not crowded(text) and complete(text)


def too_large(exec_: pb.ExecServerMessage) -> list[bytes]:
    """The answer to the exec: a tool that says no."""
    if exec_.WhichOneof("message") != "mcp_args":
        return execs.refuse(exec_, _TOLD)
    return mcp_answer(exec_.id, ToolResult("", (Text(_TOLD),), is_error=True))


def cannot_go_on(name: str, *, begun: bool) -> GatewayError:
    why = "and the client has its beginning already" if begun else f"for the {MAX_OVERSIZED + 1}th time in this turn"
    return GatewayError(
        ErrorKind.UPSTREAM_PROTOCOL,
        f"The model called `{name[:200]}` with arguments that are too large ({_LIMIT}), {why}.",
        hint="Do not run that call. Ask for smaller steps, for instance to write a large file in parts.",
        code="tool_call_too_large",
    )
