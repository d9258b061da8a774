"""Decides whether a fresh run answers instead, before the client has seen anything: after a lost run, a refused
conversation, a refused model whose alias names another, or text where a call was demanded (`tool_choice`).
Until the client has seen an event, a turn that cannot continue is restarted with the whole request. So is a turn that
did not make a demanded call; its answer is held back until the call. If the second run does not call either, or fails,
the client gets the text with a note. Every run counts against one retry budget (`core/recovery.py`), including the runs
that the turn itself opened. After a tool ran without the client there is no second try, because it would run the tool
again.
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

# ---- Decides whether the next model of an alias replaces a refused model, and makes the request for it. Pure.
#
# Only refusals that may not apply to another model of the account count: a spent pool of usage, a plan or a policy
# without the model, an unknown model. A refusal without a reason does not count; the agent backend turns it into a
# spent pool if the account's usage shows one. The gateway's own budgets refuse every model alike. `accounts/resolve.py`
# and, for a named key, `usage/keys/named_key.py` choose the next models.

RUNG: Final = "next model"
"""The name of this step in the log line, next to the steps for lost runs."""
REASON: Final = "Cursor refused the model, and its alias names another, or the request"
_KINDS: Final = frozenset({ErrorKind.QUOTA, ErrorKind.MODEL_UNKNOWN})
_CODES: Final = frozenset({"plan_or_team_refused", "model_blocked"})


def leads_on(error: GatewayError) -> bool:
    """Whether another model of the same account may be served after this refusal."""
    if error.kind is ErrorKind.FORBIDDEN:
        return error.code in _CODES
    return error.kind in _KINDS and error.reason != OWN_BUDGET


def next_request(request: TurnRequest, error: GatewayError) -> TurnRequest | None:
    """The request for the next model of the alias; None if there is none, or if it would not help."""
    if not request.fallbacks or not leads_on(error):
        return None
    first, *others = request.fallbacks
    why = f"{first.choice.why}; {request.model} was refused ({error.code or error.kind.value})"
    return _asking(request, first, tuple(others), why)


def same_model(request: TurnRequest, form: TurnRequest) -> TurnRequest:
    """`form` with the model of `request`, another form of the same request."""
    return replace(
        form, model=request.model, parameters=request.parameters, choice=request.choice, fallbacks=request.fallbacks
    )


def going_on(request: TurnRequest, parked: Iterable[Parked]) -> TurnRequest:
    """The request for the model of the parked turn, if it is a later model of the alias."""
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
"""Opens a fresh run for the whole request. Arguments: how many runs were opened for it before, and the request."""

log = logging.getLogger(__name__)

MAX_RECOVERIES: Final = 16
"""Recoveries of one response in its log line."""
MAX_HELD_EVENTS: Final = 50_000
"""Events that are held back before a demanded call."""
CALL_TRIES: Final = 2
"""Runs that may end without the demanded call."""
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
        """The request for the current model."""
        self.opened = False
        """Whether the client has the headers, which name the model."""
        self.shown = False
        """Whether the client has seen an event, which rules out a second try."""
        self.must_call = request.tool_choice.mode in ("required", "named") and bool(request.tools)
        """Whether a demanded call has not come yet, so that events are held back."""
        self.note = ""
        """Why the answer lacks the demanded call."""
        self._named = request.tool_choice.name if request.tool_choice.mode == "named" else ""
        self.recoveries: list[tuple[str, str]] = []
        """(rung, cause) of the first recoveries."""
        self._restart = restart
        self.starting: asyncio.Task[None] | None = None
        self._reopened = 0
        self._decided: str | None = None
        """Why the turn itself has chosen a fresh run, which it has counted."""
        self._called = False
        """Whether the demanded call has come."""
        self._tries = 0
        """How many runs ended without the demanded call."""
        self._worked = False
        """Whether a tool ran without the client."""
        self._held: list[Event] = []
        self._first: list[Event] = []
        """The events of the first run, in case the second fails."""

    def recovered(self, event: Recovered) -> None:
        """Record that the turn has recovered from a lost run by itself."""
        self._reopened = event.reopened
        self._decided = event.cause if event.how == Rung.FRESH_RUN.value else None
        self._keep(event.how, event.cause)

    def judge(self, events: Sequence[Event]) -> str | None:
        """Why a fresh run should answer instead of showing `events`; None to show them. Counts the events, so judge
        each batch of a response only once."""
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
        if cause is None:  # a turn without its own recovery
            cause = Cause.INCOMPLETE.value
            self._reopened += 1
            self._keep(Rung.FRESH_RUN.value, cause)
        return _FRESH_BECAUSE[cause] if self._allowed else None

    def _refused(self, events: Sequence[Event], error: GatewayError) -> str | None:
        """Try the next model. No retry budget: a refused run costs nothing, and each model is tried once."""
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
        """Start the second try after `judge`. Held events are dropped, because the fresh run replaces them."""
        assert self._restart is not None
        self._held = [event for event in self._held if type(event) is TurnStarted]
        self.starting = spawn(self._start(self._restart, started), "start-turn-again")

    async def _start(self, restart: Restart, started: Callable[[LiveTurn | Exception], None]) -> None:
        outcome: LiveTurn | Exception
        try:
            outcome = await restart(self._reopened, self.request)
        except Exception as failure:  # the listener turns it into an event
            outcome = failure
        finally:
            self.starting = None
        started(outcome)

    def cancel(self) -> None:
        """Cancel the run that is being started, because nothing waits for it."""
        if self.starting is not None:
            self.starting.cancel()

    # ---- a demanded call

    def overfull(self, more: int) -> bool:
        """Whether `more` events exceed the limit of held events."""
        return len(self._held) + more > MAX_HELD_EVENTS

    def hold(self, events: list[Event]) -> list[Event]:
        """The events that may be shown now: none before the demanded call, all after it. At the end without a call: the
        answer with a note; if the second run fails, the first run's answer."""
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
            if type(event) is Note and event.key == NOTE_KEY:  # the backend has noted the missing call
                self.note, self._held = event.value, answer
                return
        self.note = no_call(self._named, tries=self._tries)
        self._held = [*answer[:-1], Note(NOTE_KEY, self.note), answer[-1]]


def has_call(events: Sequence[Event]) -> bool:
    """Whether the events have the demanded call. Backends give no other call if it is demanded by name."""
    return any(isinstance(event, ToolCallStarted) for event in events)


def no_call(named: str, *, tries: int) -> str:
    wanted = f"the tool `{named}`" if named else "a tool"
    return f"the request demands a call of {wanted}; the model answered in words{' twice' if tries > 1 else ''}"
