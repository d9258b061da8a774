"""Arguments of tool calls: protobuf values to JSON (3.0 is 3 again), whether two JSON texts mean the same, streamed
arguments that repeat what came before, and what of a call is still missing. Pure."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from google.protobuf.struct_pb2 import Value

from .completion import completion

_BROKEN: Final = "\ufffd"
"""What a decoder makes of half a character."""


def plain_value(value: Value) -> Any:
    """google.protobuf.Value -> Python. A whole number is an int: JSON has no 2.0 where the model wrote 2."""
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) < 2**53 else number
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return {key: plain_value(inner) for key, inner in value.struct_value.fields.items()}
        case "list_value":
            return [plain_value(inner) for inner in value.list_value.values]
        case _:
            return None


def arguments_json(args: Any) -> str:
    return msgspec.json.encode({key: plain_value(value) for key, value in args.items()}, order="sorted").decode()


def same_meaning(one: str, other: str) -> bool:
    """True when both are the same JSON, however it is spelled."""
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, RecursionError):
        return False


def grown(before: str, piece: str) -> str:
    """The text so far after one more piece of streamed arguments.

    Cursor sends all of the text each time; older servers sent only what was new. A piece that begins with what is
    there is the whole text, also when that ended within a character. So is one that begins anew.
    """
    if piece.startswith(before):
        return piece
    if piece and before.endswith(_BROKEN) and piece.startswith(before.rstrip(_BROKEN)):
        return piece
    if piece.startswith("{") and before.endswith("}") and complete(before):
        return piece
    return before + piece


def sure(draft: str) -> str:
    """What of a text can be shown before the call is asked for. Not its end: the call may have more arguments than were
    told. And nothing behind a character that was broken on the way."""
    broken = draft.find(_BROKEN)
    if broken >= 0:
        return draft[:broken]
    told = draft.rstrip()
    return told[:-1] if told.endswith("}") else draft


def spellings(draft: str, arguments: str) -> tuple[str, ...]:
    """The texts that a call's arguments may have: the model's own, when it is whole, then ours."""
    return (draft, arguments) if draft and same_meaning(draft, arguments) else (arguments,)


def rest(streamed: str, whole: Sequence[str]) -> str | None:
    """What is missing of the streamed text: by the first of the whole texts that goes on from it, else by what the last
    of them means. "" when it is complete and means the same. None: it cannot be completed."""
    for text in whole:
        if text.startswith(streamed):
            return text[len(streamed) :]
    try:
        missing = completion(streamed, msgspec.json.decode(whole[-1]))
    except (msgspec.DecodeError, RecursionError):
        return None
    if missing is None and any(same_meaning(streamed, text) for text in whole):
        return ""
    return missing


def complete(text: str) -> bool:
    """True for a whole JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False
