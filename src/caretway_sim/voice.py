"""Writes the simulated model's words: text and thinking with token counts, long streams at a pace, silence that costs
tokens; waits for a slow client (backpressure).

Remembers what was said and thought since it was last taken down.
"""

import asyncio
from typing import Final

from . import brain, updates
from .exchange import SimExchange
from .meter import Meter
from .script import ScriptStream
from .tokens import estimate

DELTAS_PER_COUNT: Final = 16
DELTAS_PER_TURN: Final = 64
PONDER_S: Final = 0.1
"""Between two `token_delta`s of a model that works and reports nothing."""


class Voice:
    def __init__(self, exchange: SimExchange, meter: Meter) -> None:
        self._exchange = exchange
        self._meter = meter
        self._text: list[str] = []
        self._text_chars = 0
        self._thought: list[str] = []
        self._thinking = False
        self.joins = False
        """The next text continues one."""
        self.spoke = False

    def taken(self) -> tuple[str, str]:
        """(thoughts, text) since the last time."""
        thought, text = "".join(self._thought), "".join(self._text)
        self._thought, self._text, self._text_chars = [], [], 0
        return thought, text

    @property
    def holds(self) -> bool:
        """There is something to take."""
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
            self._exchange.write(updates.thinking(word) + updates.tokens(count))
            await self._breathe(number)
        self._thought.append(text)

    async def ponder(self, delay_ms: float, *, reasoning: bool = True) -> None:
        """Reasoning, or a call that is being written, of which nothing is told but that it costs tokens."""
        left = delay_ms / 1000
        while left > 0:
            await asyncio.sleep(min(left, PONDER_S))
            left -= PONDER_S
            self._meter.said(1, reasoning=reasoning)
            self._exchange.write(updates.tokens(1))

    def close_thought(self) -> None:
        if self._thinking:
            self._thinking = False
            self._exchange.write(updates.thinking_completed(1))

    async def stream(self, step: ScriptStream) -> None:
        """The hot path: one write per delta, and nothing else that costs."""
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
                await asyncio.sleep(0)  # other streams want their turn
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
