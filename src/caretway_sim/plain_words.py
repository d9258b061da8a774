"""Plain instructions that the simulated model follows as a real one would: `caretway prove` sends them to both.

Each instruction is a sentence on its own line: reply with a marker, call a tool with arguments, call several at once,
reply with their results, with a code word, or with the colour of an image. Pure; returns the steps of a script.
"""

import base64
import json
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from .model_input import InputMessage, Picture
from .script import Instructions, Result, Say, ScriptCall, Step, Think, ToolUse

# ---- colours

# What the simulated model sees of an image: the colour of the first pixel of a plain PNG. Pure and bounded.

MAX_CHARS: Final = 1024 * 1024
_HEAD: Final = b"\x89PNG\r\n\x1a\n"
_TRUE_COLOUR: Final = 2
_NAMES: Final = ("red", "green", "blue")


def colour(data: str) -> str:
    """The colour of a base64 image; empty if the image is not a plain PNG."""
    if len(data) > MAX_CHARS:
        return ""
    try:
        return _first_pixel(base64.b64decode(data, validate=True))
    except (ValueError, struct.error, zlib.error):
        return ""


def _first_pixel(image: bytes) -> str:
    if not image.startswith(_HEAD):
        return ""
    at, kind, bits = len(_HEAD), -1, 0
    while at + 8 <= len(image):
        size, name = struct.unpack_from(">I4s", image, at)
        body = image[at + 8 : at + 8 + size]
        if name == b"IHDR":
            bits, kind = struct.unpack_from(">BB", body, 8)
        if name == b"IDAT" and (bits, kind) == (8, _TRUE_COLOUR):
            row = zlib.decompressobj().decompress(body, 4)
            channels = row[1:4]
            return _NAMES[channels.index(max(channels))] if len(channels) == len(_NAMES) else ""
        at += 12 + size
    return ""


# ---- plain words


_REPLY: Final = re.compile(r"Reply with exactly this and nothing else: (\S+)")
_CALL: Final = re.compile(r"Call the tool `(\w+)` with the arguments (\{.*\})\.")
_AT_ONCE: Final = re.compile(r"Call these tools at once, in one step\b.*")
_ONE_OF_THEM: Final = re.compile(r"- `(\w+)` (\{.*\})")
_RETURNED: Final = re.compile(r"Then reply with exactly what the (?:last call|calls) returned\b.*")
_FIRST_MESSAGE: Final = re.compile(r"Reply with the code word of my first message\b.*")
_OWN_INSTRUCTIONS: Final = re.compile(r"Reply with the code word of your instructions\b.*")
_COLOUR: Final = re.compile(r"Which colour fills this picture\?.*")
_ORDERS: Final = (_REPLY, _CALL, _AT_ONCE, _RETURNED, _FIRST_MESSAGE, _OWN_INSTRUCTIONS, _COLOUR)
_MAY_BE: Final = re.compile(r"^[ \t]*(?:(?:Then r|R)eply with |Call th|Which colour )", re.MULTILINE)
"""A quick test: prompts are long, and few contain an instruction."""

_CODE_WORD: Final = re.compile(r"The code word is (\w+)\.")
_INSTRUCTIONS: Final = re.compile(r"<instructions>(.*?)</instructions>", re.DOTALL)
"""On a wire without a field for instructions they come before the user's words."""
_UNKNOWN: Final = "I do not know it."


def has_orders(text: str) -> bool:
    if _MAY_BE.search(text) is None:
        return False
    return any(order.fullmatch(line) for line in _lines(text) for order in _ORDERS)


def steps(history: Sequence[InputMessage], at: int, *, thinks: bool) -> tuple[Step, ...]:
    """The steps that message `at` of the conversation asks for."""
    thought = (Think("The user wants something plain, so there is little to weigh."),) if thinks else ()
    return (*thought, *_read(history, at))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _read(history: Sequence[InputMessage], at: int) -> Iterator[Step]:
    together: list[ToolUse] | None = None
    for line in _lines(history[at].text):
        if together is not None:
            if found := _ONE_OF_THEM.fullmatch(line):
                together += _uses(found)
                continue
            yield ScriptCall(tuple(together))
            together = None
        if found := _REPLY.fullmatch(line):
            yield Say(found[1])
        elif found := _CALL.fullmatch(line):
            yield ScriptCall(tuple(_uses(found)))
        elif _AT_ONCE.fullmatch(line):
            together = []
        elif _RETURNED.fullmatch(line):
            yield Result()
        elif _FIRST_MESSAGE.fullmatch(line):
            yield Say(_code_word(history[:at]))
        elif _OWN_INSTRUCTIONS.fullmatch(line):
            instructions = _INSTRUCTIONS.search(history[at].text)
            word = _CODE_WORD.search(instructions[1]) if instructions else None
            yield Say(word[1]) if word else Instructions()
        elif _COLOUR.fullmatch(line):
            yield Say(_seen(history[: at + 1]))
    if together is not None:
        yield ScriptCall(tuple(together))


def _uses(found: re.Match[str]) -> list[ToolUse]:
    try:
        args: Any = json.loads(found[2])
    except ValueError:
        return []
    return [ToolUse(found[1], args)]  # the pattern includes the braces, so this is an object


def _code_word(before: Sequence[InputMessage]) -> str:
    words = (_CODE_WORD.search(message.text) for message in before if message.role == "user")
    return next((found[1] for found in words if found), _UNKNOWN)


def _seen(history: Sequence[InputMessage]) -> str:
    pictures = [part for message in history for part in message.parts if isinstance(part, Picture)]
    return (colour(pictures[-1].data) if pictures else "") or "I see no picture."
