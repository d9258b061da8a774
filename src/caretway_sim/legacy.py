"""The simulator's legacy chat call (StreamChat): plain text in, a stream of text out, with scripted drops, hangs and
failures; no heartbeats.

The text model decides the reply; this module sends it. No state is kept between calls.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from caretway.cursor.wire.envelope import EnvelopeError, EnvelopeReader, pack
from caretway.cursor.wire.messages import ai

from . import catalogue, faults, text_model, updates
from .exchange import SimExchange
from .model_input import Role, estimate
from .play_steps import DROP_PAUSE_S, Dropped
from .run import SimStream
from .script import Drop, Exec, Fail, Hang, Mute, Query, Say, ScriptStream, Wait
from .shared import Shared
from .start import RunRefused

_PIECES_PER_TURN: Final = 64
_ROLES: Final[dict[int, Role]] = {
    ai.StreamChatRequest.ROLE_USER: "user",
    ai.StreamChatRequest.ROLE_ASSISTANT: "assistant",
    ai.StreamChatRequest.ROLE_SYSTEM: "system",
}


class BadChat(ValueError):
    """The request is not a chat."""


@dataclass(frozen=True, slots=True)
class LegacyPrompt:
    conversation: str
    model: str
    blocks: tuple[tuple[Role, str], ...]


def read_chat(body: bytes) -> LegacyPrompt:
    try:
        frames = EnvelopeReader(len(body)).feed(body)
        request = ai.StreamChatRequest.FromString(frames[0]) if frames else ai.StreamChatRequest()
    except (EnvelopeError, DecodeError) as wrong:
        raise BadChat(f"the StreamChat request is not readable: {wrong}") from wrong
    if not request.messages:
        raise BadChat("a chat needs at least one message")
    blocks = [(_ROLES.get(message.role, "user"), message.content) for message in request.messages]
    if request.instructions.instruction:
        blocks.insert(0, ("system", request.instructions.instruction))
    return LegacyPrompt(request.conversation_id, request.model.name, tuple(blocks))


class LegacyRun(SimStream):
    def __init__(self, shared: Shared, exchange: SimExchange, asked: LegacyPrompt) -> None:
        self._shared = shared
        self._asked = asked
        shared.stats.chats_opened += 1
        super().__init__(exchange, f"simulated chat {asked.conversation}")

    async def _play(self) -> None:
        stats = self._shared.stats
        stats.tokens_in_uncached += sum(estimate(text) for _, text in self._asked.blocks)
        steps = text_model.answer(self._asked.blocks, thinks=catalogue.thinks(self._asked.model))
        for place, step in enumerate(steps):
            match step:
                case Say(text):
                    await self._say(updates.words(text))
                case ScriptStream():
                    await self._say((step.delta(index) for index in range(step.count)), step.delay_ms / 1000)
                case Fail(code):
                    raise RunRefused(faults.SCRIPTED[code])
                case Drop(times):
                    if self._shared.drops.due(self._key(), 0, place, times):
                        await asyncio.sleep(DROP_PAUSE_S)
                        raise Dropped
                case Hang() | Mute():
                    await asyncio.Event().wait()
                case Wait(delay_ms):
                    await asyncio.sleep(delay_ms / 1000)
                case Exec(kind) | Query(kind):
                    await self._say([f"[sim: {kind} is not part of this wire]\n"])
                case _:
                    pass  # thinking has no place on this wire

    async def _say(self, pieces: Iterable[str], delay: float = 0.0) -> None:
        exchange = self._exchange
        for number, piece in enumerate(pieces, 1):
            self._shared.stats.tokens_out += estimate(piece)
            exchange.write(pack(ai.StreamChatResponse(msg=piece).SerializeToString()))
            if delay:
                await asyncio.sleep(delay)
            if exchange.congested:
                await exchange.drained()
            elif number % _PIECES_PER_TURN == 0:
                await asyncio.sleep(0)  # lets other streams run

    def _key(self) -> str:
        """A key that all attempts at one reply share: triggers and ids differ between attempts, the user's words do
        not."""
        said = "\0".join(text for role, text in self._asked.blocks if role == "user")
        return f"{self._asked.conversation}/{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()}"
