"""Finds tool results that clients tell outside of `tool-result` parts: in the steps of `turns`, or in an assistant's
prose. Pure.

Public clients that work with the real service do both. What is found is marked as told: the state does not hold it as a
result.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from .model_input import InputCall, InputMessage, InputResult, InputText, Part

_MARK: Final = re.compile(r"^\[Tool (?:Result|Error)\][ \t]*\n", re.MULTILINE)
_OUTPUT: Final = re.compile(r"^output:[ \t]*\n", re.MULTILINE)
_INVOKED: Final = re.compile(r"\A(?:\[tool_result\]\n)?(?:invoked:[^\n]*\n)?")


def in_prose(messages: Sequence[InputMessage]) -> list[InputMessage]:
    """The same messages; an assistant's text that tells of results is read as calls with their results."""
    return [
        _read(message, number) if message.role == "assistant" else message for number, message in enumerate(messages)
    ]


def _read(message: InputMessage, number: int) -> InputMessage:
    parts: list[Part] = []
    for part in message.parts:
        marks = list(_MARK.finditer(part.text)) if isinstance(part, InputText) else []
        if not marks or not isinstance(part, InputText):
            parts.append(part)
            continue
        if before := part.text[: marks[0].start()].strip():
            parts.append(InputText(before))
        ends = [mark.start() for mark in marks[1:]] + [len(part.text)]
        for place, (mark, end) in enumerate(zip(marks, ends, strict=True)):
            call_id = f"told-{number}-{place}"
            parts.append(InputCall(call_id, "", "{}"))
            parts.append(InputResult(call_id, "", _output(part.text[mark.end() : end]), told=True))
    return replace(message, parts=tuple(parts))


def _output(told: str) -> str:
    found = _OUTPUT.search(told)
    return (told[found.end() :] if found else _INVOKED.sub("", told, count=1)).strip("\n")


def in_turns(messages: Sequence[InputMessage], turns: Sequence[Sequence[InputMessage]]) -> list[InputMessage]:
    """Root messages; where a turn has calls that no root has, the turn tells what followed its user message."""
    known = {part.call_id for one in messages for part in one.parts if isinstance(part, InputCall | InputResult)}
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    blocks = dict(zip(reversed(users), reversed(turns), strict=False))
    if not users:
        return list(messages)
    merged = list(messages[: users[0]])
    for user, end in zip(users, [*users[1:], len(messages)], strict=True):
        turn = blocks.get(user, ())
        if any(_is_new(part, known) for message in turn for part in message.parts):
            merged += [messages[user], *(_told(message, known) for message in turn[1:])]
        else:
            merged += messages[user:end]
    return merged


def _is_new(part: Part, known: set[str]) -> bool:
    return isinstance(part, InputCall | InputResult) and part.call_id not in known


def _told(message: InputMessage, known: set[str]) -> InputMessage:
    parts = [
        replace(part, told=True) if isinstance(part, InputResult) and _is_new(part, known) else part
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))
