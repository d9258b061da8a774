"""Plays the steps of a simulated run in order.

Texts become deltas (`voice`), calls become execs that are awaited (`play_calls`), and after every tool result the
conversation is stored in blobs and a checkpoint is sent (`voice`). Does not depend on HTTP.
"""

import asyncio
import hashlib
from itertools import zip_longest
from typing import Final, assert_never

from . import brain, catalogue, faults, start, updates
from .exchange import SimExchange
from .history import piece
from .model_input import Piece, estimate, find, preamble
from .pending import Pending
from .play_calls import CallPlayer, Ids, Left
from .prepared import ModelRequest
from .script import (
    Abandon,
    Drop,
    Exec,
    Fail,
    Hang,
    Instructions,
    Leave,
    Loop,
    Mute,
    Ponder,
    Probe,
    Query,
    Recall,
    Result,
    Say,
    ScriptCall,
    ScriptStream,
    Stall,
    Step,
    Think,
    Wait,
)
from .shared import Shared
from .start import Blobs, RunRefused, SimConversation
from .voice import Meter, Minutes, StepUsage, Voice

DROP_PAUSE_S: Final = 0.05
"""Pause before a scripted cut: a reset can overtake bytes that the client has not read yet, and no checkpoint may be
lost."""


class Dropped(Exception):
    """The script cuts the connection here."""


class Performance:
    def __init__(
        self,
        shared: Shared,
        exchange: SimExchange,
        pending: Pending,
        blobs: Blobs,
        conversation: SimConversation,
        run_key: str,
        request_id: str,
        first_query: int,
    ) -> None:
        self._shared = shared
        self._exchange = exchange
        self._conversation = conversation
        self._history = conversation.history
        self._run_key = run_key
        self.muted = False
        self._meter = Meter(shared, _prompt(conversation), conversation.id, run_key, conversation.model)
        self._voice = Voice(exchange, self._meter)
        self._minutes = Minutes(shared.manners, exchange, blobs, conversation, self._meter, self._voice)
        self._calls = CallPlayer(
            shared.manners,
            exchange,
            pending,
            conversation.tools,
            Ids(request_id, shared.manners),
            self._meter,
            self._voice,
            self._minutes,
            first_query,
        )
        self._looped = 0
        self._at = 0

    @property
    def usage(self) -> StepUsage:
        return self._meter.usage

    async def play(self) -> None:
        conversation = self._conversation
        plan = brain.plan(
            self._history,
            conversation.tools,
            thinks=catalogue.thinks(conversation.model),
            prepared=self._shared.prepared.steps_for(self._run_key, self._history, brain.turn_start(self._history)),
        )
        seen = ModelRequest(
            conversation.model,
            conversation.system,
            tuple(self._history),
            tuple(tool.shown for tool in conversation.tools),
        )
        self._calls.given.all_results = self._shared.prepared.note(seen).results
        given = self._calls.given
        given.results, self._voice.joins, self._looped, self._at = plan.results, plan.said, plan.looped, plan.at
        given.new = brain.count_results(self._history[plan.at + 1 :])
        for step in plan.steps:
            if isinstance(step, Fail) and step.when == "before":
                raise self._refusal(step.code)
        self._meter.model_call()
        if self._shared.manners.early_checkpoint:
            await self._minutes.checkpoint()
        for place, (step, following) in enumerate(zip_longest(plan.steps, plan.steps[1:]), plan.first):
            self._calls.stalls = isinstance(following, Stall) and self._due(place + 1, following.times)
            self._calls.abandons = isinstance(following, Abandon) and self._due(place + 1, following.times)
            await self._do(step, place)
        self._voice.close_thought()
        await self._minutes.record()
        self._exchange.write(updates.update(turn_ended=self._meter.ended()))

    async def _do(self, step: Step, place: int) -> None:
        match step:
            case Say(text):
                await self._voice.say(text)
            case Think(text):
                await self._voice.think(text)
            case Ponder(delay_ms, "blobs"):
                await self._minutes.ponder(delay_ms)
            case Ponder(delay_ms):
                await self._voice.ponder(delay_ms)
            case Result():
                await self._voice.say("\n".join(self._calls.given.results))
            case Recall():
                await self._voice.say(brain.recall(self._history, self._at, self._calls.given.new))
            case Instructions():
                await self._voice.say(self._conversation.system)
            case ScriptStream():
                await self._voice.stream(step)
            case ScriptCall(uses, before):
                await self._calls.call(uses, before)
            case Loop(use):
                offered = find(self._conversation.tools, use.name) is not None
                for _ in range(self._looped, brain.LOOP_LIMIT if offered else 1):
                    await self._calls.call((use,))
                self._looped = 0
            case Exec(kind, args):
                await self._calls.exec(kind, args)
            case Probe(use):
                await self._calls.probe(use)
            case Query(kind, args):
                await self._calls.query(kind, args)
            case Fail(code, when):
                if when == "after" and not self._voice.spoke:
                    await self._voice.say(brain.PARTIAL_ANSWER)
                raise self._refusal(code)
            case Drop(times):
                await self._cut(place, times, Dropped())
            case Leave(times):
                await self._cut(place, times, Left())
            case Hang() | Mute():
                self.muted = isinstance(step, Mute)
                await asyncio.Event().wait()
            case Stall() | Abandon():
                pass  # the call before it performs this step
            case Wait(delay_ms):
                await asyncio.sleep(delay_ms / 1000)
            case _:
                assert_never(step)

    def _refusal(self, code: str) -> RunRefused:
        return RunRefused(faults.SCRIPTED[code])

    def _due(self, place: int, times: int) -> bool:
        """Whether the step at this place may still act, of `times` times in all. Counted by the script's text, so that
        a new run of the same conversation continues the count."""
        script = hashlib.sha256(self._history[self._at].text.encode()).hexdigest()
        return self._shared.drops.due(script, self._at, place, times)

    async def _cut(self, place: int, times: int, how: Dropped | Left) -> None:
        if not self._shared.drops.due(self._run_key, self._at, place, times):
            return
        self._voice.close_thought()
        if self._voice.holds:
            await self._minutes.record()
        await self._voice.room()
        await asyncio.sleep(DROP_PAUSE_S)
        raise how


def _prompt(conversation: SimConversation) -> list[Piece]:
    system = Piece(f"system\x00{conversation.system}", estimate(conversation.system))
    home = Piece(f"conversation\x00{conversation.id}", 0)
    first = [preamble(conversation.model)] if conversation.preamble else []
    messages = [piece(message) for message in conversation.history if message.role != "system"]
    return [*first, home, system, start.piece(conversation.tools), *messages]
