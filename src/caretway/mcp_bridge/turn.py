"""A turn whose calls to bridged tools are run here: the client sees its own calls, and the answer.

It listens to the inner turn; `steps.py` decides what is shown and what is to be done, in the callback that brought the
events. Tasks are only the bridged calls and the passing on of their results. Remembered here is the whole history,
including what the client never sees: the loop guard counts with it, and an inner backend that cannot park is told it
anew. While this turn's own buffer is full nothing is taken from the inner turn, whose buffer then holds upstream back.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.event_buffer import EventBuffer
from ..core.request import Message, Text, ToolResult, TurnRequest
from ..core.turn import Backend, Snapshot, Turn
from ..tasks import spawn
from .catalogue import BridgedTool
from .steps import Activity, StepPhase, StepReader

RunCall = Callable[[BridgedTool, str, str], Coroutine[Any, Any, ToolResult]]
"""(tool, arguments, call id) -> always a result."""
Guard = Callable[[TurnRequest], TurnRequest]
"""The request as the model is to be told it; raises GatewayError(TOOL_LOOP) when the loop must end."""
AHEAD_BYTES: Final = 64 * 1024
"""How far this turn reads ahead of its reader. The inner turn has a buffer of its own behind that."""


class BridgedTurn:
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
        self._told = told
        self._run = run
        self._guard = guard
        self._reader = StepReader(tools, activity, parks=backend.abilities.parks)
        self._running: dict[str, asyncio.Task[ToolResult]] = {}
        """The bridged calls of this step, by their id."""
        self._moving: asyncio.Task[None] | None = None
        self._closed = False
        self._buffer = EventBuffer(AHEAD_BYTES, on_drained=self._hear_soon)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self._inner = inner
        inner.listen(self._hear)
        self._hear()

    # ---- Turn

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        reader = self._reader
        if reader.phase is not StepPhase.PARKED or self._closed:
            raise GatewayError(ErrorKind.TURN_GONE, "The turn does not wait for results.")
        step = reader.step
        step.given, step.extra = tuple(results), tuple(extra)
        if not self._running and self._backend.abilities.parks:
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
        reader.phase = StepPhase.COLLECTING  # its end may take minutes: the response waits for it, not this call
        self._move_on()

    def snapshot(self) -> Snapshot | None:
        return self._inner.snapshot()

    def close(self) -> None:
        self._closed = True
        if self._moving is not None:
            self._moving.cancel()
        self._cancel_calls()
        self._inner.close()
        self._buffer.close()

    async def aclose(self) -> None:
        self.close()
        await self._inner.aclose()

    # ---- the inner turn

    def _hear_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._hear)

    def _hear(self) -> None:
        """Something can be taken from the inner turn, and this one has room for it."""
        reader = self._reader
        if self._closed or self._buffer.full or not reader.listens:
            return
        try:
            events = reader.feed(self._inner.take())
        except Exception as failure:
            self._buffer.close(failure)
            return
        calls, reader.to_run = reader.to_run, []
        for tool, arguments, call_id in calls:
            self._running[call_id] = spawn(self._run(tool, arguments, call_id), f"mcp-call-{tool.id}")
        if reader.phase is StepPhase.OVER:
            self._cancel_calls()
        elif reader.phase in (StepPhase.COLLECTING, StepPhase.LOST):
            self._move_on()
        self._buffer.put(events)

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
                await self._start_anew(self._told)
                reader.begin_step()
        except GatewayError as error:
            self._moving = None
            self._buffer.put([reader.failed(error)])
            return
        except Exception as failure:
            self._moving = None
            self._buffer.close(failure)
            return
        self._moving = None
        self._running = {}
        self._hear()

    async def _pass_on(self) -> None:
        step = self._reader.step
        own = {call_id: await task for call_id, task in self._running.items()}
        before = self._told
        self._remember(step.messages(own))
        told = self._guard(self._told) if own else self._told
        if self._backend.abilities.parks:
            try:
                await self._inner.submit([*step.given, *_told_results(told, before, own)], step.extra)
            except GatewayError as gone:
                if gone.kind is not ErrorKind.TURN_GONE:
                    raise
            else:
                return
        await self._start_anew(told)

    async def _start_anew(self, told: TurnRequest) -> None:
        await self._inner.aclose()
        self._inner = await self._backend.start(replace(told, reopened=self._reader.reopened))
        self._inner.listen(self._hear)

    def _remember(self, messages: Sequence[Message]) -> None:
        self._told = replace(self._told, messages=(*self._told.messages, *messages))


def _told_results(told: TurnRequest, before: TurnRequest, own: Mapping[str, ToolResult]) -> list[ToolResult]:
    """Our own results as the guard wants them told: it may have added a word to them."""
    newest = (part for message in told.messages[len(before.messages) :] for part in message.parts)
    return [part for part in newest if isinstance(part, ToolResult) and part.call_id in own]
