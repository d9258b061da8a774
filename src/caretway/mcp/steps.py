"""What a client sees of a turn with bridged (MCP) calls: calls and their pauses hidden, a new paragraph after them,
usage summed; a step with the client's calls too parks for those. Pure.

In: batches of the inner turn's events. Out: the same without bridged calls, and without the pauses that only they
caused. After `feed`, `to_run` are bridged calls to be started at once, beside whatever the model still says, and
`phase` says who is awaited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, NamedTuple

from ..core.errors import ErrorKind, GatewayError
from ..core.events import (
    AgentActivity,
    Event,
    Note,
    ReasoningDelta,
    Recovered,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from ..core.request import Message, Role, Text, ToolCall, ToolResult
from .catalogue import BridgedTool

Activity = Literal["hidden", "note", "reasoning"]

NOTE_KEY: Final = "mcp_calls"
_SHOWN_ARGUMENTS: Final = 200


class StepPhase(Enum):
    RUNNING = "the inner turn speaks"
    COLLECTING = "results are awaited and then passed on"
    LOST = "the inner turn is lost, and is told all of it anew"
    PARKED = "the client has calls to answer"
    OVER = "the turn has ended"


class BridgedCall(NamedTuple):
    tool: BridgedTool
    arguments: str
    call_id: str


@dataclass(slots=True)
class BridgedStep:
    """What the model said and called since the last results."""

    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    bridged: int = 0
    """How many of the calls are run here."""
    given: tuple[ToolResult, ...] = ()
    """The client's results."""
    extra: tuple[Text, ...] = ()

    @property
    def waits_for_client(self) -> bool:
        return len(self.calls) > self.bridged

    def messages(self, own: Mapping[str, ToolResult]) -> tuple[Message, ...]:
        """The step as history: one answer, one message for each result, and what the user said beside them."""
        results = {**own, **{result.call_id: result for result in self.given}}
        said = "".join(self.text)
        answer = Message(Role.ASSISTANT, (*((Text(said),) if said else ()), *self.calls))
        given = (Message(Role.TOOL, (results[call.id],)) for call in self.calls if call.id in results)
        beside = (Message(Role.USER, self.extra),) if self.extra else ()
        return (answer, *given, *beside)


class StepReader:
    def __init__(self, tools: Mapping[str, BridgedTool], activity: Activity, *, parks: bool) -> None:
        """`tools`: the bridged ones, by the names that the model knows. `parks`: the inner turn can."""
        self.phase = StepPhase.RUNNING
        self.step = BridgedStep()
        self.to_run: list[BridgedCall] = []
        """The taker leaves an empty list."""
        self.worked = False
        """Bridged calls were made: only this turn knows their results, and what starts anew from the client's own
        history would make them again."""
        self.reopened = 0
        self._tools = tools
        self._activity: Activity = activity
        self.parks = parks
        self._hidden: set[str] = set()
        # of the response that is being made
        self._started = False
        self._spoke = False
        """Its text so far does not end with white space."""
        self._apart = False
        """Calls were made since then: what follows is a new paragraph."""
        self._made: list[str] = []
        self._spent: Usage | None = None
        """By the steps of this response that are over."""
        self._usage: Usage | None = None

    @property
    def listens(self) -> bool:
        """The inner turn's events are wanted."""
        return self.phase is StepPhase.RUNNING

    def feed(self, batch: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            match event:
                case TextDelta(text=text):
                    self.step.text.append(text)
                    out.append(self._spoken(text) if self._apart else event)
                    self._spoke = not text[-1:].isspace() if text else self._spoke
                case TurnStarted():
                    if not self._started:
                        self._started = True
                        out.append(event)
                case ToolCallStarted(id=call, name=name) if name in self._tools:
                    self._hidden.add(call)
                case ToolCallDelta(id=call) if call in self._hidden:
                    pass
                case ToolCallReady(id=call, name=name, arguments=arguments):
                    self.step.calls.append(ToolCall(call, name, arguments))
                    if call in self._hidden:
                        self._call(self._tools[name], arguments, call, out)
                    else:
                        out.append(event)
                case UsageReported(usage=usage):
                    self._usage = usage
                    out.append(UsageReported(usage.after(self._spent)))
                case TurnPaused() | TurnEnded():
                    self._pause_or_end(event, out)
                case TurnFailed(error=error) if error.kind is ErrorKind.TURN_GONE and self.worked:
                    self.phase = StepPhase.LOST
                case TurnFailed(error=error):
                    out.append(self.failed(error))
                case Recovered(reopened=reopened):
                    self.reopened = reopened
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def failed(self, error: GatewayError) -> TurnFailed:
        self.phase = StepPhase.OVER
        return TurnFailed(error.after_work() if self.worked else error)

    def passed_on(self) -> None:
        """The step's results are with the model: what it used is spent, and what it says now is the next step."""
        if self._usage is not None:
            self._spent, self._usage = self._usage.after(self._spent), None
        self.begin_step()

    def begin_step(self) -> None:
        self.step = BridgedStep()
        self._hidden.clear()
        self.phase = StepPhase.RUNNING

    def _spoken(self, text: str) -> TextDelta:
        """What follows calls is a paragraph of its own; the client sees no calls that would keep the two apart."""
        self._apart = not text
        return TextDelta(f"\n\n{text}" if text and self._spoke and not text[0].isspace() else text)

    def _call(self, tool: BridgedTool, arguments: str, call_id: str, out: list[Event]) -> None:
        self.worked = True
        self.step.bridged += 1
        self.to_run.append(BridgedCall(tool, arguments, call_id))
        self._apart = True
        self._made.append(tool.id)
        title = f"{tool.server}: {tool.tool.name}"
        out.append(AgentActivity(title))
        if self._activity == "reasoning":
            out.append(ReasoningDelta(f"[{title} {_shortened(arguments)}]\n"))

    def _pause_or_end(self, event: TurnPaused | TurnEnded, out: list[Event]) -> None:
        """An inner turn that cannot park ends with its calls; to us that is a pause like any other."""
        step = self.step
        called = bool(step.calls) and (isinstance(event, TurnPaused) or not self.parks)
        if called and not step.waits_for_client:
            self.phase = StepPhase.COLLECTING
            return
        if self._activity == "note" and self._made:
            out.append(Note(NOTE_KEY, ", ".join(self._made)))
        if called:
            self.phase = StepPhase.PARKED
            out.append(TurnPaused())
        else:
            self.phase = StepPhase.OVER
            out.append(event)
        self._begin_response()

    def _begin_response(self) -> None:
        self._started = self._spoke = self._apart = False
        self._made = []
        self._spent = self._usage = None


def _shortened(arguments: str) -> str:
    return arguments if len(arguments) <= _SHOWN_ARGUMENTS else f"{arguments[:_SHOWN_ARGUMENTS]}…"
