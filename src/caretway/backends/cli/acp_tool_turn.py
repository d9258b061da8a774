"""A turn in ACP mode with the client's tools. The gateway's MCP server offers the tools, the program's calls wait there
for their results, and one prompt lasts for the whole tool loop. Decides when a step of calls is complete. If the
program does not list the tools or rejects their calls, the next attempt sends the tools as text.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.event_buffer import weight
from ...core.events import (
    AgentActivity,
    Event,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    UsageReported,
)
from ...core.named_tool import NamedTool, demand
from ...core.recovery import Fact, Loss, Remedy
from ...core.request import Text, ToolChoice, ToolResult, ToolSpec, system_text
from ...core.tally import result_chars
from ...core.turn import Snapshot
from ...processes.tasks import spawn
from ...schemas.check import CORRECTIONS, ArgumentCheck
from .acp_agent import AcpAgent
from .acp_turn import AcpTurn, loss_of
from .announced import Announcements
from .prompt import CliChat, write_chat
from .tool_server import SERVER, Answer, McpUse, listed_tools, refusal, tool_answer

if TYPE_CHECKING:
    from .native_tools import ClientTools

VIA: Final = "acp-tools"
LOOKED_AT_S: Final = 5.0
"""Seconds that a program may take to list the tools before it gets its prompt."""
SIBLING_QUIET_S: Final = 0.2
SIBLING_CAP_S: Final = 1.5
"""A step of calls is complete after `SIBLING_QUIET_S` of silence, or `SIBLING_CAP_S` after its first call."""
UNANNOUNCED_S: Final = 2.0
"""Seconds that a step waits for the announcement of a call, which follows all earlier text, and for announced calls.
A program whose output was cut has ended by then, and its step with it."""
_QUIET: Final = frozenset({TurnStarted, AgentActivity})


@dataclass(frozen=True, slots=True)
class TurnOffer:
    specs: Sequence[ToolSpec]
    choice: ToolChoice


@dataclass(slots=True, eq=False)
class ParkedCall:
    id: str
    name: str
    arguments: str
    values: Mapping[str, Any]
    number: object
    """The id of the request for this call."""
    answer: "asyncio.Future[Answer]"
    shown: bool = False
    gone: bool = False
    """The program no longer waits for the result."""


@dataclass(slots=True)
class _Step:
    """Events that arrive while the turn is paused."""

    later: list[Event] = field(default_factory=list)
    size: int = 0


class AcpToolTurn(AcpTurn):
    def __init__(self, *arguments: Any, offer: TurnOffer, host: "ClientTools") -> None:
        self.tools: Sequence[Mapping[str, Any]] = listed_tools(offer.specs)
        self._offer = offer
        self._host = host
        self._check = ArgumentCheck(offer.specs, CORRECTIONS)
        self._named = NamedTool(offer.choice.name)
        self._calls: dict[str, ParkedCall] = {}
        self._announced = Announcements()
        self._called = False
        self._paused: _Step | None = None
        self._gone = False
        self._answering = False
        """The current response has produced events."""
        self._refused = ""
        self._url = ""
        self._timer: asyncio.TimerHandle | None = None
        self._first_call = 0.0
        self._looked = asyncio.Event()
        super().__init__(*arguments)

    # ---- the reader's side

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        open_calls = {call.id: call for call in self._calls.values() if call.shown and not call.answer.done()}
        given = [result for result in results if result.call_id in open_calls]
        lost = self._gone or any(call.gone for call in open_calls.values()) or self._closing.done()
        if self._paused is None or lost or not open_calls or len(given) < len(open_calls):
            raise GatewayError(ErrorKind.TURN_GONE, "cursor-agent does not wait for these results any more.")
        if demanded and any(not call.shown for call in self._calls.values()):
            raise GatewayError(ErrorKind.TURN_GONE, "The model has made more calls, and a certain one is demanded.")
        said = (*extra, system_text(demand(demanded))) if demanded else tuple(extra)
        held, self._paused, self._resting = self._paused.later, None, False
        self._heard_at = self._loop.time()
        self._answering = False
        self._runs.opened = 0  # results are progress
        self._named.next_step(demanded)
        self._host.unparked(self)
        self._translator.resumed(sum(map(result_chars, given)))
        for result in given:
            beside = said if result is given[-1] else ()
            open_calls[result.call_id].answer.set_result(tool_answer(result, beside))
        if held:
            self._take(held)
        if any(not call.shown for call in self._calls.values()):
            self._settle()

    def snapshot(self) -> Snapshot | None:
        if not self._translator.succeeded or not self._session or self._gone:
            return None
        work = self._launch.work
        kept = CliChat(self._session, work.workspace, work.mode, VIA, self._launch.turns + 1)
        self._on_kept(kept)
        return write_chat(self._backend, kept, self._launch.parent)

    # ---- the session

    async def _open_session(self, agent: AcpAgent) -> None:
        if not agent.takes_mcp:
            self._refuse("this build takes no MCP servers over HTTP", for_good=True)
        try:
            self._url = await self._host.offer(self)
        except OSError as failure:
            self._refuse(f"its approval of our MCP server could not be written ({failure.strerror})")
        servers = [{"type": "http", "name": SERVER, "url": self._url, "headers": []}]
        resume, workspace = self._launch.work.resume, self._launch.work.workspace
        if resume:  # also for a session in memory, which needs the new address
            await agent.load_session(resume, workspace, servers, self._launch.wish)
            self._session = resume
        else:
            self._session = await agent.new_session(workspace, servers, self._launch.wish)
        looked = spawn(self._looked.wait(), "cursor-agent-tools-looked-at")
        await self._first_of(looked, LOOKED_AT_S)
        looked.cancel()

    def _begins_again(self) -> None:
        """The calls of the lost process are not shown, because the next process makes them again."""
        self._drop_calls()
        self._calls.clear()
        self._announced.clear()

    def _left(self) -> None:
        self._gone = self._gone or self._paused is not None
        self._host.unparked(self)
        self._drop_calls()

    def _drop_calls(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._url:
            self._host.withdraw(self._url)
        for call in self._calls.values():
            call.answer.cancel()

    def _refuse(self, reason: str, *, for_good: bool = False) -> None:
        """Send the tools as text from now on. Raises TURN_GONE, so that the whole request is sent again."""
        self._host.refused(self._launch.build, reason, for_good=for_good)
        raise self._as_text(reason)

    def _as_text(self, reason: str) -> GatewayError:
        _, news = self._runs.lost(Loss.TOOLS, (Fact.SEEN, self._shown))
        self._buffer.put_soon(news)
        return GatewayError(ErrorKind.TURN_GONE, f"cursor-agent gets tools as text: {reason}.")

    # ---- calls from the MCP server

    def listed(self) -> None:
        self._looked.set()

    async def called(self, use: McpUse) -> Answer:
        self._called = True
        if self._gone or self._translator.over or self._closing.done():
            return refusal("The turn is over.")
        arguments = msgspec.json.encode(use.arguments).decode()
        if use.name not in (offered := self._check.tools):
            return refusal(f"There is no tool `{use.name}`. There are: {', '.join(sorted(offered))}.")
        if self._named.rejects(use.name):
            if self._named.spent and self._paused is None and self._timer is None:
                self._give_up_demand()
            return refusal(f"The call was not made: {self._named.rejection}.")
        if correction := self._check.correction(use.name, arguments):
            return refusal(correction)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        call = ParkedCall(f"call_{uuid.uuid4().hex}", use.name, arguments, use.arguments, use.id, answer)
        self._calls[call.id] = call
        self._heard_at = self._loop.time()
        if self._paused is None:
            self._settle()
        try:
            return await asyncio.shield(call.answer)
        except asyncio.CancelledError:
            call.gone = True
            raise

    def _give_up_demand(self) -> None:
        """End the run with the model's text, because the model still calls other tools after its rejections."""
        started, usage = self._translator.paused(0)
        self._take([*started, UsageReported(usage), self._named.note, TurnEnded()])
        self._gone = True
        if not self._closing.done():
            self._closing.set_result(None)

    def _settle(self) -> None:
        """Restart the timer that ends the step: the number of calls is unknown, so a short silence completes it."""
        now = self._loop.time()
        if self._timer is None:
            self._first_call = now
        else:
            self._timer.cancel()
        quiet = min(SIBLING_QUIET_S, max(0.0, self._first_call + SIBLING_CAP_S - now))
        self._timer = self._loop.call_later(quiet if self._offer.choice.parallel else 0.0, self._pause)

    def _pause(self) -> None:
        self._timer = None
        waiting = [call for call in self._calls.values() if not call.shown and not call.gone]
        if self._paused is not None or self._translator.over or not waiting:
            return
        step, whole = self._announced.in_order(waiting)
        late = self._first_call + UNANNOUNCED_S - self._loop.time()
        if late > 0 and not whole:
            self._timer = self._loop.call_later(late, self._pause)
            return
        step = step if self._offer.choice.parallel else step[:1]
        self._announced.shown(step)
        events: list[Event] = []
        for call in step:
            call.shown = True
            events += [
                ToolCallStarted(call.id, call.name),
                ToolCallDelta(call.id, call.arguments),
                ToolCallReady(call.id, call.name, call.arguments),
            ]
        chars = sum(len(event.arguments) for event in events if isinstance(event, ToolCallReady))
        started, usage = self._translator.paused(chars)
        self._take([*started, *events, UsageReported(usage), TurnPaused()])
        self._paused, self._resting = _Step(), True
        self._slot.leave()  # the process only waits, so another turn may run
        self._host.parked(self)

    # ---- messages from the program

    def _update(self, update: Mapping[str, Any]) -> None:
        if not self._announced.hear(update):
            super()._update(update)
        elif update.get("status") == "failed" and not self._called and not self._shown:
            self._give_up("it rejects calls of our MCP server")
        if self._timer is not None:
            self._settle()

    def _take(self, events: list[Event]) -> None:
        if not events or self._refused or (self._gone and self._paused is None):
            return
        last = events[-1]
        if not self._looked.is_set() and not isinstance(last, TurnFailed) and not _QUIET.issuperset(map(type, events)):
            self._give_up("it does not look at our MCP server")
        elif self._paused is None:
            self._answering = self._answering or not isinstance(last, TurnFailed)
            super()._take(events)
        elif isinstance(last, TurnEnded | TurnFailed):
            self._gone = True  # the program did not wait for the results: the history is sent again
        else:
            self._paused.later += events
            self._paused.size += sum(map(weight, events))
            if self._paused.size > self._limits.buffer_bytes:
                self.close()

    def _failed(self, error: GatewayError) -> None:
        """Report TURN_GONE for a program that died after it received results: the history with them is sent again."""
        if self._called:
            step, news = self._runs.lost(loss_of(error), (Fact.SEEN, self._answering), (Fact.IN_CHAT, True))
            self._buffer.put_soon(news)
            if step.remedy is Remedy.FRESH_RUN:
                error = GatewayError(ErrorKind.TURN_GONE, f"cursor-agent is gone: {error.message}")
        super()._failed(error)

    def _give_up(self, reason: str) -> None:
        self._refused = reason
        self._host.refused(self._launch.build, reason, for_good=False)
        super()._take(self._translator.failed(self._as_text(reason)))
        if not self._closing.done():
            self._closing.set_result(None)
