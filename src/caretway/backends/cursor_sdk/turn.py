"""A turn on the SDK: client calls wait as callbacks for their results, when a step of calls is complete, an early check
of a refused key, progress timeout, a broken stream or dead bridge, backpressure.

The results of the follow-up request resolve the callbacks and the same run goes on. The run's stream is read all the
while, also when the turn is parked, so that a bridge that dies is noticed at once.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from ...core.errors import ErrorKind, GatewayError
from ...core.estimate import tokens
from ...core.event_buffer import EventBuffer, weight
from ...core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    UsageReported,
)
from ...core.request import Text, ToolResult
from ...core.tally import Tally
from ...core.turn import Snapshot
from ...tasks import spawn
from .agents import AgentPosition, write_position
from .bridge import SdkBridge
from .callbacks import Invocation, ToolAnswer
from .compose import SdkOpening
from .faults import bridge_lost
from .options import fault, network_error, refusal, sdk_errors, tool_answer
from .translate import Translator

log = logging.getLogger(__name__)

CLEAN_UP_S: Final = 5.0
CANCEL_GRACE_S: Final = 1.0
"""How long a broken stream waits to learn whether the bridge died."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    progress: float = 90.0
    tool_progress: float = 600.0
    sibling_quiet: float = 0.2
    announced_quiet: float = 2.0
    """The same while a call is announced whose callback has not come."""
    key_check: float = 2.0
    """After this much silence the key is checked: the SDK may try again for 15 s before it says that it is bad."""
    buffer_bytes: int = 2**20
    """Of events that wait for their reader, and of those that wait for the next response of a paused turn."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run with everything sent, the agent that has it, and the bridge that is leased for it."""

    bridge: SdkBridge
    agent: Any
    run: Any


class Host(Protocol):
    """What a turn asks of the backend."""

    async def open(self, turn: "SdkTurn") -> OpenRun: ...

    def ended(self, turn: "SdkTurn") -> None:
        """The run ended well: from now on its conversation can be continued."""
        ...

    async def close(self, turn: "SdkTurn", opened: OpenRun | None) -> None:
        """Whatever `open` did is undone; without an end the agent is forgotten."""
        ...

    async def key_is_refused(self, bridge: SdkBridge) -> GatewayError | None: ...


class SdkPhase(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    OVER = "over"


@dataclass(slots=True)
class SdkCall:
    answer: "asyncio.Future[ToolAnswer]"
    events: list[Event] = field(default_factory=list)
    shown: bool = False


class SdkTurn:
    def __init__(
        self,
        backend: str,
        position: AgentPosition,
        opening: SdkOpening,
        host: Host,
        limits: TurnLimits,
        *,
        known_tokens: int = 0,
    ) -> None:
        """`known_tokens`: what the model reads beside the opening, as far as it is known."""
        self.position = position
        """The agent, and how many turns it has finished before this one."""
        self.opening = opening
        self.ended = False
        self.parent: bytes | None = None
        self._backend = backend
        self._host = host
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._phase = SdkPhase.RUNNING
        self._room = asyncio.Event()
        """Set while the buffer has room: backpressure for whoever reads the run."""
        self._room.set()
        self._buffer = EventBuffer(limits.buffer_bytes, self._room.clear, self._room.set)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self._started = False
        self._later: list[Event] = []
        """What came while the turn was paused: for the next response."""
        self._later_bytes = 0
        self._calls: dict[str, SdkCall] = {}
        self._names = frozenset(tool.name for tool in opening.tools)
        self._tally = Tally(known_tokens + tokens(opening.prompt_chars))
        self._translator = Translator(self._tally)
        self._spoken = 0
        self._progressed = self._loop.time()
        self._pause_timer: asyncio.TimerHandle | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[OpenRun | Exception] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def unseen(self) -> int:
        """How much more the model read than was known of when the turn began; known at its end."""
        return self._translator.unseen

    @property
    def reached(self) -> AgentPosition:
        """Where the conversation is when this turn has ended."""
        return AgentPosition(self.position.agent, self.position.turns + 1, self._translator.conversation)

    # ---- the reader's side

    def start(self) -> None:
        # A task of its own: cut off in the middle it would leave a run behind whose name nobody knows.
        self._opening = spawn(self._open(), "open-sdk-run")
        self._pump = spawn(self._carry(), "sdk-run")
        self._tick()

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = ()) -> None:
        open_calls = {name: call for name, call in self._calls.items() if call.shown and not call.answer.done()}
        if self._phase is not SdkPhase.PAUSED or not open_calls.keys() <= {result.call_id for result in results}:
            raise GatewayError(ErrorKind.TURN_GONE, "The turn does not wait for these results.")
        answers = [result for result in results if result.call_id in open_calls]
        self._tally.next_response(answers)
        self._phase = SdkPhase.RUNNING
        self._progressed = self._loop.time()
        for result in answers:
            beside = tuple(extra) if result is answers[-1] else ()
            open_calls[result.call_id].answer.set_result(tool_answer(result, beside))
        held, self._later, self._later_bytes = self._later, [], 0
        self._show(held)
        self._reveal()
        self._tick()

    def snapshot(self) -> Snapshot | None:
        if not self.ended:
            return None
        return Snapshot(self._backend, write_position(self.reached), parent=self.parent)

    def close(self) -> None:
        self._begin_closing()

    async def aclose(self) -> None:
        await asyncio.wait({self._begin_closing()}, timeout=CLEAN_UP_S)

    def _begin_closing(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._over()
            self._closing = spawn(self._close(), "close-sdk-turn")
            self._buffer.close()
        return self._closing

    async def _close(self) -> None:
        pump = self._pump
        if pump is not None and not pump.done():
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        for call in self._calls.values():
            call.answer.cancel()
        opened = await self._opening if self._opening is not None else None
        await self._host.close(self, opened if isinstance(opened, OpenRun) else None)

    # ---- the run

    async def _open(self) -> OpenRun | Exception:
        """Both who carries the run and who closes the turn want to know: a failure is a value here."""
        try:
            return await self._host.open(self)
        except Exception as failure:  # whatever it is: raised again where the run is carried
            return failure

    async def _carry(self) -> None:
        """From the first word to the end of the run's stream; a failure is an event."""
        checking: asyncio.Task[None] | None = None
        bridge: SdkBridge | None = None
        try:
            assert self._opening is not None
            opened = await asyncio.shield(self._opening)
            if isinstance(opened, Exception):
                raise opened
            bridge = opened.bridge
            self._progressed = self._loop.time()
            checking = spawn(self._check_key(bridge), "sdk-key-check")
            async for record in opened.run.events():
                self._feed(record)
                if self._phase is SdkPhase.OVER:
                    return
                await self._room.wait()
            self._fail(GatewayError(ErrorKind.UPSTREAM_PROTOCOL, "The SDK's stream ended without a result."))
        except GatewayError as failure:
            self._fail(failure)
        except network_error() as failure:
            self._fail(await _why_broken(failure, bridge))
        except sdk_errors() as failure:
            self._fail(fault(failure))
        except Exception:  # a bug of ours or the SDK's: nobody waits for this task, so the reader is told
            log.exception("a run failed unexpectedly")
            self._fail(GatewayError(ErrorKind.INTERNAL, "The gateway failed; its log has the details."))
        finally:
            if checking is not None:
                checking.cancel()

    async def _check_key(self, bridge: SdkBridge) -> None:
        await asyncio.sleep(self._limits.key_check)
        if self._phase is SdkPhase.RUNNING and not self._spoken and not self._calls:
            refused = await self._host.key_is_refused(bridge)
            if refused is not None and not self._spoken:
                self._fail(refused)

    def _feed(self, record: Any) -> None:
        if record.sdk_message is None and record.result is None:
            return  # a sign of life of the bridge: no progress
        self._progressed = self._loop.time()
        events = self._translator.feed(record)
        for event in events:
            if isinstance(event, TextDelta | ReasoningDelta):
                self._spoken += len(event.text)
        self._show(events)
        if self._pause_timer is not None:
            self._settle()

    # ---- client calls

    async def called(self, invocation: Invocation) -> ToolAnswer:
        """The bridge wants a tool. The same call again, after a retry of the SDK's, is the same call."""
        if self._phase is SdkPhase.OVER:
            return refusal("The turn is over.")
        if not self.opening.calls_allowed:
            return refusal("Tools are switched off for this turn: answer in text.")
        if invocation.tool not in self._names:
            return refusal(f"There is no tool `{invocation.tool}`. There are: {', '.join(sorted(self._names))}.")
        call_id = invocation.call_id or f"call_{uuid.uuid4().hex}"
        call = self._calls.get(call_id)
        if call is None:
            events: list[Event] = [
                ToolCallStarted(call_id, invocation.tool),
                ToolCallDelta(call_id, invocation.arguments),
                ToolCallReady(call_id, invocation.tool, invocation.arguments),
            ]
            call = self._calls[call_id] = SdkCall(self._loop.create_future(), events)
            self._translator.announced.discard(call_id)
            self._progressed = self._loop.time()
            if self._phase is SdkPhase.RUNNING:
                self._reveal()
        return await asyncio.shield(call.answer)

    def _reveal(self) -> None:
        """Show the calls that wait to be shown; the turn pauses when no more of them are to be expected."""
        waiting = [call for call in self._calls.values() if not call.shown]
        open_already = any(call.shown and not call.answer.done() for call in self._calls.values())
        if self.opening.one_call:
            waiting = [] if open_already else waiting[:1]
        for call in waiting:
            call.shown = True
            for event in call.events:
                if isinstance(event, ToolCallReady):
                    self._tally.called(event.name, event.arguments)
            self._show(call.events)
        if waiting or open_already:
            self._settle()

    def _settle(self) -> None:
        """Nobody says how many calls a step has: after a short quiet it is complete."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        limits = self._limits
        quiet = limits.announced_quiet if self._translator.announced - self._calls.keys() else limits.sibling_quiet
        self._pause_timer = self._loop.call_later(0.0 if self.opening.one_call else quiet, self._pause)

    def _pause(self) -> None:
        self._pause_timer = None
        if self._phase is SdkPhase.RUNNING:
            self._show([UsageReported(self._tally.paused()), TurnPaused()])
            self._phase = SdkPhase.PAUSED

    # ---- events out

    def _show(self, events: list[Event]) -> None:
        """A terminal event is the last of them."""
        if self._phase is SdkPhase.OVER or not events:
            return
        last = events[-1]
        if self._phase is SdkPhase.PAUSED:
            if isinstance(last, TurnFailed):
                self._over()  # submit() will say that the turn is gone
            else:
                self._show_later(events)
            return
        if not self._started and not isinstance(last, TurnFailed):
            self._started = True
            events = [TurnStarted(self._tally.expected), *events]
        self._buffer.put_soon(events)
        match last:
            case TurnEnded():
                self.ended = True
                self._over()
                self._host.ended(self)
            case TurnFailed():
                self._over()
            case TurnPaused():
                self._started = False
            case _:
                pass

    def _show_later(self, events: list[Event]) -> None:
        """This response has ended. A run that says too much for the next one is given up, and its history replayed."""
        self._later += events
        self._later_bytes += sum(map(weight, events))
        if self._later_bytes > self._limits.buffer_bytes:
            self._later = []
            self.close()

    def _fail(self, failure: GatewayError) -> None:
        self._show([TurnFailed(failure)])

    def _over(self) -> None:
        self._phase = SdkPhase.OVER
        self._room.set()
        for timer in (self._pause_timer, self._clock):
            if timer is not None:
                timer.cancel()

    # ---- the clock

    def _tick(self) -> None:
        """Nothing happens for too long: the run is given up. A parked turn and a slow reader have all the time."""
        if self._clock is not None:
            self._clock.cancel()
        if self._phase is not SdkPhase.RUNNING:
            return
        limit = self._limits.tool_progress if self._translator.running else self._limits.progress
        now = self._loop.time()
        opening = self._opening is not None and not self._opening.done()  # which has limits of its own
        if opening or not self._room.is_set():
            self._progressed = now
        left = self._progressed + limit - now
        if left <= 0:
            hint = "Try again; if it keeps happening, choose another model."
            self._fail(GatewayError(ErrorKind.TIMEOUT, f"Cursor has made no progress for {limit:.0f} s.", hint=hint))
            return
        self._clock = self._loop.call_later(left, self._tick)


async def _why_broken(failure: Exception, bridge: SdkBridge | None) -> GatewayError:
    if bridge is None:
        return fault(failure)
    try:
        async with asyncio.timeout(CANCEL_GRACE_S):
            await asyncio.shield(bridge.gone)
    except TimeoutError:
        return fault(failure)
    return bridge_lost()
