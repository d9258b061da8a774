"""What happens during a turn: a closed union. `match` on it ends in `assert_never`.

The last three are terminal for a response: after `TurnPaused` the turn lives on and waits for tool results. Structs,
like the values of a request: there are hundreds in a turn.
"""

from enum import Enum
from typing import Final

from msgspec import Struct

from .errors import GatewayError
from .request import ToolCall


class RunUsage(Struct, frozen=True, gc=False):
    """What Cursor counted for whole runs, all their model calls together: it says so once, when a run ends. Cached
    tokens are part of `input_tokens`, reasoning is part of `output_tokens`; `None` means nobody said so."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    steps: int = 1
    """Model calls, as far as they were seen."""
    complete: bool = True
    """False: an attempt was lost on the way and nobody counted it; there was more than this."""


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one response: the context its model call read, and what it said. `None` means nobody said so; a number
    is never made up. Cached tokens are part of `input_tokens`."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    """True when at least one of the figures was counted by the gateway and not reported by Cursor."""
    run: RunUsage | None = None
    """On the response that ended a run: the run's own total. It belongs to the run and is no part of the figures above,
    unless the run had this one step only."""


class StopReason(Enum):
    END = "end"
    STOP_SEQUENCE = "stop_sequence"
    LENGTH = "length"
    REFUSAL = "refusal"


class TurnStarted(Struct, frozen=True, gc=False):
    """Upstream accepted the turn and began to work on it."""

    context_tokens: int | None = None
    """About how much the model is going to read: an estimate, for clients that want a figure before there is one."""


class TextDelta(Struct, frozen=True, gc=False):
    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    text: str


class ToolCallStarted(Struct, frozen=True, gc=False):
    id: str
    name: str


class ToolCallDelta(Struct, frozen=True, gc=False):
    id: str
    arguments: str


class ToolCallReady(Struct, frozen=True, gc=False):
    """The call is complete. `arguments` is the whole JSON text, equal to the deltas of this call joined."""

    id: str
    name: str
    arguments: str


class AgentActivity(Struct, frozen=True):
    """A tool that was run on this side (by the agent itself or by a bridge): shown, never answered."""

    title: str
    call: ToolCall | None = None
    """Given when clients that only look on are to see the call itself. It does not make the turn one that called."""


class Recovered(Struct, frozen=True, gc=False):
    """A run was lost, and the turn goes on. For the log and the metrics; no client sees it."""

    how: str
    """The rung of the ladder that was taken (`core.recovery`)."""
    cause: str
    reopened: int = 0
    """Runs that were opened again for this request since the last progress, this one included."""


class UsageReported(Struct, frozen=True):
    usage: Usage


class Note(Struct, frozen=True, gc=False):
    """A finding about the answer that belongs beside it, not in it (e.g. that it does not match its JSON schema)."""

    key: str
    value: str


class TurnPaused(Struct, frozen=True, gc=False):
    """Every call of this step is out; the turn waits for their results."""


class TurnEnded(Struct, frozen=True, gc=False):
    reason: StopReason = StopReason.END
    stop_sequence: str | None = None


class TurnFailed(Struct, frozen=True):
    error: GatewayError


Event = (
    TurnStarted
    | TextDelta
    | ReasoningDelta
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallReady
    | AgentActivity
    | Recovered
    | UsageReported
    | Note
    | TurnPaused
    | TurnEnded
    | TurnFailed
)

TERMINAL: Final = (TurnPaused, TurnEnded, TurnFailed)
"""One of these is the last event of a response."""
