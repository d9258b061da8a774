"""A TCP proxy that damages connections at a chosen byte. It knows nothing of what the bytes mean.

Every accepted connection gets a number, a connection of its own to the target, and (from the plan) at most one fault.
What happened is in `fired`. Bytes up to the fault pass untouched; both legs feel the other's backpressure.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, cast

from faults.plan import Direction, Fault, Fired, Kind, Plan, quiet

BURIAL_S: Final = 3.0
"""Who hangs up behind a black hole is not heard; the connection is buried after this, as by a real peer's timer."""
TRICKLE_BYTES: Final = 24
TRICKLE_PAUSE_S: Final = 0.004
_NO_LINGER: Final = struct.pack("ii", 1, 0)

Watch = Callable[[int, Direction, bytes], None]
"""Told of everything that arrives: connection, direction, bytes."""


class Proxy:
    def __init__(self, target: int, plan: Plan = quiet, watch: Watch | None = None) -> None:
        self.target = target
        self.plan = plan
        self.watch = watch
        self.sudden: Fault | None = None
        """One for whichever connection carries that byte: counted over all connections, from `since` on."""
        self.since = dict.fromkeys(Direction, 0)
        self.fired: list[Fired] = []
        self.accepted = 0
        self.carried = dict.fromkeys(Direction, 0)
        self._began = time.monotonic()
        self._links: set[Link] = set()
        self._server: asyncio.Server | None = None
        self._emptied = asyncio.Event()
        self._emptied.set()

    async def listen(self) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0, backlog=1024)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def open(self) -> int:
        return len(self._links)

    def hang_up(self) -> None:
        """Close every connection in order, on both legs."""
        for link in list(self._links):
            link.close()

    def surprise(self, fault: Fault | None) -> None:
        self.sudden, self.since = fault, dict(self.carried)

    async def retire(self) -> None:
        """End every connection in order and wait until all peers have noticed."""
        for link in list(self._links):
            link.client.end()
            link.server.end()
        await self.emptied()

    async def emptied(self) -> None:
        """Until no connection is open."""
        await self._emptied.wait()

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.abort()
        await self.emptied()
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self) -> "_Leg":
        number, self.accepted = self.accepted, self.accepted + 1
        link = Link(self, number, self.plan(number, 0))
        self._links.add(link)
        self._emptied.clear()
        return link.client

    def happened(self, link: "Link", fault: Fault) -> None:
        self.fired.append(Fired(link.number, fault, time.monotonic() - self._began))

    def over(self, link: "Link") -> None:
        self._links.discard(link)
        if not self._links:
            self._emptied.set()


class Link:
    """A connection: two legs, and a pipe for each direction."""

    def __init__(self, proxy: Proxy, number: int, fault: Fault | None) -> None:
        self.proxy = proxy
        self.number = number
        self.fault = fault
        self.client = _Leg(self, Direction.UP)
        self.server = _Leg(self, Direction.DOWN)
        self.pipes = {
            Direction.UP: _Pipe(self, Direction.UP, self.client, self.server),
            Direction.DOWN: _Pipe(self, Direction.DOWN, self.server, self.client),
        }
        self._dialling: asyncio.Task[None] | None = None
        self._lost = 0
        self._survived = 0

    def begin(self) -> None:
        """The client is here: find it its server."""
        asyncio.get_running_loop().call_soon(self.client.hold)  # Python 3.11.2 starts to read after `connection_made`
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, "127.0.0.1", self.proxy.target)
        except OSError:
            self._lost += 1
            self.client.abort()
            return
        if self.client.gone:
            self.server.abort()
            return
        self.client.release()
        for pipe in self.pipes.values():
            pipe.start()

    def fire(self, fault: Fault, pipe: "_Pipe", rest: bytes) -> None:
        if fault is self.proxy.sudden:
            self.proxy.sudden = None
        else:
            self.fault = None
        self.proxy.happened(self, fault)
        other = self.pipes[Direction.DOWN if fault.direction is Direction.UP else Direction.UP]
        match fault.kind:
            case Kind.RESET:
                self.abort()
            case Kind.TRUNCATE:
                self.close()
            case Kind.HALF_CLOSE:
                pipe.drop()
                pipe.target.end()
            case Kind.STALL:
                pipe.stall(rest, fault.seconds)
            case Kind.TRICKLE:
                pipe.trickle(rest, fault.seconds)
            case Kind.BLACK_HOLE:
                pipe.drop()
                other.drop()
            case Kind.ONE_WAY:
                pipe.drop()

    def survive(self) -> None:
        """The fault has passed and the connection lives: it gets another one."""
        self._survived += 1
        fault = self.proxy.plan(self.number, self._survived)
        self.fault = fault and replace(fault, at=fault.at + self.pipes[fault.direction].passed)

    def ended(self, leg: "_Leg") -> None:
        """A peer has said its last word."""
        if self.pipes[leg.says].dropping:
            self._bury()
        else:
            self.pipes[leg.says].finish()

    def lost(self, leg: "_Leg") -> None:
        self._lost += 1
        other = self.server if leg is self.client else self.client
        if self._lost >= 2:
            for pipe in self.pipes.values():
                pipe.cancel()
            self.proxy.over(self)
        elif other.transport is None:
            pass  # still being dialled: closed when that is done
        elif self.pipes[leg.says].dropping:  # nobody is told, for a while
            self._bury()
        elif leg.was_reset:
            other.abort()
        else:
            self.pipes[leg.says].finish(close=True)

    def _bury(self) -> None:
        asyncio.get_running_loop().call_later(BURIAL_S, self.abort)

    def close(self) -> None:
        for leg in (self.client, self.server):
            leg.close()

    def abort(self) -> None:
        for leg in (self.client, self.server):
            leg.abort()


class _Leg(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, link: Link, says: Direction) -> None:
        self.link = link
        self.says = says
        self.transport: asyncio.Transport | None = None
        self.gone = False
        self.was_reset = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self is self.link.client:
            self.link.begin()

    def data_received(self, data: bytes) -> None:
        self.link.pipes[self.says].carry(data)

    def eof_received(self) -> bool:
        self.link.ended(self)
        return not self._ended  # the other direction may go on

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self.was_reset = exc is not None
        self.link.lost(self)

    def pause_writing(self) -> None:
        self._source().hold()

    def resume_writing(self) -> None:
        self._source().release()

    def _source(self) -> "_Leg":
        return self.link.server if self is self.link.client else self.link.client

    def hold(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def release(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        if data and self.transport is not None and not self._ended and not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        if self.transport is not None and not self._ended and not self.transport.is_closing():
            with suppress(OSError):  # the peer was faster, and is gone for good
                self._ended = True
                self.transport.write_eof()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None and not self.gone:
            raw = self.transport.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.transport.abort()


class _Pipe:
    """One direction of a connection."""

    def __init__(self, link: Link, direction: Direction, source: _Leg, target: _Leg) -> None:
        self._link = link
        self._direction = direction
        self._source = source
        self.target = target
        self.passed = 0
        self._held: bytearray | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow_until = 0.0
        self._closing = False
        self._finished = False
        self.dropping = False

    def start(self) -> None:
        """Both legs are there. A fault before the first byte is due now."""
        self._due(b"")

    def carry(self, data: bytes) -> None:
        if self._link.proxy.watch is not None:
            self._link.proxy.watch(self._link.number, self._direction, data)
        if self.dropping:
            return
        if self._held is not None:
            self._held += data
            return
        left = min((fault.at - passed for fault, passed in self._faults()), default=len(data) + 1)
        self._pass(data[:left])
        if left <= len(data):
            self._due(data[left:])

    def _pass(self, data: bytes) -> None:
        self.passed += len(data)
        self._link.proxy.carried[self._direction] += len(data)
        self.target.write(data)

    def _due(self, rest: bytes) -> None:
        for fault, passed in self._faults():
            if passed >= fault.at:
                self._link.fire(fault, self, rest)
                return

    def _faults(self) -> list[tuple[Fault, int]]:
        """Those that may happen here, each with the bytes that it counts."""
        proxy, direction = self._link.proxy, self._direction
        known = (
            (self._link.fault, self.passed),
            (proxy.sudden, proxy.carried[direction] - proxy.since[direction]),
        )
        return [(fault, passed) for fault, passed in known if fault is not None and fault.direction is direction]

    # ---- faults that last

    def drop(self) -> None:
        self.dropping = True
        self._held = None

    def stall(self, rest: bytes, seconds: float) -> None:
        self._held = bytearray(rest)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._flush)

    def trickle(self, rest: bytes, seconds: float) -> None:
        self._held = bytearray(rest)
        self._slow_until = asyncio.get_running_loop().time() + seconds
        self._drip()

    def _drip(self) -> None:
        loop, held = asyncio.get_running_loop(), self._held
        if held is None:
            return
        if loop.time() >= self._slow_until:
            self._flush()
            return
        self._pass(bytes(held[:TRICKLE_BYTES]))
        del held[:TRICKLE_BYTES]
        self._timer = loop.call_later(TRICKLE_PAUSE_S, self._drip)

    def _flush(self) -> None:
        held, self._held, self._timer = self._held, None, None
        self._pass(bytes(held or b""))
        if self._finished:
            self.finish(close=self._closing)
        else:
            self._link.survive()

    def finish(self, *, close: bool = False) -> None:
        """The source says no more: pass that on, after what is held."""
        self._finished, self._closing = True, self._closing or close
        if self.dropping or self._held is not None:
            return
        if self._closing:
            self.target.close()
        else:
            self.target.end()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
