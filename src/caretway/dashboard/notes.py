"""Finished work that the dashboard remembers beyond the ledger: the newest errors with remedies, refused requests
(equal ones once, with a count), recent recoveries, requested and chosen models. Bounded, in memory, lost with the
process.

Updated at the end of a request, never for a delta.
"""

from collections import deque
from typing import Final

from msgspec import Struct

from ..core.errors import ErrorKind
from ..core.records import Observer, RefusedRequest, TurnRecord
from ..core.recovery import words_of

MAX_REFUSED: Final = 200
MAX_RECOVERIES: Final = 100
MAX_MODELS: Final = 200
MAX_ERRORS: Final = 200
UNKNOWN_MODEL: Final = frozenset({ErrorKind.MODEL_UNKNOWN.value, "model_not_found"})
MAX_TOLD: Final = 500
"""The maximum length of a message."""


class NotedError(Struct, frozen=True):
    at: float
    status: int
    code: str
    message: str
    hint: str
    client: str
    model: str
    path: str
    conversation: str = ""
    """Empty if the request had no conversation."""


class NotedRefusal(Struct):
    at: float
    """The time of the newest refusal, in unix seconds."""
    method: str
    path: str
    status: int
    code: str
    message: str
    hint: str
    client: str
    key: str
    count: int = 1


class NotedRecovery(Struct, frozen=True):
    """A run that was lost, and whose request was answered all the same."""

    at: float
    rung: str
    """What was done."""
    cause: str
    """What happened, in words."""
    price: str
    model: str
    client: str
    conversation: str


class RequestedModel(Struct):
    asked: str
    taken: str
    refused: bool
    """The requested model does not exist, so no model was chosen."""
    last_at: float = 0.0
    count: int = 0


class PageNotes(Observer):
    def __init__(self) -> None:
        self.last_error: NotedError | None = None
        self.errors: dict[str, NotedError] = {}
        """Request -> why it failed, in order of time."""
        self.recoveries: deque[NotedRecovery] = deque(maxlen=MAX_RECOVERIES)
        self.responses = 0
        """The number of finished responses; a reader polls again when it changes."""
        self.refusals_noted = 0
        self._refused: dict[tuple[str, str, int, str, str, str], NotedRefusal] = {}
        self._models: dict[tuple[str, str], RequestedModel] = {}

    @property
    def refused(self) -> list[NotedRefusal]:
        """The refused requests, the newest first."""
        return sorted(self._refused.values(), key=lambda one: -one.at)

    @property
    def requested(self) -> list[RequestedModel]:
        return sorted(self._models.values(), key=lambda one: -one.last_at)

    def response_ended(self, record: TurnRecord) -> None:
        self.responses += 1
        refused = record.error in UNKNOWN_MODEL
        self._note_model(record.asked, "" if refused else record.variant, record.started_at, refused=refused)
        if record.error or record.recoveries:
            self._trouble(record)

    def _note_model(self, name: str, taken: str, at: float, *, refused: bool) -> None:
        row = self._models.get((name, taken))
        if row is None:
            row = self._models[name, taken] = RequestedModel(name, taken, refused)
            if len(self._models) > MAX_MODELS:
                del self._models[next(iter(self._models))]
        row.count += 1
        row.last_at = at

    def _trouble(self, record: TurnRecord) -> None:
        caller, at = record.caller, record.started_at + record.total_ms / 1000
        for rung, cause in record.recoveries if not record.error else ():
            happened = (rung, *words_of(rung, cause))
            self.recoveries.append(NotedRecovery(at, *happened, record.model, caller.client, record.conversation))
        if record.error:
            details = record.message[:MAX_TOLD], record.hint[:MAX_TOLD], caller.client, record.model
            self._note_error(
                record.request_id, NotedError(at, record.status, record.error, *details, "", record.conversation)
            )

    def _note_error(self, request: str, error: NotedError) -> None:
        self.last_error = error
        self.errors.pop(request, None)
        self.errors[request] = error
        if len(self.errors) > MAX_ERRORS:
            del self.errors[next(iter(self.errors))]

    def request_refused(self, record: RefusedRequest) -> None:
        self.refusals_noted += 1
        code, client, key = record.code or record.kind, record.caller.client, record.caller.key
        alike = record.method, record.path, record.status, code, client, key
        message, hint = record.message[:MAX_TOLD], record.hint[:MAX_TOLD]
        known = self._refused.pop(alike, None)
        count = known.count + 1 if known is not None else 1
        self._refused[alike] = NotedRefusal(
            record.at, record.method, record.path, record.status, code, message, hint, client, key, count
        )
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        if record.model and UNKNOWN_MODEL & {record.kind, record.code}:
            self._note_model(record.model, "", record.at, refused=True)
        if record.turn:
            self._note_error(
                record.request_id,
                NotedError(record.at, record.status, code, message, hint, client, record.model, record.path),
            )
