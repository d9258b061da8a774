"""The head of an answer leaves together with the first of its body: one packet, and one wake-up of the client.

uvicorn writes the head as soon as it is given, and the socket sends it at once. This stands between its
request-response cycle and the socket and keeps the head until there is a body to go with it, which in this application
is the very next thing that is sent.
"""

from typing import Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_HEAD: Final = b"HTTP/1.1 "
_INTERIM: Final = b"HTTP/1.1 1"


class OnePiece:
    """What a cycle needs of a transport."""

    __slots__ = ("_cycle", "_head", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            self._cycle.transport = self._transport  # the rest goes there directly
            self._transport.write(self._head + data)
        elif data.startswith(_HEAD) and not data.startswith(_INTERIM):
            self._head = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
