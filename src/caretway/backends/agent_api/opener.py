"""What a turn needs to open the attempts of its run."""

from typing import Protocol

from ...cursor_transport.ports import RunHandler, RunStream


class Opener(Protocol):
    """Opens the attempts of one run."""

    def open_now(self, handler: RunHandler) -> RunStream | None:
        """The first attempt, when nothing has to be waited for; None: nothing was done."""
        ...

    async def open(self, handler: RunHandler, *, refused: bool, alone: bool) -> RunStream:
        """`refused`: the credentials of the attempt before were. `alone`: on a connection of its own."""
        ...

    async def move(self, *, sure: bool) -> bool:
        """The host of the last attempt may not serve the account (`sure`: it does not). Whether the next one goes to
        another."""
        ...
