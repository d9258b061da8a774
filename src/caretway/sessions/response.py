"""One answer in progress: checks the order of events, swaps call ids for tickets, runs the stages, folds the reply, and
limits its length and calls. A backend's exception becomes an event. Arguments that do not fit are noted or refused
(`tool_arguments`); the usage of a stopped answer is estimated.

Input: the turn's batches. Output: the events for the client, and their fold. The response does not own the turn: when
the client hangs up, the manager lets the turn end within a short grace or closes it. Until an event was shown, another
run may answer instead (`second_try.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, Protocol

from ..core import events as ev
from ..core.errors import ErrorKind, GatewayError
from ..core.event_buffer import FixedTurn, weight
from ..core.events import Event, EventOrder, OrderState
from ..core.fold import Fold, Reply
from ..core.request import Message, Text, ToolCall, TurnRequest
from ..core.tally import estimated_usage
from ..core.turn import Stage, StageFactory
from ..processes.tasks import spawn
from ..schemas.check import ArgumentCheck, ArgumentRule
from .lifecycle import Happening
from .live import LiveTurn, Tickets
from .second_try import SecondTry

log = logging.getLogger(__name__)

Label = Literal["fresh", "replayed", "resumed", "continued"]

_DELTAS = (ev.TextDelta, ev.ReasoningDelta)
_ENDS: Final[dict[type, Happening]] = {
    ev.TurnPaused: Happening.PAUSED,
    ev.TurnEnded: Happening.ENDED,
    ev.TurnFailed: Happening.FAILED,
}
_CALLS = (ev.ToolCallStarted, ev.ToolCallDelta, ev.ToolCallReady)
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""The limit of one response: its text as JSON, its calls and their overhead."""
PIECE_BYTES: Final = 32
CALL_BYTES: Final = 1024
"""The overhead of a piece of a call's arguments, and of a call."""
ARGUMENTS_NOTE: Final = "tool_arguments"
MAX_CALLS: Final = 4096
"""Calls per turn, all of which its client may resume."""


Restart = Callable[[int, TurnRequest], Awaitable[LiveTurn]]
"""Opens a fresh run for the whole request. Arguments: how many runs were opened for it before, and the request."""


class ResponseOwner(Protocol):
    """The session engine, as a response uses it."""

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None: ...

    def issue(self, live: LiveTurn, ticket: str) -> None: ...

    def let_go(self, response: "Response") -> None: ...


class Response:
    __slots__ = (
        "_arguments",
        "_check",
        "_factories",
        "_failure",
        "_fold",
        "_heard",
        "_max_bytes",
        "_misfits",
        "_order",
        "_owner",
        "_plain",
        "_ready",
        "_restart",
        "_second_try",
        "_stages",
        "_started",
        "_starting",
        "_whole",
        "adapted",
        "label",
        "live",
        "over",
        "pictures",
        "reason",
        "recoveries",
        "request",
    )

    def __init__(
        self,
        owner: ResponseOwner,
        live: LiveTurn,
        request: TurnRequest,
        label: Label,
        reason: str,
        stages: Sequence[StageFactory],
        restart: Restart | None,
        max_bytes: int = MAX_ANSWER_BYTES,
        arguments: ArgumentRule = "note",
    ) -> None:
        """`restart` is None if no other run may answer. `arguments`: the rule for arguments that do not fit."""
        self._max_bytes = max_bytes
        self._arguments: ArgumentRule = arguments
        self.label: Label = label
        self.reason = reason
        self.live = live
        self.request = request
        self.over = False
        self.adapted = ""
        """A description of the changes to the request for the model."""
        self.pictures = ""
        """Why the model may not see the request's images."""
        self._owner = owner
        self._factories = stages
        self._restart = restart
        self._starting: asyncio.Task[None] | None = None
        """The task that starts another run."""
        self._second_try = SecondTry(request, fixed=restart is None)
        self.recoveries = self._second_try.recoveries
        self._started = False
        self._plain = False
        """Fast path: only upstream's deltas are to be shown, and an event was shown."""
        self._ready: Callable[[], None] | None = None
        self._failure: Exception | None = None
        """Why no other run could be started."""
        self._begin()

    def _begin(self) -> None:
        self._order = EventOrder()
        self._fold = self.live.fold = Fold()
        self._heard = 0  # characters received, including those that stages hold back
        self._whole: Reply | None = None
        self._check: ArgumentCheck | None = None
        self._misfits: list[str] = []
        self._stages: list[Stage] = []
        for factory in self._factories:
            if (stage := factory(self.request)) is not None:
                self._stages.append(stage)

    @property
    def run(self) -> str:
        """The id of the answering run in its record."""
        return self.live.tickets.sid

    @property
    def conversation(self) -> str:
        return self.live.account.conversation

    @property
    def budget(self) -> str:
        """A notice that a budget is nearly used up; empty if none is."""
        charge = self.live.account.charge
        return charge.notice if charge is not None else ""

    def reply(self) -> Reply:
        """The fold of all events so far."""
        if not self.over:
            return self._fold.reply()
        if self._whole is None:
            self._whole = self._fold.reply()
        return self._whole

    def listen(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self.live.turn.listen(ready)

    def take(self) -> list[Event]:
        """The next events of this response, possibly none. A terminal event is the last."""
        if self._plain:  # only deltas: nothing to decide
            try:
                events = self.live.turn.take()
                for event in events:
                    if type(event) not in _DELTAS:
                        break
                else:
                    self._fold.add(events)
                    return events if self._fold.weight <= self._max_bytes else [*events, *self._too_long()]
                self._plain = False
                events = self._digest(events)
            except Exception as failure:  # of any backend or stage: here it becomes an event
                return self._failed(failure)
        elif self.over or self._starting is not None:
            return []
        else:
            events = self._next()
        if not events:
            return events
        second = self._second_try
        if not second.shown:
            events = self._unless_again(events)
        open_ = self._order.state is OrderState.OPEN and not self.over
        self._plain = open_ and second.shown and not self._stages
        return events

    def _unless_again(self, events: list[Event]) -> list[Event]:
        """The events; empty if another run answers instead, or if the events are held back."""
        second = self._second_try
        again = second.judge(events)
        if again is not None and self._restart is not None:
            self._started = self._started and ev.TurnStarted not in map(type, events)  # it was not shown
            self.label, self.reason = "replayed" if self.label != "fresh" else "fresh", again
            self.over, self.request = False, second.request
            second.begins_again()
            self._starting = spawn(self._start_again(self._restart), "start-turn-again")
            return []
        if not second.must_call:
            return events
        if second.overfull(len(events)) and not self.over:
            events = [*events, *self._too_long()]
        shown = second.hold(events)
        if second.note:  # the answer lacks the demanded call
            self._fold, self._whole = Fold(), None
            self._fold.add(shown)
        return shown

    @property
    def note(self) -> str:
        """Why the answer lacks the call that the request demands; empty if it does not."""
        return self._second_try.note

    async def _start_again(self, restart: Restart) -> None:
        failure, live = None, self.live
        try:
            live = await restart(self._second_try.reopened, self.request)
        except Exception as error:  # the next `take` turns it into an event
            failure = error
        finally:
            self._starting = None
        self._failure = failure
        if failure is not None:
            self._fold, self._whole = Fold(), None  # the failure replaces the reply of the lost run
        else:
            self.live = live
            live.account.answers(self.label, self.reason)
            self._begin()
            if self._ready is not None:
                live.turn.listen(self._ready)
        if self._ready is not None:
            self._ready()

    def opened(self) -> None:
        """The client has the headers, which name the model: no other model may answer from now on."""
        self._second_try.opened = True

    def shorten(self, parts: int) -> None:
        """Divide the length limit by `parts`, because the dialect repeats each word that many times."""
        self._max_bytes //= parts

    def close(self) -> None:
        """The client has its answer or hung up. A turn that is still running gets a short grace to end by itself."""
        if not self.over:
            self._owner.let_go(self)

    def give_up(self) -> None:
        """Stop opening another run: no client waits for it any more."""
        if self._starting is not None:
            self._starting.cancel()

    # ---- events

    def _next(self) -> list[Event]:
        if self._failure is not None:
            return self._failed(self._failure)
        try:
            return self._digest(self.live.turn.take())
        except Exception as failure:  # of any backend or stage: here it becomes an event
            return self._failed(failure)

    def _too_long(self) -> list[Event]:
        """End the answer with an error; the client keeps the part before it, and upstream is closed."""
        limit = f"{self._max_bytes / 2**20:g} MiB"
        return self._failed(
            GatewayError(
                ErrorKind.UPSTREAM_PROTOCOL,
                f"The answer is longer than {limit}.",
                hint="Ask for less at a time.",
            )
        )

    def _failed(self, failure: Exception) -> list[Event]:
        """A failure becomes an event, not an exception, because the response may have begun."""
        if self.live.cancelled is not None:
            failure = self.live.cancelled
        if not isinstance(failure, GatewayError):
            log.error("a turn failed unexpectedly: %s", failure, exc_info=failure)
            failure = GatewayError(ErrorKind.INTERNAL, "The gateway failed; its log has the details.")
        event = ev.TurnFailed(failure)
        self._fold.feed(event)
        self._end(event, made_up=False)
        return [event]

    def _digest(self, batch: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            if self.over:
                break
            if type(event) is ev.TextDelta and not self._stages and self._order.state is OrderState.OPEN:
                self._heard += len(event.text)  # fast path for most events
                self._fold.feed(event)
                out.append(event)
                continue
            if type(event) is ev.Recovered:
                self._second_try.recovered(event)
                self.adapted = event.adapted or self.adapted
                continue
            if (
                type(event) is ev.TextDelta or type(event) is ev.ReasoningDelta
            ) and self._order.state is OrderState.OPEN:
                self._heard += len(event.text)  # allowed while the order is open
                last = False
            else:
                self._order.check(event)
                event = self.live.tickets.outward(event)
                last = type(event) in ev.TERMINAL
                if type(event) in _CALLS:
                    self._note_call(event)
                elif type(event) is ev.TurnStarted:
                    self.adapted, self.pictures = event.adapted, event.pictures
                    if event.conversation:
                        self.live.account.upstream = event.conversation
                    if self._started:  # by a run that was lost before its first output
                        self._fold.feed(event)
                        continue
                    self._started = True
            for shown in self._staged(event) if self._stages else (event,):
                if type(shown) in ev.TERMINAL:
                    if self._misfits:
                        noted = ev.Note(ARGUMENTS_NOTE, "; ".join(self._misfits))
                        self._fold.feed(noted)
                        out.append(noted)
                    if not last and type(shown) is ev.TurnEnded:  # upstream is stopped before it could count
                        usage = ev.UsageReported(estimated_usage(self.request, self._fold.reply()))
                        self._fold.feed(usage)
                        out.append(usage)
                    self._fold.feed(shown)
                    out.append(shown)
                    self._end(shown, made_up=not last)
                    break
                if type(shown) is not ev.ToolCallDelta:  # ToolCallReady carries the whole arguments
                    self._fold.feed(shown)
                out.append(shown)
        if self._stages or self._second_try.must_call:
            self._fold.add(())  # without stages, batches of deltas do this
        limit = self._max_bytes
        if (self._heard > limit or self._fold.weight > limit) and not self.over:
            out += self._too_long()
        return out

    def _note_call(self, event: Event) -> None:
        match event:
            case ev.ToolCallStarted():
                self._heard += CALL_BYTES
            case ev.ToolCallDelta(arguments=arguments):
                self._heard += len(arguments) + PIECE_BYTES
            case ev.ToolCallReady(id=ticket, name=name, arguments=arguments):
                self._check = self._check or ArgumentCheck(self.request.tools)
                if problem := self._check.problem(name, arguments):
                    self._misfit(name, problem)
                if len(self.live.issued) >= MAX_CALLS:
                    raise GatewayError(
                        ErrorKind.UPSTREAM_PROTOCOL,
                        f"The model made more than {MAX_CALLS} tool calls in one turn.",
                        hint="Start a new conversation.",
                    )
                self._owner.issue(self.live, ticket)  # before the client sees it, so it cannot return too early
            case _:
                pass

    def _misfit(self, name: str, problem: str) -> None:
        if self._arguments == "refuse":
            raise GatewayError(
                ErrorKind.UPSTREAM_ERROR,
                f"The model called `{name}` with arguments that do not fit its schema: {problem}",
                hint="Do not run that call. Ask again, or set tool_arguments to `note`.",
                code="invalid_tool_arguments",
                repeatable=False,
            )
        self._misfits.append(f"{name}: {problem}")

    def _staged(self, event: Event) -> list[Event]:
        first, *others = self._stages
        events, spent = first.feed(event), first.spent
        for stage in others:
            events = [shown for one in events for shown in stage.feed(one)]
            spent = spent or stage.spent
        if spent:
            self._stages = [stage for stage in self._stages if not stage.spent] if others else []
        return events

    def _end(self, event: Event, *, made_up: bool) -> None:
        """The response is over: settle its turn. `made_up`: a stage created the event, so upstream has to be
        stopped."""
        self.over = True
        self._plain = False
        self._owner.settle(self.live, Happening.STOPPED if made_up else _ENDS[type(event)], self.reply())


# ---- A turn whose client hung up during an answer: its remaining events are read and discarded, so that it can end or
# park by itself. It is given up after a short grace (`disconnect_grace`) or a limit of bytes. Not the graceful
# shutdown.
#
# Only turns near their end finish; all others are given up.

DRAINED_BYTES: Final = 512 * 1024
"""A turn whose client hung up is closed after this weight of events."""


class Drain:
    def __init__(self, response: Response, grace: float, given_up: Callable[[Response], None]) -> None:
        """`given_up` is called at most once, and never if the response ended."""
        self._response: Response | None = response
        """None after the end; a parked turn may still call `_go_on`."""
        self._given_up = given_up
        self._said = 0
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(grace, self._give_up)
        response.listen(self._go_on)
        loop.call_soon(self._go_on)  # soon: the caller still uses the response

    def _go_on(self) -> None:
        response = self._response
        if response is None:
            return
        events = response.take()
        if not events:
            return  # also if `take` closed the turn: another turn may follow
        self._said += sum(map(weight, events))
        if response.over:
            self._stop()
        elif self._said > DRAINED_BYTES:
            self._give_up()

    def _give_up(self) -> None:
        response = self._response
        if response is not None:
            self._stop()
            self._given_up(response)

    def _stop(self) -> None:
        self._response = None
        self._timer.cancel()


# ---- Sends an answer again, with the same call ids, when `plan` has found that a client repeats a request whose answer
# it lost.
#
# The calls keep their ids, so both copies of the answer lead to the same parked turn.


def repeated_turn(answer: Message, tickets: Tickets) -> FixedTurn:
    """A turn with the events of a paused answer."""
    events: list[Event] = [ev.TurnStarted()]
    for part in answer.parts:
        match part:
            case Text(text=text):
                events.append(ev.TextDelta(text))
            case ToolCall(id=ticket, name=name, arguments=arguments):
                call = tickets.upstream_id(ticket)
                events.append(ev.ToolCallStarted(call, name))
                if arguments:
                    events.append(ev.ToolCallDelta(call, arguments))
                events.append(ev.ToolCallReady(call, name, arguments))
            case _:
                pass
    return FixedTurn([*events, ev.TurnPaused()])


class _Repeater:
    """The owner of a repeated answer. It does nothing, because the turn stays parked."""

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None: ...

    def issue(self, live: LiveTurn, ticket: str) -> None: ...

    def let_go(self, response: Response) -> None: ...


REPEATER: Final[ResponseOwner] = _Repeater()
