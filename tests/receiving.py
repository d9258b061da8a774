"""Waiting for events, for tests: the product itself is told of them (`core.turn.Source`) and waits for none."""

import asyncio

from caretway.core.events import Event
from caretway.core.turn import Source


async def receive(source: Source) -> list[Event]:
    """At least one event, as soon as there is one."""
    while not (events := source.take()):
        told = asyncio.Event()
        source.listen(told.set)
        await told.wait()
    return events
