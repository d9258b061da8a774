"""The interfaces that a backend gives to its turn: opening attempts, asking for the quota, simpler schemas, and telling
what was learned of a model; and the handler that tells late news of an old attempt apart."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from ...core.errors import GatewayError
from ...cursor.transport.ports import RunHandler, RunStream
from .compose import Opening

log = logging.getLogger(__name__)

Result = TypeVar("Result")

QuotaCheck = Callable[[GatewayError], Awaitable[GatewayError | None]]
"""What to tell the client instead of this refusal when the account's usage is spent; None when it is not, or nobody
knows."""
Learned = Callable[[int, bool], None]
"""Is told which way to ask for the model was understood, and whether the schemas had to be simplified."""
Simplify = Callable[[], Awaitable[Opening | None]]
"""The opening with simpler schemas; None when there is nothing to simplify."""


class RunGone(Exception):
    """The run cannot be opened again: only its history can be told to a fresh one."""

    def __init__(self, fault: GatewayError) -> None:
        super().__init__(fault.message)
        self.fault = fault


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


class Attempt:
    """The handler of one attempt: late news of an attempt that was given up are told apart by its number."""

    __slots__ = ("number", "on_closed", "on_messages")

    def __init__(
        self,
        number: int,
        hear: Callable[[int, list[bytes]], None],
        closed: Callable[[int, GatewayError | None], None],
    ) -> None:
        self.number = number
        self.on_messages = partial(hear, number)
        self.on_closed = partial(closed, number)


async def asked(question: Awaitable[Result], what: str) -> Result | None:
    """The answer; None when asking failed. Whatever it was, the turn goes on as if nobody knew."""
    try:
        return await question
    except Exception as failure:  # of any kind: a turn that waits for an answer must not be left waiting
        log.error("%s failed", what, exc_info=failure)
        return None
