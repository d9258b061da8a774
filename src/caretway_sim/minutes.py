"""Stores in blobs what a simulated run said, called and got, and sends the checkpoint that names them; by profile with
an unknown window at first, or bloated.

One `Minutes` per run. It grows the history that the model reads, the ledger, and the account of the prompt.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Final

from caretway.cursor.wire.blobs import blob_id
from caretway.cursor.wire.messages import pb

from . import updates
from .exchange import SimExchange
from .history import piece
from .manners import Manners
from .meter import Meter
from .model_input import InputCall, InputMessage, InputResult, InputText, Part, Thought
from .start import Blobs, SimConversation
from .tokens import CONTEXT_TOKENS
from .voice import PONDER_S, Voice

BLOAT: Final = 100_000
"""Paths in a checkpoint of a conversation that has read very many files."""


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
        """Store what was said and done since the last time, then send a checkpoint."""
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
        window = window_told(self._manners, self._checkpoints)
        self._checkpoints += 1
        state = ledger.checkpoint(self._meter.context, window)
        if self._manners.bloats_checkpoints:
            state.read_paths.extend(["/w"] * BLOAT)
        self._exchange.write(updates.checkpoint(state))
        await self._voice.room()

    async def ponder(self, delay_ms: float) -> None:
        """Reasoning of which nothing is told but that something is stored."""
        left = delay_ms / 1000
        for number in count():
            if left <= 0:
                return
            await asyncio.sleep(min(left, PONDER_S))
            left -= PONDER_S
            note = f"note {number}".encode()
            await self._blobs.store([(blob_id(note), note)])

    async def keep(self, results: Sequence[InputResult]) -> None:
        """Store results without a checkpoint that names them."""
        kept = InputMessage("tool", tuple(results))
        await self._blobs.store(self._conversation.ledger.add_messages([kept]))


def window_told(manners: Manners, before: int) -> int:
    """The size of the context window that a checkpoint tells, after `before` earlier ones of the same run."""
    return 0 if manners.first_window_unknown and not before else CONTEXT_TOKENS
