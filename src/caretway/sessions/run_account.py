"""What is told of a run when it is over: who opened it, its conversation, its responses, how often it was told. A total
that Cursor reports is told at once; a run that ends without one is told without a usage, and nothing is guessed.

A run is told once. Where the gateway stopped it and its total comes after all, it is told again under the same id;
where one turn has several totals (a run that ends at each pause), each of them has its own.
"""

import time
from typing import Final

from msgspec import Struct, field

from ..core.charge import RunCharge
from ..core.events import RunUsage
from ..core.records import RequestOrigin, RunRecord
from ..core.request import TurnRequest
from ..models.names import spelled

FROM_NOWHERE: Final = RequestOrigin()


class RunAccount(Struct, eq=False):
    """What is told of a run when it is over, as far as it is known."""

    origin: RequestOrigin = FROM_NOWHERE
    conversation: str = ""
    label: str = ""
    reason: str = ""
    newest: tuple[str, str] = ("", "")
    """The same of its newest response, which may have resumed it."""
    upstream: str = ""
    """The conversation's id at Cursor."""
    error: str = ""
    """Of its newest response."""
    responses: int = 0
    told: int = 0
    """How many records there are of it: one when it is over, or one for each total that Cursor told."""
    due: bool = True
    """Something of it was not told yet."""
    started_at: float = field(default_factory=time.time)
    charge: RunCharge | None = None
    """What its runs are charged; None: nobody counts."""

    def answers(self, label: str, reason: str) -> None:
        """One more response is read from it."""
        self.responses += 1
        self.due = True
        self.newest = label, reason
        if not self.label:
            self.label, self.reason = label, reason

    def record(self, run: str, backend: str, request: TurnRequest, outcome: str, usage: RunUsage | None) -> RunRecord:
        again = not self.due
        if not again:
            self.told += 1
        self.due = False
        return RunRecord(
            run=run if self.told == 1 else f"{run}.{self.told}",
            origin=self.origin,
            backend=backend,
            model=request.model,
            variant=spelled(request.model, request.parameters, request.choice.max_mode),
            conversation=self.conversation,
            session=self.label,
            reason=self.reason,
            outcome=outcome,
            usage=usage,
            error=self.error,
            responses=self.responses,
            upstream=self.upstream,
            started_at=self.started_at,
            ended_at=time.time(),
            again=again,
        )
