"""A turn in ACP mode: borrows a warm process, sends the prompt, and cancels it if the client is gone, without losing
the process. The loop guard's warning is sent as another prompt; if
the loop continues, the process is ended.

The prompt has no time limit. Only silence, or a process that ignores a cancel, ends it.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...core.errors import ErrorKind, GatewayError
from ...core.event_buffer import EventBuffer
from ...core.events import Event, TurnFailed
from ...core.recovery import Fact, Loss, NewRuns, Remedy
from ...core.request import Text, ToolResult
from ...core.turn import Snapshot
from ...processes.tasks import spawn
from .acp_agent import AcpAgent, AcpSetup, RpcError
from .acp_translate import AcpTranslator
from .faults import Circumstances
from .models import NO_WISH, ModelWish
from .process import AgentChildGroup, Slot
from .program import CliLimits, Work
from .prompt import CliChat, Prompt, write_chat

# ---- The pool of warm ACP processes: matched by build, workspace, model and mode; one turn at a time for each; ended
# when idle, dead, full of sessions or without their directory; the oldest idle process makes room.
#
# `Slots` limits the number of turns; the pool limits the number of processes.

Prepare = Callable[[Work], AcpSetup]


@dataclass(slots=True, eq=False)
class Warm:
    agent: AcpAgent
    key: tuple[object, ...]
    timer: asyncio.TimerHandle | None = None


class AcpPool:
    def __init__(
        self, children: AgentChildGroup, prepare: Prepare, *, processes: int, idle: float, max_sessions: int
    ) -> None:
        self._children = children
        self._prepare = prepare
        self._processes = processes
        self._idle_for = idle
        self._max_sessions = max_sessions
        self._idle: list[Warm] = []  # longest idle first
        self._busy: set[Warm] = set()

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def take(self, work: Work, build: object, session: str = "") -> Warm:
        """A process for this work, preferably one that holds `session`. The caller must `give` or `drop` it."""
        key = (build, work.workspace, _place(work.workspace), work.model, work.mode, work.force)
        for old in [warm for warm in self._idle if warm.key[0] != build]:
            self._let_go(old)  # the program was updated
        for old in [warm for warm in self._idle if warm.key[1] == key[1] and warm.key[2] != key[2]]:
            self._let_go(old)  # its directory was deleted and created again
        fitting = [warm for warm in self._idle if warm.key == key and warm.agent.alive]
        if fitting:
            warm = next((one for one in fitting if session in one.agent.sessions), fitting[-1])
            self._remove(warm)
            self._busy.add(warm)
            return warm
        warm = Warm(AcpAgent(self._prepare(work)), key)
        self._busy.add(warm)
        try:
            await self._make_room()
            await warm.agent.start(self._children)
        except BaseException:
            self._busy.discard(warm)
            raise
        return warm

    def give(self, warm: Warm) -> None:
        """Return the process to the pool, or end it if it is dead or has reached its limit of sessions."""
        self._busy.discard(warm)
        if not warm.agent.alive or len(warm.agent.sessions) >= self._max_sessions:
            spawn(warm.agent.aclose(), "cursor-agent-acp-full")
            return
        self._idle.append(warm)
        warm.timer = asyncio.get_running_loop().call_later(self._idle_for, self._let_go, warm)
        if len(self._idle) > self._processes:  # processes of paused turns came back above the limit
            self._let_go(self._idle[0])

    async def drop(self, warm: Warm) -> None:
        """End the process, which did not stop when asked."""
        self._busy.discard(warm)
        await warm.agent.aclose()

    async def _make_room(self) -> None:
        while self._idle and len(self._idle) + len(self._busy) > self._processes:
            oldest = self._idle[0]
            self._remove(oldest)
            with contextlib.suppress(GatewayError):
                await oldest.agent.aclose()

    def _let_go(self, warm: Warm) -> None:
        self._remove(warm)
        spawn(warm.agent.aclose(), "cursor-agent-acp-idle")

    def _remove(self, warm: Warm) -> None:
        if warm in self._idle:
            self._idle.remove(warm)
        if warm.timer is not None:
            warm.timer.cancel()
            warm.timer = None

    async def aclose(self) -> None:
        for warm in list(self._idle):
            self._remove(warm)
            await warm.agent.aclose()


def _place(workspace: str) -> tuple[int, int] | None:
    """The device and inode of the directory; None if it cannot be read."""
    try:
        found = os.stat(workspace)
    except OSError:
        return None  # the start of a program in the directory reports the error
    return found.st_dev, found.st_ino


TOLD_GRACES: Final = 5
"""The silence, as a multiple of `exit_grace`, that is allowed after a prompt was cancelled for a warning."""


@dataclass(frozen=True, slots=True)
class AcpLaunch:
    work: Work
    """`work.resume` is the session to continue; empty for a new session."""
    build: object
    prompt: Prompt
    turns: int
    """The number of earlier turns in the session."""
    parent: bytes | None
    at: Circumstances
    wish: ModelWish = NO_WISH


def loss_of(error: GatewayError) -> Loss:
    return Loss.PROGRAM if error.kind is ErrorKind.UPSTREAM_DOWN and not error.code else Loss.FINAL


class AcpTurn:
    def __init__(
        self,
        backend: str,
        launch: AcpLaunch,
        translator: AcpTranslator,
        slot: Slot,
        pool: AcpPool,
        limits: CliLimits,
        failed: Callable[[GatewayError], None],
        keep: Callable[[CliChat], None],
        opened: int = 0,
    ) -> None:
        """`opened`: how many new runs earlier turns of the request opened."""
        self._backend = backend
        self._runs = NewRuns(opened)
        self._launch = launch
        self._translator = translator
        self._slot = slot
        self._pool = pool
        self._limits = limits
        self._on_failure = failed
        self._on_kept = keep
        self._shown = False
        self._loop = asyncio.get_running_loop()
        self._buffer = EventBuffer(limits.buffer_bytes, self._hold_back, self._go_on)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self._session = ""
        self._telling = ""
        """The correction for the model, sent as soon as its prompt is cancelled."""
        self._looped = False
        """The loop guard has ended the turn, so the process is ended too."""
        self._heard_at = 0.0
        self._warm: Warm | None = None
        self._closing: asyncio.Future[None] = self._loop.create_future()
        """Done when the client is gone and the prompt must be cancelled."""
        self._resting = False
        """The program waits for the gateway, so its silence does not count."""
        self._running = spawn(self._run(), "cursor-agent-acp")

    # ---- the reader's side

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise GatewayError(ErrorKind.TURN_GONE, "cursor-agent's turn has ended.")

    def snapshot(self) -> Snapshot | None:
        if not self._translator.succeeded or not self._session:
            return None
        work = self._launch.work
        kept = CliChat(self._session, work.workspace, work.mode, "acp", self._launch.turns + 1)
        self._on_kept(kept)
        return write_chat(self._backend, kept, self._launch.parent)

    def close(self) -> None:
        self._buffer.close()
        if not self._closing.done():
            self._closing.set_result(None)
        if self._warm is not None:
            self._warm.agent.resume()

    async def aclose(self) -> None:
        """Close the turn and wait until the process is back in the pool or dead."""
        self.close()
        await asyncio.wait([self._running])

    # ---- the prompt

    async def _run(self) -> None:
        try:
            await self._slot_reached()
            if not self._closing.done():
                await self._tried()
        except GatewayError as error:
            self._failed(error)
        finally:
            self._slot.leave()
            self._left()

    def _left(self) -> None:
        """Hook for subclasses: the run is over."""

    async def _tried(self) -> None:
        """Send the prompt, in another process if one died or could not reach Cursor before any output."""
        while True:
            try:
                return await self._prompted()
            except GatewayError as error:
                if self._closing.done():
                    raise
                step, news = self._runs.lost(
                    loss_of(error), (Fact.SEEN, self._shown), (Fact.IN_CHAT, bool(self._launch.work.resume))
                )
                self._buffer.put_soon(news)
                if step.remedy is Remedy.FRESH_RUN:
                    raise GatewayError(ErrorKind.TURN_GONE, "The resumed session broke off.") from error
                if step.remedy is not Remedy.NEW_RUN:
                    raise replace(error, message=step.message(error.message)) from error
                self._begins_again()

    def _begins_again(self) -> None:
        """Hook for subclasses: the process is lost, and another one gets the prompt."""

    async def _prompted(self) -> None:
        work = self._launch.work
        self._warm = warm = await self._pool.take(work, self._launch.build, work.resume)
        kept = False
        try:
            if self._launch.prompt.images and not warm.agent.takes_images:
                kept = True
                raise GatewayError(ErrorKind.UNSUPPORTED, "This build of cursor-agent takes no images.")
            kept = await self._converse(warm)
        finally:
            self._warm = None
            warm.agent.resume()  # this turn's slow reader must not pause the next turn
            if kept:
                self._pool.give(warm)
            else:
                await self._pool.drop(warm)

    async def _converse(self, warm: Warm) -> bool:
        """Run the prompts of the turn. Returns whether the process is fit for another turn."""
        agent = warm.agent
        await self._open_session(agent)
        if self._closing.done():
            return True
        self._heard_at = self._loop.time()
        prompt: Prompt | None = self._launch.prompt
        while prompt is not None:
            answered = agent.prompt(self._session, prompt, self._update)
            if not await self._answer(answered):
                agent.cancel(self._session)
                await asyncio.wait([answered], timeout=self._limits.exit_grace)
                return answered.done() and agent.alive and not self._looped
            try:
                prompt = self._ended(answered.result())
            except RpcError as refused:
                self._failed(agent.explain(refused, self._launch.at))
                prompt = None
        return agent.alive and not self._looped

    def _ended(self, result: object) -> Prompt | None:
        """Handle the prompt's answer. Returns the next prompt if this one was cancelled for a correction."""
        correction, self._telling = self._telling, ""
        cancelled = isinstance(result, dict) and result.get("stopReason") == "cancelled"
        if correction and cancelled and not self._closing.done():
            self._translator.corrected()
            return Prompt(correction)
        self._take(self._translator.result(result))
        return None

    async def _open_session(self, agent: AcpAgent) -> None:
        work, wish = self._launch.work, self._launch.wish
        if not work.resume:
            self._session = await agent.new_session(work.workspace, wish=wish)
        elif work.resume in agent.sessions:
            await agent.go_on(work.resume, wish)
            self._session = work.resume
        else:
            await agent.load_session(work.resume, work.workspace, wish=wish)
            self._session = work.resume

    async def _answer(self, answered: "asyncio.Future[Any]") -> bool:
        """Wait for the answer. Returns False, to cancel the prompt, after a disconnect or too long a silence."""
        while True:
            allowed = self._limits.tool_progress if self._translator.tool_open else self._limits.progress
            silent = 0.0 if self._buffer.full or self._resting else self._loop.time() - self._heard_at
            patience = self._limits.exit_grace * TOLD_GRACES
            if self._telling and silent >= patience:
                why = f"cursor-agent was warned that it repeats itself, and was silent for {silent:.0f} s."
                self._failed(GatewayError(ErrorKind.TIMEOUT, why))
                return False
            if silent >= allowed:
                self._failed(GatewayError(ErrorKind.TIMEOUT, f"cursor-agent was silent for {silent:.0f} s."))
                return False
            await self._first_of(answered, min(allowed - silent, patience))  # a warning changes the limit
            if answered.done():
                return True
            if self._closing.done():
                return False

    async def _slot_reached(self) -> None:
        """Wait until the slot is reached or the client is gone."""
        reached = spawn(self._slot.reached(), "cursor-agent-acp-slot")
        await self._first_of(reached)
        reached.cancel()

    async def _first_of(self, waited: "asyncio.Future[Any]", timeout: float | None = None) -> None:
        """Wait for `waited`, the client's disconnect, or the timeout."""
        await asyncio.wait([waited, self._closing], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def _update(self, update: Mapping[str, Any]) -> None:
        self._heard_at = self._loop.time()
        self._take(self._translator.update(update))
        correction, self._translator.correction = self._translator.correction, ""
        if correction and not self._telling and self._warm is not None:
            self._telling = correction
            self._warm.agent.cancel(self._session)

    def _hold_back(self) -> None:
        if self._warm is not None:
            self._warm.agent.pause()

    def _go_on(self) -> None:
        self._heard_at = self._loop.time()
        if self._warm is not None:
            self._warm.agent.resume()

    def _take(self, events: list[Event]) -> None:
        self._shown = self._shown or bool(events)
        if events and isinstance(events[-1], TurnFailed):
            self._on_failure(events[-1].error)
            self._looped = self._looped or events[-1].error.kind is ErrorKind.TOOL_LOOP
        self._buffer.put_soon(events)

    def _failed(self, error: GatewayError) -> None:
        self._take(self._translator.failed(error))
