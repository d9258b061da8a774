"""Writes the simulated model's output: text and thinking with token counts, long streams at a set pace, silence that
costs tokens; waits for a slow client (backpressure).

Keeps the output since the last record.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from caretway.cursor.wire.blobs import blob_id
from caretway.cursor.wire.messages import pb

from . import brain, catalogue, updates
from .exchange import SimExchange
from .history import piece
from .manners import Manners
from .model_input import CONTEXT_TOKENS, InputCall, InputMessage, InputResult, InputText, Part, Piece, Thought, estimate
from .script import ScriptStream
from .shared import Shared, cents
from .start import Blobs, SimConversation

# ---- meter

# Tokens of one simulated run: cached and uncached input of each model call, output, reasoning, and the totals of
# `turn_ended`.

_ABSURD: Final = 50


@dataclass(slots=True)
class StepUsage:
    cached: int = 0
    uncached: int = 0
    output: int = 0
    reasoning: int = 0


class Meter:
    def __init__(self, shared: Shared, prompt: Iterable[Piece], conversation: str, run_key: str, model: str) -> None:
        self._shared = shared
        self._model = model
        self._prompt = list(prompt)
        self._steps = shared.steps.open(conversation, run_key, model)
        self.usage = StepUsage()

    def read(self, pieces: Iterable[Piece]) -> None:
        """Add these to the prompt of the next model call."""
        self._prompt += pieces

    @property
    def context(self) -> int:
        """The current size of the prompt in tokens."""
        return sum(piece.tokens for piece in self._prompt)

    def model_call(self) -> None:
        charge = self._shared.cache.charge(self._prompt)
        self.usage.cached += charge.cached
        self.usage.uncached += charge.uncached
        self._shared.stats.tokens_in_cached += charge.cached
        self._shared.stats.tokens_in_uncached += charge.uncached
        self._steps.step(charge.cached, charge.uncached)

    def said(self, tokens: int, *, reasoning: bool = False) -> None:
        self.usage.output += tokens
        self.usage.reasoning += tokens if reasoning else 0
        self._shared.stats.tokens_out += tokens
        self._steps.said(tokens)

    def ended(self) -> pb.TurnEndedUpdate:
        self._steps.ended = True
        return totals(self.usage, self._model, int(self._shared.clock() * 1000), self._shared.manners)


def totals(usage: StepUsage, model: str, now_ms: int, manners: Manners) -> pb.TurnEndedUpdate:
    """The totals of a run. `input_tokens` includes cache reads and cache writes."""
    return pb.TurnEndedUpdate(
        input_tokens=usage.cached + usage.uncached,
        output_tokens=usage.output,
        cache_read_tokens=usage.cached * (_ABSURD if manners.absurd_cache_reads else 1),
        cache_write_tokens=usage.uncached if catalogue.writes_cache(model) else 0,
        reasoning_tokens=usage.reasoning,
        ended_at_ms=now_ms,
        estimated_cost=pb.EstimatedCost(raw_cost_cents=cents(usage.uncached, usage.cached, usage.output))
        if manners.tells_cost
        else None,
    )


# ---- voice


DELTAS_PER_COUNT: Final = 16
DELTAS_PER_TURN: Final = 64
PONDER_S: Final = 0.1
"""Seconds between two `token_delta`s of a model that works silently."""


class Voice:
    def __init__(self, exchange: SimExchange, meter: Meter) -> None:
        self._exchange = exchange
        self._meter = meter
        self._text: list[str] = []
        self._text_chars = 0
        self._thought: list[str] = []
        self._thinking = False
        self.joins = False
        """The next text continues an earlier one."""
        self.spoke = False

    def taken(self) -> tuple[str, str]:
        """Returns (thoughts, text) since the last call."""
        thought, text = "".join(self._thought), "".join(self._text)
        self._thought, self._text, self._text_chars = [], [], 0
        return thought, text

    @property
    def holds(self) -> bool:
        return bool(self._text or self._thought)

    async def room(self) -> None:
        if self._exchange.congested:
            await self._exchange.drained()

    async def say(self, text: str) -> None:
        if not text:
            return
        self.close_thought()
        for number, word in enumerate(updates.words("\n" + text if self.joins else text)):
            count = estimate(word)
            self._meter.said(count)
            self._exchange.write(updates.text(word) + updates.tokens(count))
            await self._breathe(number)
        self._keep("\n" + text if self.joins else text)

    async def think(self, text: str) -> None:
        if self._thinking:
            text = "\n" + text
        self._thinking = True
        for number, word in enumerate(updates.words(text)):
            count = estimate(word)
            self._meter.said(count, reasoning=True)
            self._exchange.write(
                updates.update(thinking_delta=pb.ThinkingDeltaUpdate(text=word)) + updates.tokens(count)
            )
            await self._breathe(number)
        self._thought.append(text)

    async def ponder(self, delay_ms: float, *, reasoning: bool = True) -> None:
        """Spend tokens on reasoning, or on a call's arguments, without showing anything else."""
        left = delay_ms / 1000
        while left > 0:
            await asyncio.sleep(min(left, PONDER_S))
            left -= PONDER_S
            self._meter.said(1, reasoning=reasoning)
            self._exchange.write(updates.tokens(1))

    def close_thought(self) -> None:
        if self._thinking:
            self._thinking = False
            done = pb.ThinkingCompletedUpdate(thinking_duration_ms=1)
            self._exchange.write(updates.update(thinking_completed=done))

    async def stream(self, step: ScriptStream) -> None:
        """Write a long text at a set pace. The hot path: one write per delta and little else."""
        self.close_thought()
        if self.joins:
            self._exchange.write(updates.text("\n"))
            self._keep("\n")
        template = updates.StreamTemplate(step)
        exchange, loop = self._exchange, asyncio.get_running_loop()
        delay, due = step.delay_ms / 1000, loop.time()
        tokens = -(-step.size // 4)
        for index in range(step.count):
            exchange.write(template.delta(index))
            if index % DELTAS_PER_COUNT == DELTAS_PER_COUNT - 1:
                exchange.write(updates.tokens(tokens * DELTAS_PER_COUNT))
            if delay:
                due += delay
                await asyncio.sleep(max(0.0, due - loop.time()))
            if exchange.congested:
                await exchange.drained()
            elif index % DELTAS_PER_TURN == DELTAS_PER_TURN - 1:
                await asyncio.sleep(0)  # lets other streams run
        exchange.write(updates.tokens(tokens * (step.count % DELTAS_PER_COUNT)))
        self._meter.said(tokens * step.count)
        if step.count * step.size:
            self._keep(brain.streamed(step))

    async def _breathe(self, number: int) -> None:
        await self.room()
        if number % DELTAS_PER_TURN == DELTAS_PER_TURN - 1:
            await asyncio.sleep(0)

    def _keep(self, text: str) -> None:
        kept = text[: max(0, brain.MAX_RECORDED_CHARS - self._text_chars)]
        self._text.append(kept)
        self._text_chars += len(kept)
        self.joins = self.spoke = True


# ---- minutes

# Stores the texts, calls and results of a simulated run in blobs and sends the checkpoint that names them; some
# profiles send an unknown window first, or bloated checkpoints.

BLOAT: Final = 100_000
"""Paths in the checkpoint of a conversation that has read very many files."""


class Minutes:
    def __init__(
        self,
        manners: Manners,
        exchange: SimExchange,
        blobs: Blobs,
        conversation: SimConversation,
        meter: Meter,
        voice: Voice,
    ) -> None:
        self._manners = manners
        self._exchange = exchange
        self._blobs = blobs
        self._conversation = conversation
        self._meter = meter
        self._voice = voice
        self._checkpoints = 0

    async def record(
        self, calls: Sequence[InputCall] = (), results: Sequence[InputResult] = (), shown: Sequence[pb.ToolCall] = ()
    ) -> None:
        """Store what was said and done since the last record, then send a checkpoint."""
        thought, text = self._voice.taken()
        parts: list[Part] = []
        steps: list[pb.ConversationStep] = []
        if thought:
            parts.append(Thought(thought))
            steps.append(pb.ConversationStep(thinking_message=pb.ThinkingMessage(text=thought)))
        if text:
            parts.append(InputText(text))
            steps.append(pb.ConversationStep(assistant_message=pb.AssistantMessage(text=text)))
        parts.extend(calls)
        steps.extend(pb.ConversationStep(tool_call=call) for call in shown)
        messages = [InputMessage("assistant", tuple(parts))] if parts else []
        messages += [InputMessage("tool", (result,)) for result in results]
        self._conversation.history.extend(messages)
        self._meter.read(piece(message) for message in messages)
        ledger = self._conversation.ledger
        await self._blobs.store([*ledger.add_messages(messages), *ledger.add_steps(steps)])
        await self.checkpoint()

    async def checkpoint(self) -> None:
        ledger = self._conversation.ledger
        await self._blobs.store([ledger.write_turn()])
        window = shown_window(self._manners, self._checkpoints)
        self._checkpoints += 1
        state = ledger.checkpoint(self._meter.context, window)
        if self._manners.bloats_checkpoints:
            state.read_paths.extend(["/w"] * BLOAT)
        self._exchange.write(updates.server(conversation_checkpoint_update=state))
        await self._voice.room()

    async def ponder(self, delay_ms: float) -> None:
        """Reason silently: nothing is sent but stored blobs."""
        left = delay_ms / 1000
        for number in count():
            if left <= 0:
                return
            await asyncio.sleep(min(left, PONDER_S))
            left -= PONDER_S
            note = f"note {number}".encode()
            await self._blobs.store([(blob_id(note), note)])

    async def keep(self, results: Sequence[InputResult]) -> None:
        """Store results that no checkpoint names."""
        kept = InputMessage("tool", tuple(results))
        await self._blobs.store(self._conversation.ledger.add_messages([kept]))


def shown_window(manners: Manners, before: int) -> int:
    """The context window in a checkpoint, after `before` earlier checkpoints of the run."""
    return 0 if manners.first_window_unknown and not before else CONTEXT_TOKENS
