"""The context of questions: backends, models, the facts found so far, and shared helpers.

It only opens conversations and remembers facts; the prompts, their order and the use of facts are in `questions`.
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

# Chooses the models: a cheap one for nearly every question, and two others for what it cannot show. Pure.

COMPOSER: Final = "composer-2.5"
SLOW_COMPOSER: Final = f"{COMPOSER}[fast=false]"
"""Cursor's cheapest model; its bare name means the fast variant, which costs more."""
_CHEAP_WORDS: Final = (re.compile(r"nano|haiku"), re.compile(r"mini|flash|fast"), re.compile(r"sonnet"))


@dataclass(frozen=True, slots=True)
class Roles:
    cheap: str
    second: str = ""
    """A model that thinks and sees images; empty if none is listed."""
    tiered: str = ""
    """A model with effort levels, one of which must be named; empty if none is listed."""


def choose_models(listed: Sequence[ModelInfo], cheap: str = "", second: str = "") -> Roles:
    """The models for the questions: the user's choice, otherwise the cheapest suitable ones in the list."""
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
"""The longest wait for a checkpoint or a second call: each was seen up to 1.5 s after a call."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A backend, its models, and the record of its traffic (None if the traffic is not ours to see)."""

    backend: Backend
    models: ModelCatalogue
    watch: WireWatch | None = None
    proxy: str = ""
    """The kind of the proxy for runs; empty for none."""


Changes = Mapping[str, object]
"""Settings that change for one question: name -> value."""
OpenBench = Callable[[Changes], AbstractAsyncContextManager[Bench]]
HoldRun = Callable[[RunNotes], Awaitable[None]]


class Killable(Protocol):
    """A gateway in its own process."""

    async def ask(self, messages: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], str]:
        """Sends chat completions with the tool `lookup`. Returns the assistant's message and the kind of session."""
        ...

    async def kill(self) -> None:
        """Kills the process with SIGKILL."""
        ...


StartGateway = Callable[[Changes, str], AbstractAsyncContextManager[Killable]]
"""(changes, model) -> a gateway with the settings of this command."""


class Skipped(Exception):
    """The question cannot be asked; the text is the reason."""


def marker() -> str:
    """A random word that occurs nowhere else."""
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
        """The client version to try if our own is refused."""
        self.changes: dict[str, object] = {}
        """Settings that all later questions need."""
        self.dead = False
        """True if even the question for a line of text got no answer."""
        self.last_runs: list[RunNotes] = []
        """The attempts of the last conversation, if they are recorded."""
        self.facts: dict[str, Fact] = {}

    def with_quirk(self, name: str, value: str) -> dict[str, object]:
        """The settings with one more quirk overridden."""
        known = self.changes.get("agent_quirks", self._quirks)
        assert isinstance(known, Mapping)
        return {"agent_quirks": {**known, name: value}}

    def found(self, facts: Mapping[str, Fact]) -> None:
        self.facts |= {name: checked(name, value) for name, value in facts.items()}

    @asynccontextmanager
    async def bench(self, changes: Changes) -> AsyncIterator[Bench]:
        """The main bench, or a new one if settings change."""
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
        """A request fitted to the model, by default the cheap one."""
        if isinstance(messages, str):
            messages = (conversing.user(messages),)
        request = TurnRequest(model or self.roles.cheap, tuple(messages), tools=tools, thinking=thinking)
        return await self.main.models.fit(request)

    async def talk(
        self,
        request: TurnRequest,
        answer: Answer | None = None,
        hold: HoldRun | None = None,
        continued: Talk | None = None,
        changes: Changes | None = None,
    ) -> tuple[Talk, list[Moment]]:
        """Runs a conversation; returns it and the moments of its last attempt. `continued`: the preceding talk."""
        async with self.bench(changes or {}) as bench:
            watch = bench.watch
            before = len(watch.runs) if watch else 0
            waits: Hold | None = None
            if hold is not None and watch is not None:
                waits = _on_last(watch, hold)
            talk = await converse(bench.backend, request, answer, waits, continued.snapshot if continued else None)
            self.last_runs = watch.runs[before:] if watch else []
            for run in self.last_runs:  # a turn ends at `turn_ended`, its stream a little later
                await wait_for(run, lambda moments: any(moment.what == "end" for moment in moments))
            return talk, self.last_runs[-1].moments if self.last_runs else []


def _on_last(watch: WireWatch, hold: HoldRun) -> Hold:
    async def waits() -> None:
        await hold(watch.runs[-1])

    return waits


async def wait_for(notes: RunNotes, seen: Callable[[Sequence[Moment]], bool], limit_s: float = HOLD_S) -> None:
    """Waits until `seen` is true for the moments, at most `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            while not seen(notes.moments):
                await notes.more()
    except TimeoutError:
        pass
