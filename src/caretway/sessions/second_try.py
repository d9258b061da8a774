"""Whether another run answers a request instead, before the client has seen anything: after a lost run, a refused
conversation, a refused model whose alias names another, or text where a call was demanded (`tool_choice`).

The table in `core/recovery.py` decides; here is what it needs to know. The answer to a demand is held back until the
call. If the second run does not call either, or fails, the client gets the text with a note.
"""

import logging
from collections.abc import Iterable, Sequence
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
from ..core.recovery import Fact, Facts, Loss, Remedy, Situation, holding, remedy, words_of
from ..core.request import ModelFallback, TurnRequest
from .plan import Parked

log = logging.getLogger(__name__)

# ---- Makes the request for the next model of an alias. Pure.
#
# Only refusals that may not apply to another model of the account count: a spent pool of usage, a plan or a policy
# without the model, an unknown model. A refusal without a reason does not count; the agent backend turns it into a
# spent pool if the account's usage shows one. The gateway's own budgets refuse every model alike. `accounts/resolve.py`
# and, for a named key, `usage/keys/named_key.py` choose the next models.

_KINDS: Final = frozenset({ErrorKind.QUOTA, ErrorKind.MODEL_UNKNOWN})
_CODES: Final = frozenset({"plan_or_team_refused", "model_blocked"})


def leads_on(error: GatewayError) -> bool:
    """Whether another model of the same account may be served after this refusal."""
    if error.kind is ErrorKind.FORBIDDEN:
        return error.code in _CODES
    return error.kind in _KINDS and error.reason != OWN_BUDGET


def after_refusal(
    request: TurnRequest, error: GatewayError, facts: Facts = frozenset()
) -> tuple[TurnRequest, str] | None:
    """The request for the next model of the alias, and why; None if none may answer instead."""
    left = bool(request.fallbacks) and leads_on(error)
    step = remedy(Situation(Loss.MODEL, facts if left else facts | {Fact.NONE_LEFT}))
    if step.remedy is not Remedy.NEXT_MODEL:
        return None
    first, *others = request.fallbacks
    why = f"{first.choice.why}; {request.model} was refused ({error.code or error.kind.value})"
    log.info("%s", why)
    return _asking(request, first, tuple(others), why), step.reason


def same_model(request: TurnRequest, form: TurnRequest) -> TurnRequest:
    """`form` with the model of `request`, another form of the same request."""
    return replace(
        form, model=request.model, parameters=request.parameters, choice=request.choice, fallbacks=request.fallbacks
    )


def going_on(request: TurnRequest, parked: Iterable[Parked]) -> TurnRequest:
    """The request for the model of the parked turn, if that is a later model of the alias; otherwise `request`."""
    models = {turn.model for turn in parked}
    for at, each in enumerate(request.fallbacks):
        if each.model in models and request.model not in models:
            why = f"{each.choice.why}; {request.model} was refused before"
            return _asking(request, each, request.fallbacks[at + 1 :], why)
    return request


def _asking(request: TurnRequest, one: ModelFallback, others: tuple[ModelFallback, ...], why: str) -> TurnRequest:
    choice = replace(one.choice, why=why, instead_of=request.model)
    return replace(request, model=one.model, parameters=one.parameters, choice=choice, fallbacks=others)


MAX_RECOVERIES: Final = 16
"""Recoveries of one response in its log line."""
MAX_HELD_EVENTS: Final = 50_000
"""Events that are held back before a demanded call."""
CALL_TRIES: Final = 2
"""Runs that may end without the demanded call."""


class SecondTry:
    __slots__ = (
        "_called",
        "_decided",
        "_first",
        "_fixed",
        "_held",
        "_named",
        "_tries",
        "_worked",
        "must_call",
        "note",
        "opened",
        "recoveries",
        "reopened",
        "request",
        "shown",
    )

    def __init__(self, request: TurnRequest, *, fixed: bool) -> None:
        """`fixed`: no other run may answer."""
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
        self._fixed = fixed
        self.reopened = 0
        """New runs for the request without progress."""
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
        self.reopened = event.reopened
        self._decided = event.cause if event.how == Remedy.FRESH_RUN.label else None
        self._keep(event.how, event.cause)

    def judge(self, events: Sequence[Event]) -> str | None:
        """Why a fresh run should answer instead of showing `events`; None to show them. Counts the events, so judge
        each batch of a response only once."""
        last = events[-1]
        self._worked = self._worked or AgentActivity in map(type, events)
        if type(last) is TurnFailed and last.error.kind is ErrorKind.TURN_GONE:
            return self._gone()
        if self.request.fallbacks and type(last) is TurnFailed:
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
        decided, self._decided = self._decided, None
        if decided is not None:  # by the turn, which has counted the fresh run
            return words_of(Remedy.FRESH_RUN.label, decided)[0] if self._allows(Loss.GONE, runs=0) else None
        if not self._allows(Loss.GONE, runs=self.reopened):
            return None
        self._opens(Loss.GONE)
        return Loss.GONE.words

    def _refused(self, events: Sequence[Event], error: GatewayError) -> str | None:
        said = any(type(event) is not TurnStarted for event in (*self._held, *events[:-1]))
        following = after_refusal(self.request, error, self._facts(seen=said or self.opened))
        if following is None:
            self.shown = self.shown or not self.must_call
            return None
        self._keep(Remedy.NEXT_MODEL.label, error.code or error.kind.value)
        self.request, why = following
        return why

    def _no_call(self, events: Sequence[Event]) -> str | None:
        self._tries += 1
        if not self._allows(Loss.NO_CALL, runs=self.reopened, again=self._tries >= CALL_TRIES):
            return None
        self._opens(Loss.NO_CALL)
        self._first = [*self._held, *events]
        return f"the model did not call {self._named or 'a tool'} at first"

    def _allows(self, loss: Loss, *, runs: int, again: bool = False) -> bool:
        facts = self._facts() | holding((Fact.ASKED_TWICE, again))
        return remedy(Situation(loss, facts, runs)).remedy is Remedy.FRESH_RUN

    def _facts(self, *, seen: bool = False) -> Facts:
        return holding((Fact.FIXED, self._fixed), (Fact.WORKED, self._worked), (Fact.SEEN, seen))

    def _opens(self, loss: Loss) -> None:
        self.reopened += 1
        self._keep(Remedy.FRESH_RUN.label, loss.label)

    def _keep(self, rung: str, cause: str) -> None:
        if len(self.recoveries) < MAX_RECOVERIES:
            self.recoveries.append((rung, cause))

    def begins_again(self) -> None:
        """The second run begins: drop the held events of the first, except its start."""
        self._held = [event for event in self._held if type(event) is TurnStarted]

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
