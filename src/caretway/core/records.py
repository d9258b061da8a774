"""Records of finished work: one for each response, each run and each refused request, and their Observer.
They hold no prompt, no answer and no secret. No behaviour.

Log, metrics and ledger are observers. They are called in the event loop at the end of the work, return at once and
raise nothing.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from .caller import NOBODY, Caller
from .events import RunUsage, Usage


class RequestOrigin(Struct, frozen=True, gc=False):
    """The origin of a request for a model, for accounting."""

    caller: Caller = NOBODY
    request_id: str = ""
    dialect: str = ""
    model: str = ""
    """As it was asked for."""
    owner: str = ""
    """Whose its turns are: the key by its id, which a rename does not change; empty when no key is asked for."""
    kind: str = ""
    """As in `TurnRequest`."""


class TurnRecord(Struct, frozen=True):
    """Facts about a finished response."""

    request_id: str
    dialect: str
    backend: str
    model: str
    """The one that was taken."""
    session: str
    reason: str
    stream: bool
    outcome: str
    calls: int = 0
    first_event_ms: float | None = None
    total_ms: float = 0.0
    usage: Usage | None = None
    ignored: tuple[str, ...] = ()
    recoveries: tuple[tuple[str, str], ...] = ()
    """(rung, cause) of each recovery."""
    caller: Caller = NOBODY
    asked: str = ""
    """The model as the client named it."""
    variant: str = ""
    """The model that was taken with its parameters, as one id."""
    conversation: str = ""
    """Ours, opaque; the same for all responses of a conversation that the gateway recognises."""
    run: str = ""
    """The run that answered, as in `RunRecord`."""
    error: str = ""
    """The code of the error that ended it."""
    message: str = ""
    """Of that error, for the terminal; it may quote a few words of the request, so it is not kept."""
    held: int | None = None
    """Estimated tokens of the history that its session held already: `fresh` would have sent them again. None: it held
    nothing."""
    started_at: float = 0.0
    """Unix seconds."""
    status: int = 0
    """Of HTTP; 0: the client was gone before there was one."""
    called: tuple[tuple[str, str], ...] = ()
    """(id, name) of the calls that the client was given."""
    trace: Mapping[str, str] | None = None
    """The client's trace context, as its headers have it; None: it sent none."""
    content: tuple[str, str] | None = None
    """What was said and answered. None unless the user asked that traces have it; nobody else may keep it."""
    hint: str = ""
    """What to do about the error, for people."""
    kind: str = ""
    """As in `TurnRequest`."""


class RunRecord(Struct, frozen=True):
    """Facts about a run of Cursor that is over. One run may have given many responses."""

    run: str
    """Ours, opaque."""
    origin: RequestOrigin
    """The request that opened it."""
    backend: str
    model: str
    variant: str
    conversation: str
    session: str
    """How it was opened: fresh, continued, replayed."""
    reason: str
    outcome: str
    """How it ended: ended, paused, failed, stopped, expired, evicted, lost, shutdown, hung_up."""
    usage: RunUsage | None = None
    """What Cursor counted; None: it was cut, or its backend reports nothing."""
    error: str = ""
    responses: int = 1
    upstream: str = ""
    """The conversation's id at Cursor, where one is known."""
    started_at: float = 0.0
    ended_at: float = 0.0
    again: bool = False
    """It was told before, without its usage: the gateway stopped it, and its end had come already."""


class RefusedRequest(Struct, frozen=True):
    """A request that was answered with an error before there was a response of a model."""

    request_id: str
    method: str
    """Empty when it could not be read."""
    path: str
    status: int
    kind: str
    """The value of its `ErrorKind`."""
    code: str
    """More exact than the kind, where there is such a code."""
    message: str
    """For the terminal; it may quote a few words of the request, so it is not kept."""
    at: float
    """Unix seconds."""
    caller: Caller = NOBODY
    dialect: str = ""
    model: str = ""
    """As it was asked for, when that was read."""
    turn: bool = False
    """It asked for a model's answer."""
    hint: str = ""
    """What to do about it, for the terminal."""
    trace: Mapping[str, str] | None = None
    """As in `TurnRecord`."""


class Observer(Protocol):
    """Override what you need; the defaults do nothing."""

    def response_ended(self, record: TurnRecord) -> None:
        return

    def run_ended(self, record: RunRecord) -> None:
        return

    def request_refused(self, record: RefusedRequest) -> None:
        return
