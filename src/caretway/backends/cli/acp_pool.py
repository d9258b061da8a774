"""The pool of warm ACP processes: matched by build, workspace, model and mode, one turn at a time each, ended when
idle, dead, full of sessions or without their directory; the oldest idle one makes room.

How many turns may run is decided by `slots.py`; how many processes may exist is decided here.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from ...core.errors import GatewayError
from ...processes.tasks import spawn
from .acp_agent import AcpAgent, AcpSetup
from .process import AgentNursery
from .program import Work

Prepare = Callable[[Work], AcpSetup]


@dataclass(slots=True, eq=False)
class Warm:
    agent: AcpAgent
    key: tuple[object, ...]
    timer: asyncio.TimerHandle | None = None


class AcpPool:
    def __init__(
        self, nursery: AgentNursery, prepare: Prepare, *, processes: int, idle: float, max_sessions: int
    ) -> None:
        self._nursery = nursery
        self._prepare = prepare
        self._processes = processes
        self._idle_for = idle
        self._max_sessions = max_sessions
        self._idle: list[Warm] = []  # the one that waits longest is first
        self._busy: set[Warm] = set()

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def take(self, work: Work, build: object, session: str = "") -> Warm:
        """A process for this work; the one that holds `session`, if there is one. Give it back."""
        key = (build, work.workspace, _place(work.workspace), work.model, work.mode, work.force)
        for old in [warm for warm in self._idle if warm.key[0] != build]:
            self._let_go(old)  # the program was updated
        for old in [warm for warm in self._idle if warm.key[1] == key[1] and warm.key[2] != key[2]]:
            self._let_go(old)  # its directory was cleared away and made again
        fitting = [warm for warm in self._idle if warm.key == key and warm.agent.alive]
        if fitting:
            warm = next((one for one in fitting if session in one.agent.sessions), fitting[-1])
            self._remove(warm)
            self._busy.add(warm)
            return warm
        warm = Warm(AcpAgent(self._prepare(work)), key)
        self._busy.add(warm)
        try:
            await self._make_room()
            await warm.agent.start(self._nursery)
        except BaseException:
            self._busy.discard(warm)
            raise
        return warm

    def give(self, warm: Warm) -> None:
        """Back to the others, or away with it when it is dead or full."""
        self._busy.discard(warm)
        if not warm.agent.alive or len(warm.agent.sessions) >= self._max_sessions:
            spawn(warm.agent.aclose(), "cursor-agent-acp-full")
            return
        self._idle.append(warm)
        warm.timer = asyncio.get_running_loop().call_later(self._idle_for, self._let_go, warm)
        if len(self._idle) > self._processes:  # more than can work were waiting for their clients
            self._let_go(self._idle[0])

    async def drop(self, warm: Warm) -> None:
        """It did not obey."""
        self._busy.discard(warm)
        await warm.agent.aclose()

    async def _make_room(self) -> None:
        while self._idle and len(self._idle) + len(self._busy) > self._processes:
            oldest = self._idle[0]
            self._remove(oldest)
            with contextlib.suppress(GatewayError):
                await oldest.agent.aclose()

    def _let_go(self, warm: Warm) -> None:
        self._remove(warm)
        spawn(warm.agent.aclose(), "cursor-agent-acp-idle")

    def _remove(self, warm: Warm) -> None:
        if warm in self._idle:
            self._idle.remove(warm)
        if warm.timer is not None:
            warm.timer.cancel()
            warm.timer = None

    async def aclose(self) -> None:
        for warm in list(self._idle):
            self._remove(warm)
            await warm.agent.aclose()


def _place(workspace: str) -> tuple[int, int] | None:
    """Which directory has this name now."""
    try:
        found = os.stat(workspace)
    except OSError:
        return None  # starting a program there says why
    return found.st_dev, found.st_ino
