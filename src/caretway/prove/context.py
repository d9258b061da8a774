"""Where questions are asked: the backends, the models, the facts found so far, and what every question needs.

A thin edge. It opens conversations and remembers; what is asked, in which order, and what
becomes of the facts, is in `questions`.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from ..accounts.catalogue import ModelCatalogue
from ..accounts.names import EFFORT_IDS
from ..accounts.resolve import AUTOMATIC
from ..core.request import Message, ToolSpec, TurnRequest
from ..core.turn import Backend, ModelInfo
from . import conversing
from .conversing import Answer, Hold, Talk, converse
from .facts import Fact, checked
from .watching import Moment, RunNotes, WireWatch

# ---- choosing

# Which models are asked: a cheap one for nearly everything, and two others for what it cannot show. Pure.

COMPOSER: Final = "composer-2.5"
SLOW_COMPOSER: Final = f"{COMPOSER}[fast=false]"
"""The cheapest that Cursor has; its bare name is the fast variant, which costs more."""
_CHEAP_WORDS: Final = (re.compile(r"nano|haiku"), re.compile(r"mini|flash|fast"), re.compile(r"sonnet"))


@dataclass(frozen=True, slots=True)
class Roles:
    cheap: str
    second: str = ""
    """Thinks and sees pictures; empty when no model of the list does."""
    tiered: str = ""
    """Has rungs, of which one must be named; empty when none has."""


def choose_models(listed: Sequence[ModelInfo], cheap: str = "", second: str = "") -> Roles:
    """What the user named wins."""
    return Roles(cheap or _cheap(listed), second or _cheapest(listed, _thinks_and_sees), _cheapest(listed, _has_rungs))


def _cheap(listed: Sequence[ModelInfo]) -> str:
    ids = {model.id: model for model in listed}
    if COMPOSER in ids:
        slow = any(("fast", "false") in variant.parameters for variant in ids[COMPOSER].variants)
        return SLOW_COMPOSER if slow else COMPOSER
    return next((name for name in AUTOMATIC if name in ids), listed[0].id if listed else "auto")


def _cheapest(listed: Sequence[ModelInfo], fits: Callable[[ModelInfo], bool]) -> str:
    return min((model.id for model in listed if fits(model)), key=_rank, default="")


def _rank(name: str) -> tuple[int, str]:
    price = next((index for index, words in enumerate(_CHEAP_WORDS) if words.search(name)), len(_CHEAP_WORDS))
    return price, name


def _thinks_and_sees(model: ModelInfo) -> bool:
    thinks = any(key == "thinking" and "true" in values for key, values in model.parameters)
    return thinks and model.images is not False and not model.flat


def _has_rungs(model: ModelInfo) -> bool:
    return not model.flat and bool(model.variants) and any(key in EFFORT_IDS for key, _ in model.parameters)


# ---- context


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


class ProveContext:
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
            messages = (conversing.user(messages),)
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
