"""Decides what to do after a lost run: hand the calls over, continue the run from its checkpoint, start a fresh run, or
give up. Pure. `backends/agent/run_life.py` has the backoff.

Recovery is a ladder of steps; the input is the situation, the output is the next step (rung) with its reason. The
rungs: let the client run the calls that it has; continue the same run from its last checkpoint; send the whole history,
including results, to a fresh run; end with an error. A call that the client has seen is never shown again, so a rung
that might do that is skipped. The retry budget belongs to one request. Every reopened run uses it, whatever the reason;
progress renews it.
"""

from enum import Enum
from typing import Final

from msgspec import Struct

RETRY_BUDGET: Final = 2
"""How many runs may be reopened for one request without progress in between."""


class Cause(Enum):
    """Why an attempt has ended. The value is the label in `/metrics` and in the log."""

    CUT = "cut"
    """The connection broke, or the stream ended before the turn did."""
    SILENT = "silent"
    """No more data arrived."""
    STALLED = "stalled"
    """Only heartbeats arrived, no progress."""
    REFUSED = "refused"
    """Cursor ended the run with a temporary error."""
    TOKEN = "token"  # noqa: S105  # a reason, not a secret
    """Cursor did not accept the token, and there is a newer token."""
    DIVERGED = "diverged"
    """The new attempt does not repeat what the client already has."""
    SHAPE = "shape"
    """Cursor may not have recognised the model, so the next attempt names it in another form."""
    SCHEMA = "schema"
    """The model's vendor may refuse the tools' schemas, so the next attempt sends simpler schemas."""
    INCOMPLETE = "incomplete"
    """A part of the stored conversation is missing."""
    STALE = "stale"
    """Cursor refuses to continue the conversation, but may accept its history under a new id."""
    UNHEARD = "unheard"
    """The stream ended without a message: a temporary fault, or a host that does not serve this account."""
    HOST = "host"
    """The host does not serve this account, and Cursor named another host."""


class Rung(Enum):
    HAND_OVER = "hand over"
    """The client has whole calls: it runs them, and its results start a fresh run."""
    SAME_RUN = "same run"
    FRESH_RUN = "fresh run"
    GIVE_UP = "give up"


BROKEN: Final = frozenset({Cause.CUT, Cause.SILENT, Cause.STALLED, Cause.UNHEARD})
"""Causes that put the connection in doubt: the next attempt gets its own connection."""
_NO_WAY_BACK: Final = frozenset({Cause.DIVERGED, Cause.INCOMPLETE, Cause.STALE})
_LONG: Final = frozenset({Cause.SILENT, Cause.STALLED})


class Loss(Struct, frozen=True):
    """The situation after a lost attempt."""

    cause: Cause
    reopened: int = 0
    """Runs that were reopened for this request since the last progress."""
    budget: int = RETRY_BUDGET
    visible: bool = False
    """Whether the client has seen a part of this response."""
    calls_out: bool = False
    """Whether the client has whole calls of this response."""
    call_open: bool = False
    """Whether the client has a part of a call."""
    results_given: bool = False
    """Whether this response began with tool results."""
    worked_here: bool = False
    """Whether tools with side effects ran in the gateway, which a fresh run would run again."""
    repeatable: bool = True
    """Whether the output since the checkpoint is recorded, so that its repetition can be dropped."""
    waited: bool = False
    """Whether a long wait was already repeated once for this request."""
    before: Cause | None = None
    """Why this turn's previous attempt was lost, if there was one."""


class Step(Struct, frozen=True):
    rung: Rung
    reason: str


def next_step(loss: Loss) -> Step:
    """The next rung of the ladder, and why."""
    if loss.calls_out and not loss.call_open:
        return Step(Rung.HAND_OVER, "the client has the calls; its results start a fresh run")
    if loss.reopened >= loss.budget:
        return Step(Rung.GIVE_UP, f"{loss.reopened} runs were reopened without progress")
    if loss.cause is loss.before is Cause.UNHEARD:
        return Step(Rung.GIVE_UP, "a second connection brought nothing either")
    fresh = _fresh(loss)
    if loss.cause in _NO_WAY_BACK:
        return fresh
    if loss.cause is Cause.STALLED and loss.results_given and fresh.rung is Rung.FRESH_RUN:
        return Step(Rung.FRESH_RUN, "no progress after the tool results: the history is sent to a fresh run")
    if loss.cause in _LONG and loss.waited:
        return Step(Rung.GIVE_UP, "a long wait is repeated once")
    if loss.reopened and loss.results_given and fresh.rung is Rung.FRESH_RUN:
        return Step(Rung.FRESH_RUN, "the same run was lost again: the history is sent to a fresh run")
    if not loss.repeatable:
        return Step(Rung.GIVE_UP, "there is too much output since the last checkpoint")
    return Step(Rung.SAME_RUN, "the run continues from its last checkpoint")


def _fresh(loss: Loss) -> Step:
    if loss.visible:
        return Step(Rung.GIVE_UP, "the client has a part of the answer, and a fresh run would give another one")
    if loss.worked_here:
        return Step(Rung.GIVE_UP, "tools ran in the gateway, and a fresh run would run them again")
    return Step(Rung.FRESH_RUN, "the history is sent to a fresh run")
