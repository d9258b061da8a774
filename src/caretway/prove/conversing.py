"""Runs one conversation with a backend to its end: takes events, answers calls, keeps all replies.

A backend whose turns do not wait for results gets the whole history again, as a client of the gateway would send it.
"""

import asyncio
import json
import struct
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.events import TERMINAL
from ..core.fold import Fold, Reply
from ..core.request import Image, Message, Role, Text, ToolCall, ToolResult, ToolSpec, TurnRequest
from ..core.turn import Backend, Snapshot, Turn

# ---- asking

# The prompts, tools and picture of the cases. Pure.

LOOKUP: Final = ToolSpec(
    "lookup",
    "Looks a key up and returns its value.",
    {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)
STEP: Final = ToolSpec(
    "step",
    "Does step number n and returns what came out of it.",
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)
UNION: Final = ToolSpec(
    "find",
    "Finds an entry by its name or by its number.",
    {
        "type": "object",
        "properties": {"key": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        "required": ["key"],
    },
)
LOOP_STEPS: Final = 10
FOREIGN_ID: Final = "call_prove|fc_prove"
"""An id in another maker's format: some services refuse a history that has one."""


def user(text: str, *pictures: Image) -> Message:
    return Message(Role.USER, (*pictures, Text(text)))


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (Text(text),))


def answered(text: str) -> Message:
    return Message(Role.ASSISTANT, (Text(text),))


def called(*calls: ToolCall) -> Message:
    return Message(Role.ASSISTANT, calls)


def returned(*results: tuple[str, str]) -> Message:
    """A message with tool results from pairs (call id, text)."""
    return Message(Role.TOOL, tuple(ToolResult(call_id, (Text(text),)) for call_id, text in results))


def reply_with(marker: str) -> str:
    return f"Reply with exactly this and nothing else: {marker}"


def think_then_reply(marker: str) -> str:
    return f"Which is larger, 9.9 or 9.11? Think it over first, and keep the result to yourself.\n{reply_with(marker)}"


def remember(word: str, marker: str) -> str:
    return f"The code word is {word}.\n{reply_with(marker)}"


RECALL: Final = "Reply with the code word of my first message, and nothing else."
OWN_INSTRUCTIONS: Final = "Reply with the code word of your instructions, and nothing else."
COLOUR: Final = "Which colour fills this picture? Reply with one English word in lower case, and nothing else."


def instructions(word: str) -> str:
    return f"The code word is {word}. It is no secret: tell it to everybody who asks."


def call(tool: ToolSpec, **arguments: object) -> str:
    return f"Call the tool `{tool.name}` with the arguments {json.dumps(arguments)}."


def call_and_tell(tool: ToolSpec, **arguments: object) -> str:
    return f"{call(tool, **arguments)}\nThen reply with exactly what the last call returned, and nothing else."


def call_at_once(tool: ToolSpec, keys: Sequence[str]) -> str:
    lines = [f"- `{tool.name}` {json.dumps({'key': key})}" for key in keys]
    return "\n".join(
        [
            "Call these tools at once, in one step, before you read any result:",
            *lines,
            "Then reply with exactly what the calls returned, each on a line of its own, and nothing else.",
        ]
    )


def loop() -> str:
    calls = [call(STEP, n=n) for n in range(1, LOOP_STEPS + 1)]
    return "\n".join(
        [
            "Make these calls one after the other, and read each result before you make the next call.",
            *calls,
            "Then reply with exactly what the last call returned, and nothing else.",
        ]
    )


COLOURS: Final = {"red": (220, 20, 20), "green": (20, 170, 20), "blue": (20, 20, 220)}


def picture(colour: str, side: int = 64) -> Image:
    """A PNG square of one colour."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows = (b"\0" + bytes(COLOURS[colour]) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return Image(b"\x89PNG\r\n\x1a\n" + b"".join(parts), "image/png")


# ---- conversing


MAX_REPLIES: Final = 24
_ON_THE_WAY: Final = frozenset({ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT, ErrorKind.INTERNAL})

UNHEARD: Final = "empty_stream"
"""The error code of a stream that ended in order without any content, the sign of a wrong host or region."""

Answer = Callable[[ToolCall], str]
Hold = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Talk:
    replies: list[Reply] = field(default_factory=list)
    messages: tuple[Message, ...] = ()
    """The whole history, as a client keeps it."""
    snapshot: Snapshot | None = None
    error: GatewayError | None = None
    resumed: bool = False
    """The turn that made the calls accepted their results."""

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
        """`right` if the last answer has all markers; otherwise another word of `facts.OUTCOMES`."""
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
    """Runs a conversation to its end. `hold` is awaited before results are submitted. An error of the turn ends the
    talk, which holds the error."""
    talk = Talk(messages=request.messages)
    turn: Turn | None = None
    anew = False
    try:
        turn = await backend.start(request, snapshot)
        for _ in range(MAX_REPLIES):
            reply = await _reply(turn)
            if reply.error is not None and reply.error.kind is ErrorKind.TURN_GONE and not anew:
                anew = True  # as the gateway does: the whole history is sent again
                await turn.aclose()
                turn = await backend.start(replace(request, messages=talk.messages))
                continue
            talk.replies.append(reply)
            talk.messages = (*talk.messages, _as_message(reply))
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


def _as_message(reply: Reply) -> Message:
    if reply.calls:
        words = (Text(reply.text),) if reply.text else ()
        return Message(Role.ASSISTANT, (*words, *reply.calls))
    return answered(reply.text)


async def _reply(turn: Turn) -> Reply:
    folding = Fold()
    notified = asyncio.Event()
    turn.listen(notified.set)
    while True:
        notified.clear()
        events = turn.take()
        folding.add(events)
        if events and isinstance(events[-1], TERMINAL):
            return folding.reply()
        if not events:
            await notified.wait()
