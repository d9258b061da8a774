"""The HTTP/2 transport, set up for a test, and the conversation most tests have with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from caretway.cursor.transport.dial import Dialler
from caretway.cursor.transport.h2_transport import H2Transport
from caretway.cursor.transport.ports import NewRun, Transport, TransportLimits

from .h2_peer import H2Site
from .listener import Listener

HEADERS = {"authorization": "Bearer t", "X-Cursor-Client-Type": "sdk"}


@asynccontextmanager
async def client(site: H2Site, limits: TransportLimits | None = None) -> AsyncIterator[H2Transport]:
    transport = H2Transport(Dialler().dial(site.url), limits=limits or TransportLimits())
    _fits_the_port(transport)
    try:
        yield transport
    finally:
        await transport.aclose()


def _fits_the_port(transport: H2Transport) -> Transport:
    return transport


async def echo_twenty(transport: H2Transport) -> Listener:
    """Each message is sent only after the answer to the one before it."""
    listener = Listener()
    run = await transport.open_run(NewRun("r-1", HEADERS), listener)
    for number in range(20):
        run.send(b"message %d" % number)
        assert (await listener.heard(number + 1))[-1] == b"message %d" % number
    run.close()
    return listener
