"""One HTTP answer in progress: a live turn's events with our tickets, filtered by the stages, in batches.

The turn is not the response's: when the client hangs up the turn is left to the manager, which lets it end by itself
within a short grace or closes it. Until something visible came, a turn that cannot go on is started anew, once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, Protocol

from ..core.errors import ErrorKind, GatewayError
from ..core.estimate import estimated_usage
from ..core.events import (
    TERMINAL,
    Event,
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
    UsageReported,
)
from ..core.fold import Fold, Reply
from ..core.order import EventOrder, OrderState
from ..core.recovery import RETRY_BUDGET, Cause, Rung
from ..core.request import TurnRequest
from ..core.turn import Stage, StageFactory
from ..tasks import spawn
from .lifecycle import Happening
from .live import LiveTurn

log = logging.getLogger(__name__)

Label = Literal["fresh", "replayed", "resumed", "continued"]

_DELTAS = (TextDelta, ReasoningDelta)
_FRESH_BECAUSE: Final = {
    Cause.CUT.value: "the run was lost twice",
    Cause.SILENT.value: "the run fell silent",
    Cause.STALLED.value: "the run made no progress",
    Cause.REFUSED.value: "the run was refused twice",
    Cause.TOKEN.value: "the token was refused twice",
    Cause.DIVERGED.value: "the model took another way after its run was lost",
    Cause.INCOMPLETE.value: "the kept conversation was incomplete",
}
MAX_RECOVERIES: Final = 16
"""Of one response, in its log line."""
_CALLS = (ToolCallStarted, ToolCallDelta, ToolCallReady)
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""One response: its words as they stand in JSON, its calls and what is kept with them."""
PIECE_BYTES: Final = 32
CALL_BYTES: Final = 1024
"""What a piece of a call's arguments, and a call, take beside the words."""
MAX_CALLS: Final = 4096
"""Of one turn: all that its client may come back for."""
MAX_HELD_EVENTS: Final = 50_000
"""How much may be said before a call that was demanded."""


class ResponseOwner(Protocol):
    """What a response asks of the session engine."""

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None: ...

    def issue(self, live: LiveTurn, ticket: str) -> None: ...

    def let_go(self, response: "Response") -> None: ...


class Response:
    __slots__ = (
        "_decided",
        "_factories",
        "_failure",
        "_fold",
        "_heard",
        "_held",
        "_keeper",
        "_max_bytes",
        "_must_call",
        "_order",
        "_plain",
        "_ready",
        "_reopened",
        "_restart",
        "_restarting",
        "_stages",
        "_started",
        "_tries",
        "_visible",
        "_whole",
        "label",
        "live",
        "over",
        "reason",
        "recoveries",
        "request",
    )

    def __init__(
        self,
        keeper: ResponseOwner,
        live: LiveTurn,
        request: TurnRequest,
        label: Label,
        reason: str,
        stages: Sequence[StageFactory],
        restart: Callable[[int], Awaitable[LiveTurn]] | None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """`restart` opens a fresh run for the whole request, when told how many were opened for it before."""
        self._max_bytes = max_bytes
        self.label: Label = label
        self.reason = reason
        self.live = live
        self.request = request
        self.over = False
        self._keeper = keeper
        self._factories = stages
        self._restart = restart
        self._reopened = 0
        self._decided: str | None = None
        """Why the turn itself has decided for a fresh run, and counted it."""
        self._tries = 2 if request.tool_choice.mode in ("required", "named") else 1
        self.recoveries: list[tuple[str, str]] = []
        """(rung, cause) of each time that a run was lost and the turn went on; the first few."""
        self._started = False
        self._visible = False
        self._plain = False
        """Nothing but what upstream says is to be shown, and something was."""
        self._must_call = request.tool_choice.mode in ("required", "named") and bool(request.tools)
        self._held: list[Event] = []
        self._ready: Callable[[], None] | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._failure: GatewayError | None = None
        self._begin()

    def _begin(self) -> None:
        self._order = EventOrder()
        self._fold = Fold()
        self._heard = 0  # what came, though the stages may hold it back
        self._whole: Reply | None = None
        self._stages: list[Stage] = []
        for factory in self._factories:
            if (stage := factory(self.request)) is not None:
                self._stages.append(stage)

    def reply(self) -> Reply:
        """Everything so far, folded."""
        if not self.over:
            return self._fold.reply()
        if self._whole is None:
            self._whole = self._fold.reply()
        return self._whole

    def listen(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self.live.turn.listen(ready)

    def take(self) -> list[Event]:
        """The next events of this response, if there are any; a terminal one is the last there is."""
        if self._plain:  # deltas among deltas: nothing is to be decided
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
            except Exception as failure:
                return self._failed(failure)
        elif self._restarting is not None or self.over:
            return []
        else:
            events = self._next()
        if not events:
            return events
        if not self._visible and (again := self._why_again(events)) is not None and self._restart is not None:
            self.label, self.reason = "replayed" if self.label != "fresh" else "fresh", again
            self.over = False
            self._restarting = spawn(self._start_again(self._restart), "start-turn-again")
            return []
        if self._must_call:
            return self._hold(events)
        self._plain = self._visible and not self._stages and self._order.state is OrderState.OPEN
        return events

    async def _start_again(self, restart: Callable[[int], Awaitable[LiveTurn]]) -> None:
        try:
            self.live = await restart(self._reopened)
            self._begin()
            if self._ready is not None:
                self.live.turn.listen(self._ready)
        except GatewayError as error:
            self._failure = error
        finally:
            self._restarting = None
        if self._ready is not None:
            self._ready()

    def shorten(self, parts: int) -> None:
        """Every word will be said so many times: the answer may have only that part of the usual length."""
        self._max_bytes //= parts

    def close(self) -> None:
        """The client has its answer, or is gone."""
        if not self.over:
            self._keeper.let_go(self)

    def give_up(self) -> None:
        """Nobody waits any more: what is being started anew is not wanted."""
        if self._restarting is not None:
            self._restarting.cancel()

    # ---- events

    def _next(self) -> list[Event]:
        if self._failure is not None:
            return self._failed(self._failure)
        try:
            return self._digest(self.live.turn.take())
        except Exception as failure:
            return self._failed(failure)

    def _too_long(self) -> list[Event]:
        """Whoever reads gets what there is and the reason; upstream is closed."""
        limit = f"{self._max_bytes / 2**20:g} MiB"
        return self._failed(
            GatewayError(
                ErrorKind.UPSTREAM_PROTOCOL,
                f"The answer is longer than {limit}.",
                hint="Ask for less at a time, or raise `max_answer_bytes`.",
            )
        )

    def _failed(self, failure: Exception) -> list[Event]:
        """A failure is an event, not an exception: the response may have begun long ago."""
        if not isinstance(failure, GatewayError):
            log.error("a turn failed unexpectedly: %s", failure, exc_info=failure)
            failure = GatewayError(ErrorKind.INTERNAL, "The gateway failed; its log has the details.")
        event = TurnFailed(failure)
        self._fold.feed(event)
        self._end(event, made_up=False)
        return [event]

    def _digest(self, batch: Sequence[Event]) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            if self.over:
                break
            if type(event) is Recovered:
                self._recovered(event)
                continue
            if isinstance(event, _DELTAS) and self._order.state is OrderState.OPEN:
                self._heard += len(event.text)  # legal wherever the order is open
                last = False
            else:
                self._order.check(event)
                event = self.live.tickets.outward(event)
                last = isinstance(event, TERMINAL)
                if not last and isinstance(event, _CALLS):
                    self._note_call(event)
                elif type(event) is TurnStarted:
                    if self._started:  # by a run that was lost before it said anything
                        self._fold.feed(event)
                        continue
                    self._started = True
            for shown in self._staged(event) if self._stages else (event,):
                if isinstance(shown, TERMINAL):
                    if not last and isinstance(shown, TurnEnded):  # upstream is stopped before it could count
                        usage = UsageReported(estimated_usage(self.request, self._fold.reply()))
                        self._fold.feed(usage)
                        out.append(usage)
                    self._fold.feed(shown)
                    out.append(shown)
                    self._end(shown, made_up=not last)
                    break
                if type(shown) is not ToolCallDelta:  # the call itself will say it whole
                    self._fold.feed(shown)
                out.append(shown)
        if self._stages or self._must_call:
            self._fold.add(())  # elsewhere the batches of deltas let it catch up
        limit = self._max_bytes
        if (self._heard > limit or self._fold.weight > limit) and not self.over:
            out += self._too_long()
        return out

    def _note_call(self, event: ToolCallStarted | ToolCallDelta | ToolCallReady) -> None:
        if isinstance(event, ToolCallDelta):
            self._heard += len(event.arguments) + PIECE_BYTES
        elif isinstance(event, ToolCallStarted):
            self._heard += CALL_BYTES
        elif len(self.live.issued) < MAX_CALLS:
            # Known before the client can see it: no client beats the registry.
            self._keeper.issue(self.live, event.id)
        else:
            raise GatewayError(
                ErrorKind.UPSTREAM_PROTOCOL,
                f"The model made more than {MAX_CALLS} tool calls in one turn.",
                hint="Start a new conversation.",
            )

    def _staged(self, event: Event) -> list[Event]:
        first, *others = self._stages
        events, spent = first.feed(event), first.spent
        for stage in others:
            events = [shown for one in events for shown in stage.feed(one)]
            spent = spent or stage.spent
        if spent:
            self._stages = [stage for stage in self._stages if not stage.spent] if others else []
        return events

    def _end(self, event: TurnPaused | TurnEnded | TurnFailed, *, made_up: bool) -> None:
        self.over = True
        self._plain = False
        if made_up:
            happening = Happening.STOPPED
        elif isinstance(event, TurnPaused):
            happening = Happening.PAUSED
        elif isinstance(event, TurnEnded):
            happening = Happening.ENDED
        else:
            happening = Happening.FAILED
        self._keeper.settle(self.live, happening, self.reply())

    # ---- second chances, before anything was shown

    def _why_again(self, events: Sequence[Event]) -> str | None:
        """Why a fresh run is to answer instead; None: it is not. Every run counts against the same retry budget."""
        last = events[-1]
        if isinstance(last, TurnFailed) and last.error.kind is ErrorKind.TURN_GONE:
            cause, self._decided = self._decided, None
            if cause is None:  # a turn that has no ladder of its own
                cause = Cause.INCOMPLETE.value
                self._recovered(Recovered(Rung.FRESH_RUN.value, cause, self._reopened + 1))
                self._decided = None
            return _FRESH_BECAUSE[cause] if self._reopened <= RETRY_BUDGET else None
        if self._must_call and isinstance(last, TurnEnded) and not _calls(events):
            self._tries -= 1
            self._reopened += 1
            again = self._tries > 0 and self._reopened <= RETRY_BUDGET
            return "the model did not call a tool at first" if again else None
        if not self._must_call and any(not isinstance(event, TurnStarted) for event in events):
            self._visible = True
        return None

    def _recovered(self, event: Recovered) -> None:
        self._reopened = event.reopened
        self._decided = event.cause if event.how == Rung.FRESH_RUN.value else None
        if len(self.recoveries) < MAX_RECOVERIES:
            self.recoveries.append((event.how, event.cause))

    def _hold(self, events: list[Event]) -> list[Event]:
        """A call is demanded: nothing is shown until there is one, so that there can be a second try."""
        self._held += events
        if len(self._held) > MAX_HELD_EVENTS and not self.over:
            events = self._too_long()
            self._held += events
        if _calls(events):
            self._must_call = False
            self._visible = True
        elif isinstance(events[-1] if events else None, TurnEnded):
            error = GatewayError(
                ErrorKind.UPSTREAM_ERROR,
                "The request demands a tool call, and the model answered in text twice.",
                hint="Use `tool_choice: auto`, or say in the prompt which tool to call.",
            )
            self._fold, self._whole = Fold(), None
            self._fold.feed(TurnFailed(error))
            return [TurnStarted(), TurnFailed(error)]
        elif not isinstance(events[-1] if events else None, TurnFailed | TurnPaused):
            return []
        held, self._held = self._held, []
        return held


def _calls(events: Sequence[Event]) -> bool:
    return any(isinstance(event, ToolCallStarted) for event in events)
