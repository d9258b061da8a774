"""Whether a fresh run answers instead, before the client has seen anything: a lost run, a kept conversation that is
refused, a model that is refused when its alias names another (`fallback.py`), words where a call was demanded
(`tool_choice`: any call, or a named one). Counts the retry budget; holds events back; never when a tool has
run here.

As long as the client has seen nothing, a turn that cannot go on is started anew with the whole request. So is one that
was to call a tool and did not; until it calls, nothing of its answer is shown. When the second run does not call
either, or fails, the client gets what there is, with a note. Every run counts against one retry budget
(`core/recovery.py`), those that the turn itself opened included. Where a tool ran without the client there is no second
try: another run would run it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from ..core.errors import OWN_BUDGET, ErrorKind, GatewayError
from ..core.events import (
    AgentActivity,
    Event,
    Note,
    Recovered,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
)
from ..core.named_tool import NOTE_KEY
from ..core.recovery import RETRY_BUDGET, Cause, Rung
from ..core.request import ModelFallback, TurnRequest
from ..processes.tasks import spawn
from .live import LiveTurn
from .plan import Parked

# ---- Whether the next model of an alias answers instead of one that Cursor refuses, and the request for it. Pure.
#
# Only a refusal that another model of the same account may not get leads on: a pool of usage that is spent, a plan or a
# policy without the model, a model that Cursor does not know. A refusal without a reason is none of these; the agent
# backend turns it into a spent pool where the account's usage says so. Our own budgets refuse every model alike. Which
# models come next is decided by `accounts/resolve.py` and, for a named key, by `usage/keys/named_key.py`.

RUNG: Final = "next model"
"""In the log line, beside what is done about lost runs."""
REASON: Final = "Cursor refused the model, and its alias names another, or the request"
_KINDS: Final = frozenset({ErrorKind.QUOTA, ErrorKind.MODEL_UNKNOWN})
_CODES: Final = frozenset({"plan_or_team_refused", "model_blocked"})


def leads_on(error: GatewayError) -> bool:
    """Another model of the same account may be served where this one is refused."""
    if error.kind is ErrorKind.FORBIDDEN:
        return error.code in _CODES
    return error.kind in _KINDS and error.reason != OWN_BUDGET


def next_request(request: TurnRequest, error: GatewayError) -> TurnRequest | None:
    """For the next model of the alias; None: there is none, or it would not help."""
    if not request.fallbacks or not leads_on(error):
        return None
    first, *others = request.fallbacks
    why = f"{first.choice.why}; {request.model} was refused ({error.code or error.kind.value})"
    return _asking(request, first, tuple(others), why)


def same_model(request: TurnRequest, form: TurnRequest) -> TurnRequest:
    """What the model is told, for the model of another form of the same request."""
    return replace(
        form, model=request.model, parameters=request.parameters, choice=request.choice, fallbacks=request.fallbacks
    )


def going_on(request: TurnRequest, parked: Iterable[Parked]) -> TurnRequest:
    """For the model that has the turn already, if that is a later one of the alias."""
    models = {turn.model for turn in parked}
    for at, each in enumerate(request.fallbacks):
        if each.model in models and request.model not in models:
            why = f"{each.choice.why}; {request.model} was refused before"
            return _asking(request, each, request.fallbacks[at + 1 :], why)
    return request


def _asking(request: TurnRequest, one: ModelFallback, others: tuple[ModelFallback, ...], why: str) -> TurnRequest:
    choice = replace(one.choice, why=why, instead_of=request.model)
    return replace(request, model=one.model, parameters=one.parameters, choice=choice, fallbacks=others)


Restart = Callable[[int, TurnRequest], Awaitable[LiveTurn]]
"""Opens a fresh run for the whole request, when told how many were opened for it before; for the request's model."""

log = logging.getLogger(__name__)

MAX_RECOVERIES: Final = 16
"""Of one response, in its log line."""
MAX_HELD_EVENTS: Final = 50_000
"""How much may be said before a call that was demanded."""
CALL_TRIES: Final = 2
"""How many runs may end without the call that was demanded."""
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
        "_called",
        "_decided",
        "_first",
        "_held",
        "_named",
        "_reopened",
        "_restart",
        "_tries",
        "_worked",
        "must_call",
        "note",
        "opened",
        "recoveries",
        "request",
        "shown",
        "starting",
    )

    def __init__(self, request: TurnRequest, restart: Restart | None) -> None:
        """`restart` is None where no other run may answer."""
        self.request = request
        """For the model that is asked now."""
        self.opened = False
        """The client has the headers, which name the model."""
        self.shown = False
        """The client has seen something: there is no second try any more."""
        self.must_call = request.tool_choice.mode in ("required", "named") and bool(request.tools)
        """A call is demanded and has not come: what the model says is held back."""
        self.note = ""
        """Why the client gets an answer without the call that it demanded."""
        self._named = request.tool_choice.name if request.tool_choice.mode == "named" else ""
        self.recoveries: list[tuple[str, str]] = []
        """(rung, cause) of each time that a run was lost and the turn went on; the first few."""
        self._restart = restart
        self.starting: asyncio.Task[None] | None = None
        self._reopened = 0
        self._decided: str | None = None
        """Why the turn itself has decided for a fresh run, and counted it."""
        self._called = False
        """The call that was demanded has come."""
        self._tries = 0
        """How many runs ended without the call that was demanded."""
        self._worked = False
        """A tool ran without the client."""
        self._held: list[Event] = []
        self._first: list[Event] = []
        """The words of the first run, in case the second fails."""

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
        if self.request.fallbacks and type(last) is TurnFailed and self._restart is not None and not self._worked:
            return self._refused(events, last.error)
        if self.must_call:
            self._called = self._called or has_call(events)
            ended = isinstance(last, TurnEnded | TurnPaused)
            rejected = any(type(event) is Note and event.key == NOTE_KEY for event in events)
            return self._no_call(events) if ended and not self._called and not rejected else None
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

    def _refused(self, events: Sequence[Event], error: GatewayError) -> str | None:
        """The chain is its own limit: what was refused has cost nothing, and each model is asked once."""
        said = any(type(event) is not TurnStarted for event in (*self._held, *events[:-1]))
        following = None if said or self.opened else next_request(self.request, error)
        if following is None:
            self.shown = self.shown or not self.must_call
            return None
        log.info("%s", following.choice.why)
        self._keep(RUNG, error.code or error.kind.value)
        self.request = following
        return REASON

    def _no_call(self, events: Sequence[Event]) -> str | None:
        self._tries += 1
        self._reopened += 1
        if self._tries >= CALL_TRIES or not self._allowed:
            return None
        self._first = [*self._held, *events]
        return f"the model did not call {self._named or 'a tool'} at first"

    @property
    def _allowed(self) -> bool:
        return self._reopened <= RETRY_BUDGET and self._restart is not None and not self._worked

    def _keep(self, rung: str, cause: str) -> None:
        if len(self.recoveries) < MAX_RECOVERIES:
            self.recoveries.append((rung, cause))

    # ---- the fresh run

    def start(self, started: Callable[[LiveTurn | Exception], None]) -> None:
        """Start the second try after `judge`. What was held back is dropped: the fresh run has its own words."""
        assert self._restart is not None
        self._held = [event for event in self._held if type(event) is TurnStarted]
        self.starting = spawn(self._start(self._restart, started), "start-turn-again")

    async def _start(self, restart: Restart, started: Callable[[LiveTurn | Exception], None]) -> None:
        outcome: LiveTurn | Exception
        try:
            outcome = await restart(self._reopened, self.request)
        except Exception as failure:  # the listener makes an event of it
            outcome = failure
        finally:
            self.starting = None
        started(outcome)

    def cancel(self) -> None:
        """Cancel what is being started: there are no waiters any more."""
        if self.starting is not None:
            self.starting.cancel()

    # ---- a call that is demanded

    def overfull(self, more: int) -> bool:
        """`more` events do not fit beside those that are held."""
        return len(self._held) + more > MAX_HELD_EVENTS

    def hold(self, events: list[Event]) -> list[Event]:
        """The events that may be shown now: all once the demanded call is there, none before. Without the call, the end
        has what there is and a note; if the second run fails, the text of the first."""
        self._held += events
        last = events[-1]
        if has_call(events):
            self.must_call = False
            self.shown = True
        elif isinstance(last, TurnEnded | TurnPaused):
            self._noted(self._held)
        elif isinstance(last, TurnFailed) and self._first:
            self._noted(self._first)
        elif not isinstance(last, TurnFailed):
            return []
        held, self._held = self._held, []
        return held

    def _noted(self, answer: list[Event]) -> None:
        for event in answer:
            if type(event) is Note and event.key == NOTE_KEY:  # the run was told of the demand, and says so
                self.note, self._held = event.value, answer
                return
        self.note = no_call(self._named, tries=self._tries)
        self._held = [*answer[:-1], Note(NOTE_KEY, self.note), answer[-1]]


def has_call(events: Sequence[Event]) -> bool:
    """The call that was demanded: backends give no other one where it is demanded by name."""
    return any(isinstance(event, ToolCallStarted) for event in events)


def no_call(named: str, *, tries: int) -> str:
    wanted = f"the tool `{named}`" if named else "a tool"
    return f"the request demands a call of {wanted}; the model answered in words{' twice' if tries > 1 else ''}"
