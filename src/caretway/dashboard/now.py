"""The current state on the dashboard: address, backend and its standing, sign-in, account, live turns, tokens per
second, an error of the last hour, the gateways of a cluster. Backend and account are asked in the background, once a
minute while the dashboard is open.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from .. import __version__
from ..api.tenant import Tenant
from ..core.turn import BackendStatus
from ..processes.tasks import spawn
from ..sessions.live import TurnView
from .content import KeptContent
from .notes import NotedError, PageNotes

MAX_TURNS: Final = 40
"""Turns in a snapshot, which every open page gets once a second; further turns are counted."""
FRESH_S: Final = 60.0
PATIENCE_S: Final = 1.0
"""How long the first snapshot waits for Cursor."""
RECENT_S: Final = 5.0
ERROR_S: Final = 3600.0
"""How long the last error is shown."""
AT_ONCE_S: Final = 0.2
"""Snapshots within this interval share one measurement of speed."""
STANDINGS: Final = {
    "official": "An official way to use Cursor.",
    "unofficial": "Cursor's own protocol, used unofficially: it may change at any time.",
    "stand-in": "An address that is not Cursor's own answers: nothing here comes from a live account.",
    "simulated": "Simulated: no answer comes from Cursor.",
}


class GatewayFacts(Struct):
    """Facts that do not change while a backend answers."""

    backend: str
    standing: str
    address: str
    started_at: float
    """Unix seconds."""
    simulator_asked: bool = False
    """The settings choose the simulator; it does not replace a missing sign-in."""


class Now:
    def __init__(
        self,
        facts: GatewayFacts,
        tenant: Tenant,
        notes: PageNotes,
        content: KeptContent,
        cluster: Callable[[], object],
    ) -> None:
        """`cluster` returns the gateways of a cluster, or None without a cluster."""
        self._content = content
        self._cluster = cluster
        self.facts = facts
        self._tenant = tenant
        self._notes = notes
        self._status: BackendStatus | None = None
        self._account: dict[str, Any] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        self._said: dict[str, int] = {}
        """Tokens of each turn at the last measurement."""
        self._said_at = float("-inf")
        self._rate = 0.0

    def switch(self, facts: GatewayFacts, tenant: Tenant) -> None:
        """Shows another backend and fetches its status and account again."""
        self.facts, self._tenant = facts, tenant
        self._status = self._account = None
        self._asked_at = float("-inf")

    @property
    def address(self) -> str:
        return self.facts.address

    async def fresh_snapshot(self) -> dict[str, Any]:
        """The snapshot for a single request; waits briefly for unknown facts."""
        self.look()
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=PATIENCE_S)
        return self.snapshot()

    def renewed(self) -> dict[str, Any]:
        """The snapshot for the event stream, without waiting."""
        self.look()
        return self.snapshot()

    def look(self) -> None:
        """Starts fetching status and account if the last fetch is too old."""
        if self._asking is None and time.monotonic() >= self._asked_at + FRESH_S:
            self._asked_at = time.monotonic()
            self._asking = spawn(self._ask(), "page-asks-the-account")

    async def _ask(self) -> None:
        tenant = self._tenant
        try:
            status, account = await tenant.health.status(), await tenant.account.current()
            if tenant is self._tenant:
                self._status, self._account = status, account
        finally:
            self._asking = None

    def snapshot(self) -> dict[str, Any]:
        sessions, status = self._tenant.sessions, self._status
        turns, parked = sessions.turns(MAX_TURNS), sessions.parked
        return {
            "at": time.time(),
            "version": __version__,
            "address": self.facts.address,
            "started_at": self.facts.started_at,
            "backend": {
                "name": self.facts.backend,
                "standing": self.facts.standing,
                "says": STANDINGS[self.facts.standing],
                "asked_for": self.facts.simulator_asked,
            },
            "signed_in": None if status is None else status.signed_in,
            "reachable": None if status is None else status.reachable,
            "detail": "" if status is None else status.detail,
            "account": self._account,
            "running": sessions.live - parked,
            "parked": parked,
            "tokens_per_second": round(self._speed(turns), 1),
            "turns": turns,
            "turns_left_off": sessions.live - len(turns),
            "last_error": self._last_error(),
            "recording": self._content.recording(),
            "cluster": self._cluster(),
        }

    def _last_error(self) -> NotedError | None:
        error = self._notes.last_error
        return error if error is not None and error.at > time.time() - ERROR_S else None

    def _speed(self, turns: Sequence[TurnView]) -> float:
        """Tokens per second since the last measurement; without a recent one, each turn's average since its start."""
        now = time.monotonic()
        passed, before = now - self._said_at, self._said
        if passed < AT_ONCE_S:
            return self._rate
        said = self._tenant.sessions.said()
        self._said, self._said_at = said, now
        if passed > RECENT_S:
            wall = time.time()
            self._rate = sum(turn.tokens / max(AT_ONCE_S, wall - turn.since) for turn in turns if turn.tokens)
        else:
            more = sum([max(0, tokens - before.get(sid, 0)) for sid, tokens in said.items()])
            self._rate = (self._rate + more / passed) / 2 if before else more / passed
        return self._rate
