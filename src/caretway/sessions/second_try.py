"""Whether a fresh run answers instead, before the client has seen anything: a lost run, a kept conversation that is
refused, words where a tool call was required (`tool_choice`). Counts the retry budget; holds events back; never when a
tool has run here.

As long as the client has seen nothing, a turn that cannot go on is started anew with the whole request. So is one that
was to call a tool and answered in words; until it calls, nothing of its answer is shown. Every run counts against one
retry budget (`core/recovery.py`), those that the turn itself opened included. Where a tool ran without the client there
is no second try: another run would run it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ..core.errors import ErrorKind, GatewayError
from ..core.events import (
    AgentActivity,
    Event,
    Recovered,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
)
from ..core.recovery import RETRY_BUDGET, Cause, Rung
from ..core.request import TurnRequest
from ..tasks import spawn
from .live import LiveTurn

Restart = Callable[[int], Awaitable[LiveTurn]]
"""Opens a fresh run for the whole request, when told how many were opened for it before."""

MAX_RECOVERIES: Final = 16
"""Of one response, in its log line."""
MAX_HELD_EVENTS: Final = 50_000
"""How much may be said before a call that was demanded."""
CALL_TRIES: Final = 2
"""How many runs may answer in words where a call was demanded."""
_FRESH_BECAUSE: Final = {
    Cause.CUT.value: "the run was lost twice",
    Cause.SILENT.value: "the run fell silent",
    Cause.STALLED.value: "the run made no progress",
    Cause.REFUSED.value: "the run was refused twice",
    Cause.TOKEN.value: "the token was refused twice",
    Cause.DIVERGED.value: "the model took another way after its run was lost",
    Cause.SHAPE.value: "Cursor may not have understood which model is meant",
    Cause.SCHEMA.value: "the model's maker may not have taken the tools' schemas",
    Cause.INCOMPLETE.value: "the kept conversation was incomplete",
    Cause.STALE.value: "Cursor refused to go on with the kept conversation",
    Cause.UNHEARD.value: "the run was answered with nothing",
    Cause.HOST.value: "Cursor serves this account on another host",
}


class SecondTry:
    __slots__ = (
        "_decided",
        "_held",
        "_reopened",
        "_restart",
        "_words",
        "_worked",
        "must_call",
        "recoveries",
        "shown",
        "starting",
    )

    def __init__(self, request: TurnRequest, restart: Restart | None) -> None:
        """`restart` is None where no other run may answer."""
        self.shown = False
        """The client has seen something: there is no second try any more."""
        self.must_call = request.tool_choice.mode in ("required", "named") and bool(request.tools)
        """A call is demanded and has not come: what the model says is held back."""
        self.recoveries: list[tuple[str, str]] = []
        """(rung, cause) of each time that a run was lost and the turn went on; the first few."""
        self._restart = restart
        self.starting: asyncio.Task[None] | None = None
        self._reopened = 0
        self._decided: str | None = None
        """Why the turn itself has decided for a fresh run, and counted it."""
        self._words = 0
        """How many runs answered in words where a call was demanded."""
        self._worked = False
        """A tool ran without the client."""
        self._held: list[Event] = []

    def recovered(self, event: Recovered) -> None:
        """The turn lost a run and went on by itself."""
        self._reopened = event.reopened
        self._decided = event.cause if event.how == Rung.FRESH_RUN.value else None
        self._keep(event.how, event.cause)

    def judge(self, events: Sequence[Event]) -> str | None:
        """Why a fresh run is to answer instead of showing these events, the next of the response; None: it is not. What
        is seen is counted, so each batch is judged once."""
        last = events[-1]
        self._worked = self._worked or AgentActivity in map(type, events)
        if type(last) is TurnFailed and last.error.kind is ErrorKind.TURN_GONE:
            return self._gone()
        if self.must_call:
            return self._no_call() if isinstance(last, TurnEnded) and not has_call(events) else None
        for event in events:
            if type(event) is not TurnStarted:
                self.shown = True
                break
        return None

    def _gone(self) -> str | None:
        cause, self._decided = self._decided, None
        if cause is None:  # a turn that has no ladder of its own
            cause = Cause.INCOMPLETE.value
            self._reopened += 1
            self._keep(Rung.FRESH_RUN.value, cause)
        return _FRESH_BECAUSE[cause] if self._allowed else None

    def _no_call(self) -> str | None:
        self._words += 1
        self._reopened += 1
        again = self._words < CALL_TRIES and self._allowed
        return "the model did not call a tool at first" if again else None

    @property
    def _allowed(self) -> bool:
        return self._reopened <= RETRY_BUDGET and self._restart is not None and not self._worked

    def _keep(self, rung: str, cause: str) -> None:
        if len(self.recoveries) < MAX_RECOVERIES:
            self.recoveries.append((rung, cause))

    # ---- the fresh run

    def start(self, started: Callable[[LiveTurn | Exception], None]) -> None:
        """After a verdict of `judge`. What was held is not said: the fresh run has words of its own."""
        assert self._restart is not None
        self._held = [event for event in self._held if type(event) is TurnStarted]
        self.starting = spawn(self._start(self._restart, started), "start-turn-again")

    async def _start(self, restart: Restart, started: Callable[[LiveTurn | Exception], None]) -> None:
        outcome: LiveTurn | Exception
        try:
            outcome = await restart(self._reopened)
        except Exception as failure:  # whoever is told makes an event of it
            outcome = failure
        finally:
            self.starting = None
        started(outcome)

    def cancel(self) -> None:
        """Nobody waits any more: what is being started is not wanted."""
        if self.starting is not None:
            self.starting.cancel()

    # ---- a call that is demanded

    def overfull(self, more: int) -> bool:
        """`more` events do not fit beside those that are held."""
        return len(self._held) + more > MAX_HELD_EVENTS

    def hold(self, events: list[Event]) -> list[Event]:
        """What may be shown now: everything as soon as there is a call, nothing before. An end without a call is an
        error; a failure and what stood before it are shown."""
        self._held += events
        last = events[-1]
        if has_call(events):
            self.must_call = False
            self.shown = True
        elif isinstance(last, TurnEnded):
            self._held = [TurnStarted(), TurnFailed(no_call(worked=self._worked))]
        elif not isinstance(last, TurnFailed | TurnPaused):
            return []
        held, self._held = self._held, []
        return held


def has_call(events: Sequence[Event]) -> bool:
    return any(isinstance(event, ToolCallStarted) for event in events)


def no_call(*, worked: bool) -> GatewayError:
    """Asking again brings the same, and costs two more runs. `worked`: a tool ran without the client, so that it was
    not tried twice."""
    error = GatewayError(
        ErrorKind.UPSTREAM_ERROR,
        f"The request demands a tool call, and the model answered in text{'' if worked else ' twice'}.",
        hint="Use `tool_choice: auto`, or say in the prompt which tool to call.",
        repeatable=False,
    )
    return error.after_work() if worked else error
