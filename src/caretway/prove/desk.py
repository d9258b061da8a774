"""Where questions are asked: the backends, the models, the facts found so far, and what every question needs.

A thin edge. It opens conversations and remembers; what is asked is in `probes` and `questions`, in which order, and
what becomes of the facts, in `driver`.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from ..accounts.catalogue import ModelCatalogue
from ..core.request import Message, ToolSpec, TurnRequest
from ..core.turn import Backend
from . import asking
from .choosing import Roles
from .conversing import Answer, Hold, Talk, converse
from .facts import Fact, checked
from .watching import Moment, RunNotes, WireWatch

HOLD_S: Final = 4.0
"""A checkpoint was seen up to 1.5 s after a call, and so was a call after its sibling. Waited out only where it does
not come."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A backend to ask, the models it lists, and what passes below it (None where that is not ours to see)."""

    backend: Backend
    models: ModelCatalogue
    watch: WireWatch | None = None
    proxy: str = ""
    """The kind of proxy on the way to runs; empty: none."""


Changes = Mapping[str, object]
"""Setting -> value, for one question."""
OpenBench = Callable[[Changes], AbstractAsyncContextManager[Bench]]
HoldRun = Callable[[RunNotes], Awaitable[None]]


class Killable(Protocol):
    """A gateway in a process of its own."""

    async def ask(self, messages: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], str]:
        """Chat completions with the tool `lookup`: the assistant's message, and how the session went on."""
        ...

    async def kill(self) -> None:
        """Kill it without a warning."""
        ...


StartGateway = Callable[[Changes, str], AbstractAsyncContextManager[Killable]]
"""(changes, model) -> a gateway with the settings of this run."""


class Skipped(Exception):
    """The question cannot be asked here, for this reason."""


def marker() -> str:
    """Means nothing, and stands nowhere else."""
    return f"m{secrets.token_hex(6)}"


class Desk:
    def __init__(
        self,
        open_bench: OpenBench,
        bench: Bench,
        roles: Roles,
        start_gateway: StartGateway | None = None,
        other_version: str = "",
        quirks: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._open_bench = open_bench
        self._quirks = quirks
        self._start_gateway = start_gateway
        self.main = bench
        self.roles = roles
        self.other_version = other_version
        """The client version to try when our own is refused."""
        self.changes: dict[str, object] = {}
        """What all later questions need, too."""
        self.dead = False
        """Not even a line of text is answered."""
        self.last_runs: list[RunNotes] = []
        """The attempts of the last conversation, where they can be seen."""
        self.facts: dict[str, Fact] = {}

    def with_quirk(self, name: str, value: str) -> dict[str, object]:
        """The change that overrides one more quirk."""
        known = self.changes.get("agent_quirks", self._quirks)
        assert isinstance(known, Mapping)
        return {"agent_quirks": {**known, name: value}}

    def found(self, facts: Mapping[str, Fact]) -> None:
        self.facts |= {name: checked(name, value) for name, value in facts.items()}

    @asynccontextmanager
    async def bench(self, changes: Changes) -> AsyncIterator[Bench]:
        """The main one, unless something must be changed."""
        if changes or self.changes:
            async with self._open_bench({**self.changes, **changes}) as other:
                yield other
        else:
            yield self.main

    def gateway(self) -> AbstractAsyncContextManager[Killable]:
        if self._start_gateway is None:
            raise Skipped("no second gateway can be started here")
        return self._start_gateway(self.changes, self.roles.cheap)

    async def request(
        self, messages: str | Sequence[Message], *tools: ToolSpec, model: str = "", thinking: bool | None = None
    ) -> TurnRequest:
        """For the cheap model, unless another is named."""
        if isinstance(messages, str):
            messages = (asking.user(messages),)
        asked = TurnRequest(model or self.roles.cheap, tuple(messages), tools=tools, thinking=thinking)
        return await self.main.models.fit(asked)

    async def talk(
        self,
        request: TurnRequest,
        answer: Answer | None = None,
        hold: HoldRun | None = None,
        continued: Talk | None = None,
        changes: Changes | None = None,
    ) -> tuple[Talk, list[Moment]]:
        """A conversation to its end, and the moments of its last attempt. `continued`: the one before it."""
        async with self.bench(changes or {}) as bench:
            watch = bench.watch
            before = len(watch.runs) if watch else 0
            waits: Hold | None = None
            if hold is not None and watch is not None:
                waits = _on_last(watch, hold)
            talk = await converse(bench.backend, request, answer, waits, continued.snapshot if continued else None)
            self.last_runs = watch.runs[before:] if watch else []
            for run in self.last_runs:  # a turn is over at `turn_ended`; the end of its stream comes a little later
                await wait_for(run, lambda moments: any(moment.what == "end" for moment in moments))
            return talk, self.last_runs[-1].moments if self.last_runs else []


def _on_last(watch: WireWatch, hold: HoldRun) -> Hold:
    async def waits() -> None:
        await hold(watch.runs[-1])

    return waits


async def wait_for(notes: RunNotes, seen: Callable[[Sequence[Moment]], bool], limit_s: float = HOLD_S) -> None:
    """Until it is seen, or will not be."""
    try:
        async with asyncio.timeout(limit_s):
            while not seen(notes.moments):
                await notes.more()
    except TimeoutError:
        pass
