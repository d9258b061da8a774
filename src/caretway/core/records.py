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
    """The model as the client named it."""
    owner: str = ""
    """The owner of its turns: the key's id, which a rename does not change; empty if no key is needed."""
    kind: str = ""
    """As in `TurnRequest`."""


class TurnRecord(Struct, frozen=True):
    """Facts about a finished response."""

    request_id: str
    dialect: str
    backend: str
    model: str
    """The chosen model."""
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
    """The chosen model with its parameters, as one id."""
    conversation: str = ""
    """The gateway's opaque id; equal for all responses of a conversation that the gateway recognises."""
    run: str = ""
    """The run that answered, as in `RunRecord`."""
    error: str = ""
    """The code of the error that ended the response."""
    message: str = ""
    """The error's message for the terminal. It may quote a few words of the request, so it is not stored."""
    held: int | None = None
    """Estimated tokens of the history that the session already had, which a fresh run would have sent again. None: no
    history."""
    started_at: float = 0.0
    """Unix seconds."""
    status: int = 0
    """The HTTP status; 0 if the client hung up before it."""
    called: tuple[tuple[str, str], ...] = ()
    """(id, name) of the calls that the client got."""
    trace: Mapping[str, str] | None = None
    """The client's trace context, as its headers have it; None: it sent none."""
    content: tuple[str, str] | None = None
    """The prompt and the answer, only if the user's settings put them into traces. No other observer may store them."""
    hint: str = ""
    """The error's hint."""
    kind: str = ""
    """As in `TurnRequest`."""


class RunRecord(Struct, frozen=True):
    """Facts about a finished run of Cursor. One run may give many responses."""

    run: str
    """The gateway's opaque id."""
    origin: RequestOrigin
    """The request that opened it."""
    backend: str
    model: str
    variant: str
    conversation: str
    session: str
    """The label of the first response: fresh, continued, replayed."""
    reason: str
    outcome: str
    """The end: ended, paused, failed, stopped, expired, evicted, lost, shutdown, hung_up."""
    usage: RunUsage | None = None
    """Cursor's count; None if the run was cut or its backend reports nothing."""
    error: str = ""
    responses: int = 1
    upstream: str = ""
    """The conversation's id at Cursor, where one is known."""
    started_at: float = 0.0
    ended_at: float = 0.0
    again: bool = False
    """A second record of the run, with its usage: the gateway stopped the run before its end was read."""


class RefusedRequest(Struct, frozen=True):
    """A request that was answered with an error before a model's response."""

    request_id: str
    method: str
    """The HTTP method; empty if it could not be read."""
    path: str
    status: int
    kind: str
    """The value of its `ErrorKind`."""
    code: str
    """A code more exact than the kind, if there is one."""
    message: str
    """The message for the terminal. It may quote a few words of the request, so it is not stored."""
    at: float
    """Unix seconds."""
    caller: Caller = NOBODY
    dialect: str = ""
    model: str = ""
    """The model as the client named it, if it was read."""
    turn: bool = False
    """Whether it requested a model's answer."""
    hint: str = ""
    """The error's hint for the terminal."""
    trace: Mapping[str, str] | None = None
    """As in `TurnRecord`."""


class Observer(Protocol):
    """Receives records. Override what you need; the defaults do nothing."""

    def response_ended(self, record: TurnRecord) -> None:
        return

    def run_ended(self, record: RunRecord) -> None:
        return

    def request_refused(self, record: RefusedRequest) -> None:
        return
