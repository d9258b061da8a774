"""Which gateway answers a request, and why: the one that holds its turn, the one that has claimed a dead one's turn, or
this one; a gateway that is draining gives new turns away. Passes requests on over kept connections, in one hop.

A gateway that does not take a request in time, or is another one by now, counts as gone for a while. Nothing of a
request is sent before the other side has proved that it has the cluster's key and is the one that was dialled.
"""

import asyncio
import hashlib
import logging
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from os import urandom
from typing import Final
from urllib.parse import urlsplit

from ..core.errors import ErrorKind, GatewayError
from ..core.passing import CHALLENGE, HOP, Held, PassedRequest, RelayWriter, Visit
from ..processes.tasks import aside
from .claims import Claims
from .directory import Directory, Replica
from .hop_connection import HopConnection, HopFailed, head_bytes
from .link import RedisAway
from .signature import HopSession, NotForUs, answered, challenge, met, proven, signed, signing_key

log = logging.getLogger(__name__)

CONNECT_S: Final = 2.0
ACCEPT_S: Final = 5.0
"""For a gateway to look at a request's head. Making the answer may take as long as it takes."""
KEPT: Final = 32
"""Connections to one gateway that are kept for the next request."""
SESSIONS: Final = 8192
"""Connections from other gateways whose hops are accepted. Beyond it the one that was idle longest makes a new one."""
LARGE: Final = 256 * 1024
"""Bodies whose digest is made beside the event loop."""
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
    """The other gateways, for requests."""

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
        """`plaintext`: the network encrypts, so addresses without TLS are dialled. `keeps_keys`: clients' own keys are
        passed on, because they name the account that answers."""
        self._directory = directory
        self._claims = claims
        self._key = signing_key(cluster_key)
        self._plaintext = plaintext
        self._sessions: OrderedDict[str, HopSession] = OrderedDict()
        """Of connections that others have made; the one that was used last stands last."""
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._not_passed = _NOT_PASSED if keeps_keys else _NOT_PASSED | _KEYS
        self._idle: dict[tuple[str, str], list[HopConnection]] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """(`out`, `in`, `claim` or `here`; how it went) -> how often."""

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
        """Who replays it: this one, or None when another has. Raises RedisAway."""
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
        """A new turn would be cut off here soon. If there is no other gateway, it begins here."""
        own = self._directory.own
        others = [one for one in self._directory.alive() if not one.draining and one.schema == own.schema]
        for other in [one for one in others if one.id != own.id][-2:]:
            if await self._passed(other, request, writer):
                return None
        return ""

    async def _passed(self, to: Replica, request: PassedRequest, writer: RelayWriter) -> bool:
        """False: it did not take the request, and nothing was written."""
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
        connection.told = ((b"x-caretway-passed-to", to.id.encode()),)
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
        if place not in self._idle:  # a moment to forget the gateways that are gone
            self._idle = {one: kept for one, kept in self._idle.items() if any(not each.closed for each in kept)}
        kept = self._idle.setdefault(place, [])
        if connection.reusable and not connection.closed and len(kept) < KEPT:
            kept.append(connection)
        elif not connection.closed:
            connection.abort()

    async def _connect(self, to: Replica) -> HopConnection:
        """Raises HopFailed, also where the other side is not the gateway that was dialled."""
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
    """TLS, or loopback. Raises ValueError."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
