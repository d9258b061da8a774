"""What the cases ask: prompts in plain words, tools, a picture. Pure.

A real model understands them, and so does the simulated one (`caretway_sim/plain_words.py`). Everything that an answer
is recognised by is a marker that means nothing.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from ..core.request import Image, Message, Role, Text, ToolCall, ToolResult, ToolSpec

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
"""An id of another maker's form: services were seen to refuse a history that has one."""


def user(text: str, *pictures: Image) -> Message:
    return Message(Role.USER, (*pictures, Text(text)))


def system(text: str) -> Message:
    return Message(Role.SYSTEM, (Text(text),))


def answered(text: str) -> Message:
    return Message(Role.ASSISTANT, (Text(text),))


def called(*calls: ToolCall) -> Message:
    return Message(Role.ASSISTANT, calls)


def returned(*results: tuple[str, str]) -> Message:
    """(call id, what it returned)."""
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
    """A square of one colour, as PNG."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows = (b"\0" + bytes(COLOURS[colour]) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return Image(b"\x89PNG\r\n\x1a\n" + b"".join(parts), "image/png")
