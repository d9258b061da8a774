"""A turn whose calls to bridged tools are run here: the client sees its own calls, and the answer.

In: the inner turn's events. Out: the same without bridged calls, and without the pauses that only they caused.
Remembered: the calls of the current step, and the whole history including what the client never sees; the loop guard
counts with it, and an inner backend that cannot park is told it anew.

A bridged call starts as soon as it is complete, beside whatever the model still says. When a step has calls of the
client too, the turn parks for them and the bridged results wait with it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from msgspec.structs import replace

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
from ..core.request import Message, Role, Text, ToolCall, ToolResult, TurnRequest
from ..core.source import Pulled, receive
from ..core.turn import Backend, Snapshot, Turn
from ..core.usage import together
from ..tasks import spawn
from .catalogue import BridgedTool

RunCall = Callable[[BridgedTool, str, str], Coroutine[Any, Any, ToolResult]]
"""(tool, arguments, call id) -> always a result."""
Guard = Callable[[TurnRequest], TurnRequest]
"""The request as the model is to be told it; raises GatewayError(TOOL_LOOP) when the loop must end."""
Activity = Literal["hidden", "note", "reasoning"]

NOTE_KEY = "mcp_calls"
_SHOWN_ARGUMENTS = 200


class _Phase(Enum):
    RUNNING = "the inner turn speaks"
    COLLECTING = "results are awaited and then passed on"
    LOST = "the inner turn is lost, and is told all of it anew"
    PARKED = "the client has calls to answer"


@dataclass(slots=True)
class _Step:
    """What the model said and called since the last results."""

    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    running: dict[str, asyncio.Task[ToolResult]] = field(default_factory=dict)
    """Bridged calls, by their id."""
    given: tuple[ToolResult, ...] = ()
    extra: tuple[Text, ...] = ()

    @property
    def waits_for_client(self) -> bool:
        return len(self.calls) > len(self.running)

    def messages(self, own: Mapping[str, ToolResult]) -> tuple[Message, ...]:
        """The step as history: one answer, one message for each result, and what the user said beside them."""
        results = {**own, **{result.call_id: result for result in self.given}}
        said = "".join(self.text)
        answer = Message(Role.ASSISTANT, (*((Text(said),) if said else ()), *self.calls))
        told = (Message(Role.TOOL, (results[call.id],)) for call in self.calls if call.id in results)
        beside = (Message(Role.USER, self.extra),) if self.extra else ()
        return (answer, *told, *beside)


class BridgedTurn(Pulled):
    def __init__(
        self,
        backend: Backend,
        inner: Turn,
        told: TurnRequest,
        tools: Mapping[str, BridgedTool],
        *,
        run: RunCall,
        guard: Guard,
        activity: Activity,
    ) -> None:
        self._backend = backend
        self._inner = inner
        self._told = told
        self._tools = tools
        self._run = run
        self._guard = guard
        self._activity = activity
        self._phase = _Phase.RUNNING
        self._step = _Step()
        self._hidden: set[str] = set()
        self._moving: asyncio.Task[GatewayError | None] | None = None
        self._worked = False
        """Bridged calls were made: only this turn knows their results, and whoever starts anew from the client's own
        history would make them again."""
        self._reopened = 0
        self._closed = False
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

    # ---- Turn

    async def receive(self) -> list[Event]:
        while True:
            if self._phase in (_Phase.COLLECTING, _Phase.LOST) and (error := await self._move_on()) is not None:
                return [TurnFailed(error.after_work() if self._worked else error)]
            if events := self._digest(await receive(self._inner)):
                return events

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        if self._phase is not _Phase.PARKED or self._closed:
            raise GatewayError(ErrorKind.TURN_GONE, "The turn does not wait for results.")
        step = self._step
        step.given, step.extra = tuple(results), tuple(extra)
        if step.running or not self._backend.abilities.parks:
            self._phase = _Phase.COLLECTING  # its end may take minutes: the response waits for it, not this call
            return
        try:
            await self._inner.submit(results, extra)
        except GatewayError as gone:
            if gone.kind is not ErrorKind.TURN_GONE or not self._worked:
                raise
            self._phase = _Phase.COLLECTING
            return
        self._remember(step.messages({}))
        self._begin_step()

    def snapshot(self) -> Snapshot | None:
        return self._inner.snapshot()

    async def aclose(self) -> None:
        self._closed = True
        if self._moving is not None:
            self._moving.cancel()
        self._cancel_calls()
        await self._inner.aclose()

    # ---- results go back

    async def _move_on(self) -> GatewayError | None:
        """In a task of its own: a reader may be cancelled and come back, results are passed on once."""
        if self._closed:
            raise GatewayError(ErrorKind.CANCELLED, "The gateway is stopping.")
        if self._moving is None:
            work = self._pass_on() if self._phase is _Phase.COLLECTING else self._go_on()
            self._moving = spawn(work, "mcp-step")
        moving = self._moving
        try:
            error = await asyncio.shield(moving)
        except asyncio.CancelledError:
            if self._closed:  # not the reader was cancelled but the turn
                raise GatewayError(ErrorKind.CANCELLED, "The gateway is stopping.") from None
            raise
        self._moving = None
        return error

    async def _pass_on(self) -> GatewayError | None:
        step = self._step
        own = {call_id: await task for call_id, task in step.running.items()}
        before = self._told
        self._remember(step.messages(own))
        told = self._told
        try:
            if step.running:
                told = self._guard(told)
            if not self._backend.abilities.parks or not await self._submitted(step, _told_results(told, before, own)):
                await self._start_anew(told)
        except GatewayError as error:
            return error
        if self._usage is not None:
            self._spent, self._usage = together(self._spent, self._usage), None
        self._begin_step()
        return None

    async def _submitted(self, step: _Step, own: Sequence[ToolResult]) -> bool:
        """False: the inner turn is gone, with nothing sent."""
        try:
            await self._inner.submit([*step.given, *own], step.extra)
        except GatewayError as gone:
            if gone.kind is not ErrorKind.TURN_GONE:
                raise
            return False
        return True

    async def _go_on(self) -> GatewayError | None:
        try:
            await self._start_anew(self._told)
        except GatewayError as error:
            return error
        self._begin_step()
        return None

    async def _start_anew(self, told: TurnRequest) -> None:
        await self._inner.aclose()
        self._inner = await self._backend.start(replace(told, reopened=self._reopened))

    def _remember(self, messages: Sequence[Message]) -> None:
        self._told = replace(self._told, messages=(*self._told.messages, *messages))

    def _begin_step(self) -> None:
        self._step = _Step()
        self._hidden.clear()
        self._phase = _Phase.RUNNING

    def _cancel_calls(self) -> None:
        for task in self._step.running.values():
            task.cancel()

    # ---- events

    def _digest(self, batch: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            match event:
                case TextDelta(text=text):
                    self._step.text.append(text)
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
                    self._step.calls.append(ToolCall(call, name, arguments))
                    if call in self._hidden:
                        self._call(self._tools[name], arguments, call, out)
                    else:
                        out.append(event)
                case UsageReported(usage=usage):
                    self._usage = usage
                    out.append(UsageReported(together(self._spent, usage)))
                case TurnPaused() | TurnEnded():
                    self._pause_or_end(event, out)
                case TurnFailed(error=error) if error.kind is ErrorKind.TURN_GONE and self._worked:
                    self._phase = _Phase.LOST
                case TurnFailed(error=error):
                    self._cancel_calls()
                    out.append(TurnFailed(error.after_work()) if self._worked else event)
                case Recovered(reopened=reopened):
                    self._reopened = reopened
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def _spoken(self, text: str) -> TextDelta:
        """What follows calls is a paragraph of its own; the client sees no calls that would keep the two apart."""
        self._apart = not text
        return TextDelta(f"\n\n{text}" if text and self._spoke and not text[0].isspace() else text)

    def _call(self, tool: BridgedTool, arguments: str, call_id: str, out: list[Event]) -> None:
        self._worked = True
        self._step.running[call_id] = spawn(self._run(tool, arguments, call_id), f"mcp-call-{tool.id}")
        self._apart = True
        self._made.append(tool.id)
        title = f"{tool.server}: {tool.tool.name}"
        out.append(AgentActivity(title))
        if self._activity == "reasoning":
            out.append(ReasoningDelta(f"[{title} {_shortened(arguments)}]\n"))

    def _pause_or_end(self, event: TurnPaused | TurnEnded, out: list[Event]) -> None:
        """An inner turn that cannot park ends with its calls; to us that is a pause like any other."""
        step = self._step
        called = bool(step.calls) and (isinstance(event, TurnPaused) or not self._backend.abilities.parks)
        if called and not step.waits_for_client:
            self._phase = _Phase.COLLECTING
            return
        if self._activity == "note" and self._made:
            out.append(Note(NOTE_KEY, ", ".join(self._made)))
        if called:
            self._phase = _Phase.PARKED
            out.append(TurnPaused())
        else:
            self._cancel_calls()
            out.append(event)
        self._begin_response()

    def _begin_response(self) -> None:
        self._started = self._spoke = self._apart = False
        self._made = []
        self._spent = self._usage = None


def _told_results(told: TurnRequest, before: TurnRequest, own: Mapping[str, ToolResult]) -> list[ToolResult]:
    """Our own results as the guard wants them told: it may have added a word to them."""
    newest = (part for message in told.messages[len(before.messages) :] for part in message.parts)
    return [part for part in newest if isinstance(part, ToolResult) and part.call_id in own]


def _shortened(arguments: str) -> str:
    return arguments if len(arguments) <= _SHOWN_ARGUMENTS else f"{arguments[:_SHOWN_ARGUMENTS]}…"
