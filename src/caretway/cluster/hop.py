"""Chooses the gateway that answers a request: the gateway that holds its turn, the gateway that claimed a dead
gateway's turn, or this one. A draining gateway gives new turns away. Requests travel one hop, over kept connections.

A gateway that does not accept a request in time, or that was replaced at its address, counts as gone for a while.
Nothing of a request is sent before the peer has proved that it has the cluster's key and is the gateway that was
dialled.
"""

import asyncio
import hashlib
import logging
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from os import urandom
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from ..core.errors import ErrorKind, GatewayError
from ..core.passing import CHALLENGE, HOP, Held, PassedRequest, RelayWriter, Visit
from ..processes.tasks import aside
from .directory import Directory, Replica
from .link import RedisAway, RedisLink
from .seal import SMALL, HopSession, NotForUs, Seal, answered, challenge, met, proven, signed, signing_key

# ---- hop connection

# One HTTP/1.1 connection to another gateway. It sends a request's head, and the body only after 100 Continue, so that
# no request is half delivered; it relays the response as it arrives, at the pace of the slower side.

_DROPPED: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date"})
_HOP: Final = HOP.encode()
_MAX_ANSWER: Final = 4096
_MAX_TOLD: Final = 300


class HopFailed(Exception):
    """The hop failed before the client got anything."""

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale
        """The failure was on a kept connection, and the peer did not read the request."""


class HopConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self.closed = False
        self.session: HopSession | None = None
        """Set when the peer has proved its identity."""
        self._met: asyncio.Future[bytes] | None = None
        self._first = b""
        """The bytes received so far of the response to the challenge."""
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._writer: RelayWriter | None = None
        self._body = b""
        self._accepted: asyncio.Future[None] | None = None
        self._done: asyncio.Future[None] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._status = 0
        self._length: int | None = None
        self._refused = ""
        self._paused = False
        self.reusable = True
        self.extra_headers: tuple[tuple[bytes, bytes], ...] = ()
        """Headers that are added to every relayed response."""

    # ---- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            _watch(plain)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._met is not None and not self._met.done():
            self._met.set_result(b"")
        self._fail("its connection was lost")

    def data_received(self, data: bytes) -> None:
        if self._met is not None and not self._met.done():
            self._first += data
            if b"\r\n\r\n" in self._first or len(self._first) > _MAX_ANSWER:
                self._met.set_result(self._first)
            return
        if self._parser is None:
            self.abort()  # no request is open
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("its answer is no HTTP")
            self.abort()

    def eof_received(self) -> None:
        return None

    # ---- the challenge

    async def meet(self, head: bytes, patience: float) -> str:
        """Send the challenge in this head and return the peer's response to it. Raises HopFailed."""
        met: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._met = met
        self._transport.write(head)
        try:
            async with asyncio.timeout(patience):
                answer = await met
        except TimeoutError:
            raise HopFailed(f"it did not answer the challenge within {patience:.0f} s") from None
        finally:
            if self.session is None and (not met.done() or met.cancelled()):
                self.abort()
        self._first = b""
        lines = [line.partition(":") for line in answer.decode("latin-1").split("\r\n")[1:]]
        values = {name.lower(): value.strip() for name, _, value in lines}
        if CHALLENGE not in values:
            self.abort()
            raise HopFailed(_readable(values.get(HOP, "it did not answer the challenge")))
        return values[CHALLENGE]

    # ---- one request

    async def ask(self, head: bytes, body: bytes, writer: RelayWriter, patience: float) -> None:
        """Relay the response to the writer. Returns when the response is complete, or was cut after it began; in the
        second case the writer is aborted. Raises HopFailed."""
        loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._writer, self._body, self._status, self._refused = writer, body, 0, ""
        accepted, done = self._accepted, self._done = loop.create_future(), loop.create_future()
        done.add_done_callback(_seen)
        self._transport.write(head)
        try:
            try:
                async with asyncio.timeout(patience):
                    await asyncio.wait((accepted, done), return_when=asyncio.FIRST_COMPLETED)
            except TimeoutError:
                raise HopFailed(f"it did not take the request within {patience:.0f} s") from None
            await done
        finally:
            if not done.done() or done.cancelled() or done.exception() is not None:
                self.abort()
            self._parser = self._writer = self._accepted = self._done = None

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def _fail(self, why: str) -> None:
        writer, done = self._writer, self._done
        if done is None or done.done():
            return
        self.reusable = False
        if self._status and writer is not None:
            writer.abort()  # a response that began and cannot be completed must not look complete
            done.set_result(None)
        else:
            done.set_exception(HopFailed(why, stale=self._accepted is not None and not self._accepted.done()))

    # ---- the parser

    def on_message_begin(self) -> None:
        self._headers, self._length = [], None

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length":
            self._length = int(value)
        elif name == _HOP:
            self._refused = _readable(value.decode("latin-1"))
        elif name not in _DROPPED:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            if self._accepted is not None and not self._accepted.done():
                self._accepted.set_result(None)
                self._transport.write(self._body)
                self._body = b""
            return
        self.reusable = self._parser.should_keep_alive()
        if self._accepted is None or not self._accepted.done():
            self.reusable = False  # the response came before the body was sent
        if self._refused:
            self._fail(self._refused)
            return
        writer = self._writer
        assert writer is not None
        self._status = status
        writer.on_writable(self._resume)
        writer.relay(status, (*self._headers, *self.extra_headers), self._length)

    def on_body(self, data: bytes) -> None:
        writer = self._writer
        if self._status and writer is not None:
            writer.write(data)
            if writer.blocked and not self._paused:
                self._paused = True
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        done = self._done
        if not self._status or done is None or done.done():
            return
        assert self._writer is not None
        self._writer.finish()
        done.set_result(None)

    def _resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()


def _readable(text: str) -> str:
    """Make text from a peer safe for the log: terminal codes are escaped."""
    return ascii(text[:_MAX_TOLD])[1:-1]


def _seen(done: "asyncio.Future[None]") -> None:
    """Mark the failure as retrieved; `ask` reports it if `ask` still waits."""
    if not done.cancelled():
        done.exception()


def _watch(plain: socket.socket) -> None:
    """Let the kernel probe the peer: a machine that lost its power closes no connection."""
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000)):
        option = getattr(socket, name, None)
        if option is not None:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)


def head_bytes(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1\r\n", *[f"{name}: {value}\r\n" for name, value in headers], "\r\n"]
    return "".join(lines).encode("latin-1", "replace")


# ---- claims

# Which gateway replays a turn whose gateway is gone: the first to claim it in Redis. A gateway that gets a request for
# the same turn passes the request to the winner, so that nothing runs twice. The claim of a dead winner is taken over.

_TAKE: Final = """
local held = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[4])
if type(held) ~= 'string' or held == '' or held == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
  return ARGV[1]
end
return held
"""
"""One atomic step, so that two gateways that find the same dead winner do not both win. ARGV: the claim, the row that
the claim may replace, the claim's seconds, the bytes that are read of a row."""
_TRIES: Final = 4


class Claims:
    def __init__(self, link: RedisLink, seal: Seal, life_s: float) -> None:
        """`life_s`: how long a client can still send results for the turn."""
        self._link = link
        self._seal = seal
        self._life_s = int(life_s)

    async def claim(self, sid: str, own: str, instead_of: str = "") -> str:
        """The id of the gateway that replays the turn: `own`, or an earlier winner. `instead_of`: a winner that is
        gone. A forged claim is ignored. Raises RedisAway."""
        place = self._link.key("claim", sid.encode())
        wanted = self._seal.close(place, own.encode())
        held = b""
        for _ in range(_TRIES):
            (held,) = await self._link.run([("EVAL", _TAKE, 1, place, wanted, held, self._life_s, SMALL)])
            winner = own if held == wanted else (self._seal.open(place, held) or b"").decode()
            if winner and winner != instead_of:
                return winner
        raise RedisAway("others change the claim all the time")


# ---- hop


log = logging.getLogger(__name__)

CONNECT_S: Final = 2.0
ACCEPT_S: Final = 5.0
"""Seconds for a peer to read a request's head. The response itself has no time limit here."""
KEPT: Final = 32
"""Connections to one gateway that are kept for the next requests."""
SESSIONS: Final = 8192
"""Inbound hop sessions. Above this number the session that was idle longest is dropped, and its gateway reconnects."""
LARGE: Final = 256 * 1024
"""Bytes: the digest of a larger body is computed outside the event loop."""
CLAIM_TRIES: Final = 3
GONE: Final = "its replica is gone"
OTHER_VERSION: Final = "its replica has another version"
UNCLAIMED: Final = "its replica is gone, and Redis is away"
_NOT_PASSED: Final = frozenset(
    {
        *("host", "connection", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
        *("content-length", "expect", "cookie", "x-caretway-key", "x-request-id", CHALLENGE, HOP),
    }
)
_KEYS: Final = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})


class Hops:
    """Passes requests to the other gateways of the cluster and accepts theirs."""

    def __init__(
        self,
        directory: Directory,
        claims: Claims,
        cluster_key: str,
        *,
        tls: Callable[[], ssl.SSLContext],
        plaintext: bool = False,
        keeps_keys: bool = False,
    ) -> None:
        """`plaintext`: the network encrypts, so addresses without TLS are dialled. `keeps_keys`: clients' API keys are
        passed on, because they choose the account."""
        self._directory = directory
        self._claims = claims
        self._key = signing_key(cluster_key)
        self._plaintext = plaintext
        self._sessions: OrderedDict[str, HopSession] = OrderedDict()
        """Sessions of inbound connections, least recently used first."""
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._not_passed = _NOT_PASSED if keeps_keys else _NOT_PASSED | _KEYS
        self._idle: dict[tuple[str, str], list[HopConnection]] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """(`out`, `in`, `claim` or `here`; outcome) -> count."""

    @property
    def id(self) -> str:
        return self._directory.id

    @property
    def draining(self) -> bool:
        return self._directory.own.draining

    # ---- in

    def meet(self, challenge: str) -> str:
        own = self._directory.own
        try:
            answer, session = answered(
                self._key,
                challenge,
                schema=own.schema,
                own=own.id,
                address=own.address,
                nonce=urandom(16).hex(),
            )
        except NotForUs as problem:
            raise self._refused(problem) from None
        self._sessions[session.name] = session
        if len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return answer

    def visit(self, method: str, target: str, headers: Mapping[str, str]) -> Visit:
        try:
            session, visit = proven(self._sessions, headers[HOP], own=self.id, method=method, target=target)
        except NotForUs as problem:
            raise self._refused(problem) from None
        self._sessions.move_to_end(session)
        self.counts["in", "answered"] += 1
        return visit

    def _refused(self, problem: NotForUs) -> GatewayError:
        self.counts["in", "refused"] += 1
        return GatewayError(ErrorKind.ACCESS_DENIED, f"The request was passed on, and not taken: {problem}.")

    # ---- out

    async def answer(self, held: Sequence[Held], request: PassedRequest, writer: RelayWriter) -> str | None:
        if not held:
            return await self._give_away(request, writer) if self.draining else ""
        turn = held[0]
        if turn.replica == self.id:
            return ""
        why = GONE
        owner = await self._directory.ask(turn.replica)
        if owner is not None and owner.schema != self._directory.own.schema:
            why = OTHER_VERSION
        elif owner is not None and await self._passed(owner, request, writer):
            return None
        try:
            winner = await self._winner(turn.sid, request, writer)
        except RedisAway:
            why = UNCLAIMED if why == GONE else why
        else:
            if winner is None:
                return None
        self.counts["here", why] += 1
        return why

    async def lookup(self, made: Held, request: PassedRequest, writer: RelayWriter) -> bool:
        own = self._directory.own
        maker = None if made.replica == own.id else await self._directory.ask(made.replica)
        if maker is None or maker.schema != own.schema:
            return False
        return await self._passed(maker, request, writer)

    async def _winner(self, sid: str, request: PassedRequest, writer: RelayWriter) -> Replica | None:
        """The gateway that replays the turn: this one, or None if another gateway answered. Raises RedisAway."""
        dead = ""
        for _ in range(CLAIM_TRIES):
            winner = await self._claims.claim(sid, self.id, dead)
            if winner == self.id:
                self.counts["claim", "won"] += 1
                break
            self.counts["claim", "lost"] += 1
            other = await self._directory.ask(winner)
            if other is not None and await self._passed(other, request, writer):
                return None
            dead = winner
        return self._directory.own

    async def _give_away(self, request: PassedRequest, writer: RelayWriter) -> str | None:
        """Pass a new turn to another gateway, because this one is draining. None if another gateway has answered; empty
        if the turn must begin here."""
        own = self._directory.own
        others = [one for one in self._directory.alive() if not one.draining and one.schema == own.schema]
        for other in [one for one in others if one.id != own.id][-2:]:
            if await self._passed(other, request, writer):
                return None
        return ""

    async def _passed(self, to: Replica, request: PassedRequest, writer: RelayWriter) -> bool:
        """Pass the request to a peer and relay the response. False if the peer did not accept the request; then nothing
        was written."""
        digest = await aside(_digest, request.body) if len(request.body) > LARGE else _digest(request.body)
        try:
            while True:
                kept = self._kept(to)
                try:
                    await self._ask(kept or await self._connect(to), to, request, digest, writer)
                    break
                except HopFailed as failure:
                    if kept is None or not failure.stale:
                        raise
        except HopFailed as failure:
            self.counts["out", "failed"] += 1
            self._directory.not_there(to.id)
            log.info("%s was not passed on to %s: %s", request.request_id, to.id, failure)
            return False
        self.counts["out", "passed"] += 1
        return True

    async def _ask(
        self, connection: HopConnection, to: Replica, request: PassedRequest, digest: str, writer: RelayWriter
    ) -> None:
        assert connection.session is not None
        proof = signed(
            connection.session, method=request.method, target=request.target, digest=digest, asker=request.asker
        )
        headers = [
            ("host", urlsplit(to.address).netloc),
            *[(name, value) for name, value in request.headers.items() if self._travels(name)],
            ("x-request-id", request.request_id),
            (HOP, proof),
            ("content-length", str(len(request.body))),
            ("expect", "100-continue"),
        ]
        connection.extra_headers = ((b"x-caretway-passed-to", to.id.encode()),)
        await connection.ask(head_bytes(request.method, request.target, headers), request.body, writer, ACCEPT_S)
        self._keep(to, connection)

    def _travels(self, name: str) -> bool:
        return name not in self._not_passed and not name.startswith(":")

    # ---- connections

    def _kept(self, to: Replica) -> HopConnection | None:
        kept = self._idle.get((to.id, to.address))
        while kept:
            connection = kept.pop()
            if not connection.closed:
                return connection
        return None

    def _keep(self, to: Replica, connection: HopConnection) -> None:
        place = (to.id, to.address)
        if place not in self._idle:  # a good moment to drop the entries of gateways that are gone
            self._idle = {one: kept for one, kept in self._idle.items() if any(not each.closed for each in kept)}
        kept = self._idle.setdefault(place, [])
        if connection.reusable and not connection.closed and len(kept) < KEPT:
            kept.append(connection)
        elif not connection.closed:
            connection.abort()

    async def _connect(self, to: Replica) -> HopConnection:
        """A new connection to a gateway that has proved its identity. Raises HopFailed."""
        try:
            if not (self._plaintext or is_sheltered(to.address)):
                raise HopFailed(f"{to.address} is not encrypted")
            connection = await self._dialled(to.address)
        except TimeoutError:
            raise HopFailed(f"no connection within {CONNECT_S:.0f} s") from None
        except (OSError, ValueError) as failure:  # ValueError: a malformed address
            raise HopFailed(f"no connection: {failure}") from failure
        asked = challenge(
            self._key,
            schema=self._directory.own.schema,
            to=to.id,
            address=to.address,
            sender=self.id,
            nonce=urandom(16).hex(),
        )
        headers = [("host", urlsplit(to.address).netloc), (CHALLENGE, asked)]
        try:
            answer = await connection.meet(head_bytes("GET", "/healthz", headers), ACCEPT_S)
            connection.session = met(self._key, asked, answer)
        except NotForUs as problem:
            connection.abort()
            raise HopFailed(f"it is not a gateway of this cluster: {problem}") from None
        return connection

    async def _dialled(self, address: str) -> HopConnection:
        parts = urlsplit(address)
        tls = parts.scheme == "https"
        if tls and self._tls is None:
            self._tls = self._make_tls()
        async with asyncio.timeout(CONNECT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                HopConnection,
                parts.hostname or "",
                parts.port or (443 if tls else 80),
                ssl=self._tls if tls else None,
            )
        return connection

    async def aclose(self) -> None:
        idle, self._idle = self._idle, {}
        for connection in [one for kept in idle.values() for one in kept]:
            connection.abort()


def is_sheltered(address: str) -> bool:
    """True for TLS and for loopback addresses. Raises ValueError."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
