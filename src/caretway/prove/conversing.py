"""One conversation with a backend, to its end: events are taken, calls are answered, and all replies are kept.

A backend whose turns do not wait for results gets the whole history again, as a client of the gateway would send it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.events import TERMINAL
from ..core.fold import Fold, Reply
from ..core.request import Message, Role, Text, ToolCall, ToolResult, TurnRequest
from ..core.turn import Backend, Snapshot, Turn
from .asking import answered

MAX_REPLIES: Final = 24
_ON_THE_WAY: Final = frozenset({ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT, ErrorKind.INTERNAL})

UNHEARD: Final = "empty_stream"
"""The stream ended in order, and brought nothing: so a wrong host or region shows."""

Answer = Callable[[ToolCall], str]
Hold = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Talk:
    replies: list[Reply] = field(default_factory=list)
    messages: tuple[Message, ...] = ()
    """The whole history, as a client holds it."""
    snapshot: Snapshot | None = None
    error: GatewayError | None = None
    resumed: bool = False
    """Results were given to the turn that had asked for them."""

    @property
    def text(self) -> str:
        return self.replies[-1].text.strip() if self.replies else ""

    @property
    def reasoning(self) -> str:
        return "".join(reply.reasoning for reply in self.replies)

    @property
    def calls_per_step(self) -> tuple[int, ...]:
        return tuple(len(reply.calls) for reply in self.replies if reply.calls)

    def outcome(self, *markers: str) -> str:
        """Whether the last answer has all of these."""
        if self.error is not None and self.error.code == UNHEARD:
            return "empty"
        if self.error is not None:
            return "failed" if self.error.kind in _ON_THE_WAY else "refused"
        if all(marker in self.text for marker in markers):
            return "right"
        return "other" if self.text else "empty"


async def converse(
    backend: Backend,
    request: TurnRequest,
    answer: Answer | None = None,
    hold: Hold | None = None,
    snapshot: Snapshot | None = None,
) -> Talk:
    """`hold` is awaited before results are given. Errors of the turn end the talk and are kept in it."""
    talk = Talk(messages=request.messages)
    turn: Turn | None = None
    anew = False
    try:
        turn = await backend.start(request, snapshot)
        for _ in range(MAX_REPLIES):
            reply = await _reply(turn)
            if reply.error is not None and reply.error.kind is ErrorKind.TURN_GONE and not anew:
                anew = True  # as the gateway does: everything is told once more
                await turn.aclose()
                turn = await backend.start(replace(request, messages=talk.messages))
                continue
            talk.replies.append(reply)
            talk.messages = (*talk.messages, _told(reply))
            if reply.error is not None:
                talk.error = reply.error
            if reply.error is not None or not reply.calls or answer is None:
                break
            if hold is not None:
                await hold()
            results = [ToolResult(call.id, (Text(answer(call)),)) for call in reply.calls]
            talk.messages = (*talk.messages, Message(Role.TOOL, tuple(results)))
            before, turn = turn, await _go_on(backend, turn, replace(request, messages=talk.messages), results)
            talk.resumed = turn is before
        talk.snapshot = turn.snapshot()
    except GatewayError as error:
        talk.error = error
    finally:
        if turn is not None:
            await turn.aclose()
    return talk


async def _go_on(backend: Backend, turn: Turn, request: TurnRequest, results: Sequence[ToolResult]) -> Turn:
    try:
        await turn.submit(results)
    except GatewayError as error:
        if error.kind is not ErrorKind.TURN_GONE:
            raise
        await turn.aclose()
        return await backend.start(request)
    return turn


def _told(reply: Reply) -> Message:
    if reply.calls:
        words = (Text(reply.text),) if reply.text else ()
        return Message(Role.ASSISTANT, (*words, *reply.calls))
    return answered(reply.text)


async def _reply(turn: Turn) -> Reply:
    folding = Fold()
    told = asyncio.Event()
    turn.listen(told.set)
    while True:
        told.clear()
        events = turn.take()
        folding.add(events)
        if events and isinstance(events[-1], TERMINAL):
            return folding.reply()
        if not events:
            await told.wait()
