"""What the runs of one turn are charged, as a Protocol: asked before each run that is opened, told what was used. No
behaviour; budgets implement it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .events import Usage
    from .request import TurnRequest
    from .turn import Stage


class RunCharge(Protocol):
    @property
    def notice(self) -> str:
        """What to tell the client: how little is left; empty if not needed."""
        ...

    async def open_run(self, request: TurnRequest) -> None:
        """One more run. It is counted when this returns. Raises GatewayError when there may be none."""
        ...

    def run_failed(self) -> None:
        """The run that was counted last was not opened."""
        ...

    def response_ended(self, variant: str, usage: Usage | None) -> None:
        """What a response has used; with the total of its run, if that has ended."""
        ...

    def stage(self, request: TurnRequest) -> Stage | None:
        """Ends the response when its run passes a limit of its own; None when there is none."""
        ...


class RunCharges(Protocol):
    def charge(self, key: str, conversation: str) -> RunCharge | None:
        """For the runs of one turn; None when nothing is counted. `key` is a caller's, `conversation` ours."""
        ...
