"""Filters a turn with bridged (MCP) calls for the client: hides these calls and their pauses, starts a new paragraph
after them, and sums usage. A step that also has the client's calls parks for the client's results. Pure.

Input: batches of the inner turn's events. Output: the events without bridged calls and the pauses that only bridged
calls caused. After `feed`, `to_run` holds bridged calls to start at once, while the model may still write; `phase`
shows the turn's state.
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
from .tools import BridgedTool

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
    """The model's text and calls since the last results."""

    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    bridged: int = 0
    """The number of calls that the gateway runs."""
    given: tuple[ToolResult, ...] = ()
    """The client's results."""
    extra: tuple[Text, ...] = ()

    @property
    def waits_for_client(self) -> bool:
        return len(self.calls) > self.bridged

    def messages(self, own: Mapping[str, ToolResult]) -> tuple[Message, ...]:
        """The step as history: one answer, one message for each result, and the user's additional text."""
        results = {**own, **{result.call_id: result for result in self.given}}
        said = "".join(self.text)
        answer = Message(Role.ASSISTANT, (*((Text(said),) if said else ()), *self.calls))
        given = (Message(Role.TOOL, (results[call.id],)) for call in self.calls if call.id in results)
        extra = (Message(Role.USER, self.extra),) if self.extra else ()
        return (answer, *given, *extra)


class StepReader:
    def __init__(self, tools: Mapping[str, BridgedTool], activity: Activity, *, parks: bool) -> None:
        """`tools`: the bridged tools by their names for the model. `parks`: the inner turn can park."""
        self.phase = StepPhase.RUNNING
        self.step = BridgedStep()
        self.to_run: list[BridgedCall] = []
        """Bridged calls to start. The caller takes them and leaves an empty list."""
        self.worked = False
        """Bridged calls were made. Only this turn knows their results; a new run from the client's history would
        repeat them."""
        self.reopened = 0
        self._tools = tools
        self._activity: Activity = activity
        self.parks = parks
        self._hidden: set[str] = set()
        # state of the current response
        self._started = False
        self._spoke = False
        """The response's text does not end with white space."""
        self._apart = False
        """Calls were made since the last text, so the next text starts a new paragraph."""
        self._made: list[str] = []
        self._spent: Usage | None = None
        """The usage of this response's finished steps."""
        self._usage: Usage | None = None

    @property
    def listens(self) -> bool:
        """Whether the inner turn's events are still read."""
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
        """The model has the step's results: add the step's usage and begin the next step."""
        if self._usage is not None:
            self._spent, self._usage = self._usage.after(self._spent), None
        self.begin_step()

    def begin_step(self) -> None:
        self.step = BridgedStep()
        self._hidden.clear()
        self.phase = StepPhase.RUNNING

    def _spoken(self, text: str) -> TextDelta:
        """Text after hidden calls, as a new paragraph, because the client sees no call between the texts."""
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
        """Handle a pause or an end. An inner turn that cannot park ends with its calls, which counts as a pause."""
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
