"""Closes a transport's connections at shutdown: one second to close in order, then they are aborted."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Final, Protocol

CLOSE_GRACE_S: Final = 1.0
"""How long is waited for sockets to close in order."""


class Closing(Protocol):
    """A connection that was told to close."""

    closed: asyncio.Future[None]

    def abort(self) -> None: ...


async def all_closed(connections: Collection[Closing]) -> None:
    if connections:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await asyncio.gather(*(connection.closed for connection in connections))
    for connection in connections:
        if not connection.closed.done():
            connection.abort()
