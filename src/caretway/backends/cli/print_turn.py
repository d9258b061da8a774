"""A turn in print mode: one process with the prompt on stdin (argv is limited in length), a silence timeout,
another process if one died before the client has seen anything, backpressure.

The process group is ended if the client disconnects, if the process is silent for too long, if it stays after the
terminal line, and when the gateway stops.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.errors import ErrorKind, GatewayError
from ...core.event_buffer import EventBuffer
from ...core.events import Event, TurnFailed, TurnStarted
from ...core.recovery import Fact, Loss, NewRuns, Remedy
from ...core.request import Text, ToolResult
from ...core.turn import Snapshot
from ...processes.child import Child, Command, Exit
from ...processes.lines import LineReader
from ...processes.tasks import spawn
from .print_translate import PrintTranslator
from .process import AgentChildGroup, Slot
from .program import CliLimits, safe_chat_id
from .prompt import CliChat, write_chat


@dataclass(frozen=True, slots=True)
class Launch:
    """The input of one process."""

    command: Command
    prompt: bytes
    chat: CliChat
    """The chat to continue; its id is empty for a new chat."""
    parent: bytes | None
    throw_away: Path | None = None
    """A directory that is deleted after the turn."""


class PrintTurn:
    def __init__(
        self,
        backend: str,
        launch: Launch,
        translate: Callable[[], PrintTranslator],
        slot: Slot,
        children: AgentChildGroup,
        limits: CliLimits,
        failed: Callable[[GatewayError], None],
        keep: Callable[[CliChat], None],
        opened: int = 0,
    ) -> None:
        """`opened`: how many new runs earlier turns of the request opened."""
        self._backend = backend
        self._launch = launch
        self._translate = translate
        self._translator = translate()
        self._slot = slot
        self._children = children
        self._limits = limits
        self._on_failure = failed
        self._on_kept = keep
        self._runs = NewRuns(opened)
        self._pending: list[Event] = []
        """Events without visible output, held back because a retry would repeat them."""
        self._shown = False
        self._loop = asyncio.get_running_loop()
        self._lines = LineReader(limits.line_bytes)
        self._buffer = EventBuffer(limits.buffer_bytes, self._hold_back, self._go_on)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self._child: Child | None = None
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._beginning = self._begin_soon()

    # ---- the reader's side

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "cursor-agent's process has ended.")

    def snapshot(self) -> Snapshot | None:
        translator, chat = self._translator, self._launch.chat
        if not translator.succeeded or not safe_chat_id(translator.session_id):
            return None
        kept = CliChat(translator.session_id, chat.workspace, chat.mode, chat.via, chat.turns + 1)
        self._on_kept(kept)
        return write_chat(self._backend, kept, self._launch.parent)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._buffer.close()
        self._beginning.cancel()
        if self._child is None:
            return  # a process that is being started ends with its task
        if self._translator.succeeded:
            self._child.resume()  # the process ends on its own
        else:
            self._child.terminate()

    async def aclose(self) -> None:
        self.close()
        if self._child is None:
            await asyncio.wait([self._beginning])
        elif not self._translator.succeeded:
            await self._child.wait()

    # ---- the process

    def _begin_soon(self) -> "asyncio.Task[None]":
        beginning = spawn(self._begin(), "cursor-agent-print")
        beginning.add_done_callback(self._begun)
        return beginning

    async def _begin(self) -> None:
        launch = self._launch
        try:
            await self._slot.reached()
            child = await self._children.start(launch.command, self)
        except GatewayError as error:
            self._leave()
            self._fail(error)
            return
        if child.over:
            return  # it died at once, and `ended` was called
        self._child = child
        self._heard_at = self._loop.time()
        self._rearm()
        child.write(launch.prompt)
        child.close_stdin()

    def _begun(self, beginning: "asyncio.Task[None]") -> None:
        """Release the slot of a cancelled task, which may not have started."""
        if beginning.cancelled():
            self._leave()

    def data(self, data: bytes) -> None:
        """Report one read as one batch. Only records are signs of life, because other output may never end."""
        events: list[Event] = []
        known = self._translator.records
        for line in self._lines.feed(data):
            events += self._translator.feed(line)
        if self._translator.records > known:
            self._heard_at = self._loop.time()
        if self._translator.misheard:
            self._stop()
        if events and self._translator.over:
            self._ending(events[-1])
        self._put(events)

    def _hold_back(self) -> None:
        if self._child is not None:
            self._child.pause()

    def _go_on(self) -> None:
        self._heard_at = self._loop.time()
        if self._child is not None:
            self._child.resume()

    def _put(self, events: list[Event]) -> None:
        """Pass events to the reader. Call this last, because the reader may close the turn."""
        self._pending += events
        self._shown = self._shown or any(not isinstance(event, TurnStarted) for event in events)
        if self._shown:
            events, self._pending = self._pending, []
            self._buffer.put(events)

    def _ending(self, last: Event) -> None:
        if isinstance(last, TurnFailed):
            self._on_failure(last.error)
            self._stop()
        else:
            self._set_timer(self._limits.exit_grace, self._stop)

    def ended(self, exit_: Exit) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._closed or self._translator.over:
            self._leave()
            return
        events: list[Event] = []
        for line in self._lines.finish():
            events += self._translator.feed(line)
        events += self._translator.finish(exit_.code, exit_.stderr)
        last = events[-1]
        if isinstance(last, TurnFailed):
            remedy, events = self._after_failure(events, last.error)
            if remedy is Remedy.NEW_RUN:
                self._pending, self._child = [], None
                self._translator, self._lines = self._translate(), LineReader(self._limits.line_bytes)
                self._beginning = self._begin_soon()
                self._buffer.put(events)
                return
        self._leave()
        self._put(events)

    def _after_failure(self, events: list[Event], error: GatewayError) -> tuple[Remedy, list[Event]]:
        """The remedy after a program that died or did not reach Cursor, and the events to report."""
        step, news = self._runs.lost(
            Loss.PROGRAM if error.kind is ErrorKind.UPSTREAM_DOWN else Loss.FINAL,
            (Fact.SEEN, self._shown or len(events) > 1),
            (Fact.IN_CHAT, bool(self._launch.chat.id)),
        )
        match step.remedy:
            case Remedy.NEW_RUN:
                return step.remedy, news
            case Remedy.FRESH_RUN:
                return step.remedy, [
                    *news,
                    TurnFailed(GatewayError(ErrorKind.TURN_GONE, "The resumed chat broke off.")),
                ]
            case _:
                error = replace(error, message=step.message(error.message))
                self._on_failure(error)
                return step.remedy, [*events[:-1], TurnFailed(error)]

    def _leave(self) -> None:
        self._slot.leave()
        if self._launch.throw_away is not None:
            shutil.rmtree(self._launch.throw_away, ignore_errors=True)

    def _stop(self) -> None:
        if self._child is not None:
            self._child.terminate()

    def _fail(self, error: GatewayError) -> None:
        if not self._translator.over:
            self._translator.over = True
            self._put([TurnFailed(error)])

    # ---- the clock

    def _set_timer(self, delay: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, act)

    def _rearm(self) -> None:
        limits = self._limits
        allowed = limits.tool_progress if self._translator.tool_open else limits.progress
        silent = 0.0 if self._buffer.full else self._loop.time() - self._heard_at
        if silent < allowed:
            self._set_timer(allowed - silent, self._rearm)
            return
        self._fail(GatewayError(ErrorKind.TIMEOUT, f"cursor-agent wrote nothing that can be read for {silent:.0f} s."))
        self._stop()
