"""Runs the bridged (MCP) calls of a turn. Passes their results to the inner turn, or the whole history to a new inner
turn if the old turn is gone or cannot park. Applies the loop guard, and cancels the calls when the turn closes.

In the callback that brings the inner turn's events (`core/event_buffer.py`), `steps.py` decides what to show and to do.
The turn keeps the whole history, including calls that the client never sees.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.event_buffer import OuterTurn
from ..core.events import Event
from ..core.request import Message, Text, ToolResult, TurnRequest
from ..core.turn import Backend, Guard, Turn, takes_results
from ..processes.tasks import spawn
from .catalogue import BridgedTool
from .steps import Activity, StepPhase, StepReader

RunCall = Callable[[BridgedTool, str, str], Coroutine[Any, Any, ToolResult]]
"""(tool, arguments, call id) -> the result; a failure is also a result."""


class BridgedTurn(OuterTurn):
    def __init__(
        self,
        backend: Backend,
        inner: Turn,
        request: TurnRequest,
        tools: Mapping[str, BridgedTool],
        *,
        run: RunCall,
        guard: Guard,
        activity: Activity,
    ) -> None:
        super().__init__(inner)
        self._backend = backend
        self._request = request
        self._run = run
        self._guard = guard
        self._reader = StepReader(tools, activity, parks=takes_results(inner, backend))
        self._running: dict[str, asyncio.Task[ToolResult]] = {}
        """Call id -> the running bridged call of this step."""
        self._moving: asyncio.Task[None] | None = None
        self._follow(inner)

    # ---- the reader's side

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        reader = self._reader
        if reader.phase is not StepPhase.PARKED or self._closed:
            raise GatewayError(ErrorKind.TURN_GONE, "The turn does not wait for results.")
        if demanded:  # bridged tools were offered, which a demanded call excludes
            raise GatewayError(ErrorKind.TURN_GONE, "A call of a certain tool is demanded.")
        step = reader.step
        step.given, step.extra = tuple(results), tuple(extra)
        if not self._running and self._reader.parks:
            try:
                await self._inner.submit(results, extra)
            except GatewayError as gone:
                if gone.kind is not ErrorKind.TURN_GONE or not reader.worked:
                    raise
            else:
                self._remember(step.messages({}))
                reader.begin_step()
                self._hear()
                return
        reader.phase = StepPhase.COLLECTING  # the calls may take minutes: the response waits for them, not this method
        self._move_on()

    def close(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
        self._cancel_calls()
        super().close()

    # ---- the inner turn

    @property
    def _listens(self) -> bool:
        return self._reader.listens

    def _digest(self, batch: list[Event]) -> list[Event]:
        reader = self._reader
        events = reader.feed(batch)
        calls, reader.to_run = reader.to_run, []
        for tool, arguments, call_id in calls:
            self._running[call_id] = spawn(self._run(tool, arguments, call_id), f"mcp-call-{tool.id}")
        if reader.phase is StepPhase.OVER:
            self._cancel_calls()
        elif reader.phase in (StepPhase.COLLECTING, StepPhase.LOST):
            self._move_on()
        return events

    def _cancel_calls(self) -> None:
        for task in self._running.values():
            task.cancel()

    # ---- results go back

    def _move_on(self) -> None:
        self._moving = spawn(self._moved_on(), "mcp-step")

    async def _moved_on(self) -> None:
        reader = self._reader
        try:
            if reader.phase is StepPhase.COLLECTING:
                await self._pass_on()
                reader.passed_on()
            else:
                await self._start_anew(self._request)
                reader.begin_step()
        except GatewayError as error:
            self._moving = None
            self._buffer.put([reader.failed(error)])
            return
        except Exception as failure:  # any failure goes to the reader, because no caller awaits this task
            self._moving = None
            self._buffer.close(failure)
            return
        self._moving = None
        self._running = {}
        self._hear()

    async def _pass_on(self) -> None:
        step = self._reader.step
        own = {call_id: await task for call_id, task in self._running.items()}
        before = self._request
        self._remember(step.messages(own))
        request = self._guard(self._request) if own else self._request
        if self._reader.parks:
            try:
                await self._inner.submit([*step.given, *_own_results(request, before, own)], step.extra)
            except GatewayError as gone:
                if gone.kind is not ErrorKind.TURN_GONE:
                    raise
            else:
                return
        await self._start_anew(request)

    async def _start_anew(self, request: TurnRequest) -> None:
        await self._inner.aclose()
        inner = await self._backend.start(replace(request, reopened=self._reader.reopened))
        self._reader.parks = takes_results(inner, self._backend)
        self._follow(inner)

    def _remember(self, messages: Sequence[Message]) -> None:
        self._request = replace(self._request, messages=(*self._request.messages, *messages))


def _own_results(request: TurnRequest, before: TurnRequest, own: Mapping[str, ToolResult]) -> list[ToolResult]:
    """The results of bridged calls, to which the loop guard may have added text."""
    newest = (part for message in request.messages[len(before.messages) :] for part in message.parts)
    return [part for part in newest if isinstance(part, ToolResult) and part.call_id in own]
