"""The events of a turn as a closed union (text, reasoning, calls, usage, pause, end, failure), and the values usage and
stop reason. No behaviour.

A `match` on the union ends in `assert_never`. The last three events are terminal for a response; after `TurnPaused` the
turn stays alive and waits for tool results. Events are structs, because a turn has hundreds.
"""

from enum import Enum
from typing import Final, TypeVar, final

from msgspec import Struct
from msgspec.structs import replace

from .errors import GatewayError
from .request import ToolCall


class Tokens(Struct, frozen=True, gc=False):
    """Tokens that models read and wrote. `input_tokens` includes cached tokens, and `output_tokens` includes reasoning.
    `None` means unknown; no number is invented."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def fresh(self) -> int:
        """Input that was neither read from the cache nor written to it."""
        fresh = (self.input_tokens or 0) - (self.cache_read_tokens or 0) - (self.cache_write_tokens or 0)
        return max(0, fresh)


class RunUsage(Tokens, frozen=True, gc=False):
    """Cursor's count for whole runs, with all their model calls. Cursor reports it once, when a run ends."""

    steps: int = 1
    """Model calls that the gateway saw."""
    complete: bool = True
    """False: a lost attempt is not counted, so the real figures are higher."""
    cents: float | None = None
    """Cursor's estimate of the value in cents."""
    charged_cents: float | None = None
    """The part to be paid beyond the plan."""

    def plus(self, other: "RunUsage") -> "RunUsage":
        """The sum of two runs. A figure that only one run has is kept."""
        return RunUsage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cache_read_tokens, other.cache_read_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            steps=self.steps + other.steps,
            complete=self.complete and other.complete,
            cents=_sum(self.cents, other.cents),
            charged_cents=_sum(self.charged_cents, other.charged_cents),
        )


class Usage(Tokens, frozen=True, gc=False):
    """Tokens of one response: the context that its model call read, and its output."""

    estimated: bool = False
    """True if the gateway estimated at least one figure."""
    shared_tokens: int | None = None
    """For a step in a tool loop without `cache_read_tokens`: the part of the input that the previous step has read. An
    estimate for clients; ledger and budgets do not use it."""
    run: RunUsage | None = None
    """The run's total, on the response that ended the run. The figures above do not include it, unless the run had only
    this step."""

    @property
    def cached(self) -> int | None:
        """Tokens read from the cache, for clients: reported or estimated."""
        return self.shared_tokens if self.cache_read_tokens is None else self.cache_read_tokens

    def after(self, earlier: "Usage | None") -> "Usage":
        """The usage of a response with several model calls or runs (a bridge's tool loop, a correction): the input is
        the last context, the output and the runs are sums."""
        if earlier is None:
            return self
        thought = earlier.reasoning_tokens is not None and self.reasoning_tokens is not None
        return replace(
            self,
            output_tokens=_sum(earlier.output_tokens, self.output_tokens),
            reasoning_tokens=_sum(earlier.reasoning_tokens, self.reasoning_tokens) if thought else None,
            estimated=earlier.estimated or self.estimated,
            run=earlier.run.plus(self.run) if earlier.run and self.run else earlier.run or self.run,
        )


Number = TypeVar("Number", int, float)


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return other if one is None else one if other is None else one + other


class StopReason(Enum):
    END = "end"
    STOP_SEQUENCE = "stop_sequence"
    LENGTH = "length"
    REFUSAL = "refusal"


class TurnStarted(Struct, frozen=True, gc=False):
    """Upstream accepted the turn and began to work on it."""

    context_tokens: int | None = None
    """Estimated input tokens, for clients that need a figure at the start."""
    adapted: str = ""
    """A description of the changes that make the model's vendor accept the request."""
    pictures: str = ""
    """Why the model may not see the images of the request."""
    conversation: str = ""
    """The conversation's id at Cursor; empty if unknown."""


@final
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
    """A tool that ran without the client (in the agent or in the gateway): shown, never answered."""

    title: str
    call: ToolCall | None = None
    """Set if clients should display the call itself. It does not count as a call of the turn."""


class WebSource(Struct, frozen=True, gc=False):
    """A page that a web search found."""

    url: str
    title: str = ""
    text: str = ""
    """The beginning of the part that was found."""


class WebSearch(Struct, frozen=True):
    """Cursor searches the web itself. Reported when a search begins and again when it is over, and only to clients
    that offer their provider's web search."""

    id: str
    """Differs from those of the turn's other searches."""
    query: str
    found: tuple[WebSource, ...] | None = None
    """None while the search runs."""
    failed: bool = False


class Recovered(Struct, frozen=True, gc=False):
    """A run was lost and the turn continues. For the log and the metrics; no client sees it."""

    how: str
    """The recovery step that was taken (`core.recovery`)."""
    cause: str
    reopened: int = 0
    """How many runs were reopened for this request since the last progress, this one included."""
    adapted: str = ""
    """A description of the changes for the next run, as in `TurnStarted`."""


class UsageReported(Struct, frozen=True):
    usage: Usage


class Note(Struct, frozen=True, gc=False):
    """A remark about the answer that is not part of it (e.g. that it does not match its JSON schema)."""

    key: str
    value: str


class TurnPaused(Struct, frozen=True, gc=False):
    """The client has every call of this step; the turn waits for their results."""


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
    | WebSearch
    | Recovered
    | UsageReported
    | Note
    | TurnPaused
    | TurnEnded
    | TurnFailed
)

TERMINAL: Final = (TurnPaused, TurnEnded, TurnFailed)
"""One of these is the last event of a response."""


# ---- The legal order of events as one table: a call is started once, ready once, and complete before a pause or an
# end. A broken order is a bug of the backend.
#
# `EventOrder` checks the events of one response and raises `OrderBroken` with the state and the event. Its state: the
# table's state, and the calls so far.


class OrderState(Enum):
    FRESH = "before the first event"
    OPEN = "in the middle"
    CALLED = "after a tool call"
    OVER = "after the end"

    __hash__ = object.__hash__  # Enum.__hash__ is a Python function


class OrderBroken(RuntimeError):
    """Events came in a forbidden order: the code that made them has a bug."""


_OF_CALLS: Final = frozenset({ToolCallStarted, ToolCallDelta, ToolCallReady})
_ANYWHERE: Final[tuple[type, ...]] = (
    TextDelta,
    ReasoningDelta,
    ToolCallStarted,
    ToolCallDelta,
    ToolCallReady,
    AgentActivity,
    WebSearch,
    Recovered,
    UsageReported,
    Note,
)

MOVES: Final[dict[OrderState, dict[type, OrderState]]] = {
    OrderState.FRESH: {Recovered: OrderState.FRESH, TurnStarted: OrderState.OPEN, TurnFailed: OrderState.OVER},
    OrderState.OPEN: dict.fromkeys(_ANYWHERE, OrderState.OPEN)
    | {ToolCallReady: OrderState.CALLED, TurnEnded: OrderState.OVER, TurnFailed: OrderState.OVER},
    OrderState.CALLED: dict.fromkeys(_ANYWHERE, OrderState.CALLED)
    | {TurnPaused: OrderState.OVER, TurnEnded: OrderState.OVER, TurnFailed: OrderState.OVER},
    OrderState.OVER: {},
}


class EventOrder:
    __slots__ = ("_calls", "state")

    def __init__(self) -> None:
        self.state = OrderState.FRESH
        self._calls: dict[str, bool] = {}  # every call so far -> whether it is open

    def check(self, event: Event) -> None:
        after = MOVES[self.state].get(type(event))
        if after is None:
            raise OrderBroken(f"{type(event).__name__} is not allowed {self.state.value}")
        if self._calls or type(event) in _OF_CALLS:
            self._check_calls(event)
        self.state = after

    def _check_calls(self, event: Event) -> None:
        match event:
            case ToolCallStarted(id=call):
                if call in self._calls:  # also after ready: clients answer by id, so an id is used once
                    raise OrderBroken(f"call {call} was started twice")
                self._calls[call] = True
            case ToolCallDelta(id=call):
                if not self._calls.get(call):
                    raise OrderBroken(f"arguments for call {call}, which is not open")
            case ToolCallReady(id=call):
                if not self._calls.get(call):
                    raise OrderBroken(f"call {call} is ready and was never started")
                self._calls[call] = False
            case TurnPaused() | TurnEnded():
                if still := sorted(call for call, is_open in self._calls.items() if is_open):
                    raise OrderBroken(f"{type(event).__name__} while calls are open: {still}")
            case _:
                pass
