"""Arguments of tool calls: protobuf values to JSON (3.0 is 3 again), whether two JSON texts mean the same, streamed
arguments that repeat what came before, and what of a call is still missing. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from google.protobuf.struct_pb2 import Value

# ---- How the text of a call's arguments goes on, when only its beginning was told: keys may stand in another order
# than ours, and characters may be escaped in another way. Pure.
#
# The text is followed along the value that it must have in the end. Where it breaks off, the rest is written.

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*"', re.DOTALL)
"""It may be long, and have no end: its parts can be divided in one way only. A possessive group around alternatives
matches wrongly in Python 3.11.2, which Debian 12 has."""
_CHARACTERS: Final = re.compile(
    r'(?:[^"\\]++|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""Whole characters of a string, not the beginning of an escaped one."""
_WORD: Final = re.compile(r"[-+.0-9A-Za-z]*")
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class _OtherValue(Exception):
    """The text is the beginning of another value."""


def completion(begun: str, value: Any) -> str | None:
    """What makes `begun` a whole JSON text of this value. None: it is the beginning of something else."""
    try:
        end = _follow(begun, 0, value)
    except (_OtherValue, RecursionError, msgspec.DecodeError):
        return None
    if isinstance(end, str):
        return end
    return None if begun[end:].strip() else ""


def _follow(text: str, at: int, value: Any) -> int | str:
    """The end of the value in the text, or what is missing of it if the text ends before."""
    at = _next(text, at)
    if at == len(text):
        return _written(value)
    if isinstance(value, dict):
        return _members(text, at, value)
    if isinstance(value, list):
        return _elements(text, at, value)
    return _string(text, at, value) if isinstance(value, str) else _word(text, at, value)


def _members(text: str, at: int, value: dict[str, Any]) -> int | str:
    _expect(text, at, "{")
    left = dict(value)
    at, separated = _next(text, at + 1), True
    while at < len(text):
        if text[at] == "}" and not left:
            return at + 1
        if not separated:
            _expect(text, at, ",")
            at, separated = _next(text, at + 1), True
            if not left:
                raise _OtherValue
            continue
        name, end = _name(text, at, left)
        if end is None:
            missing = _cut_string(text, at, name)
            return f"{missing}:{_written(left.pop(name))}{_closing(left, '}')}"
        inner = left.pop(name)
        at = _next(text, end)
        if at == len(text):
            return f":{_written(inner)}{_closing(left, '}')}"
        _expect(text, at, ":")
        found = _follow(text, at + 1, inner)
        if isinstance(found, str):
            return found + _closing(left, "}")
        at, separated = _next(text, found), False
    return _closing(left, "}", separated=separated)


def _name(text: str, at: int, left: dict[str, Any]) -> tuple[str, int | None]:
    """The key that stands here, and its end; None: the text ends within it."""
    _expect(text, at, '"')
    if (whole := _STRING.match(text, at)) is not None:
        name = msgspec.json.decode(whole[0])
        if name in left:
            return name, whole.end()
        raise _OtherValue
    for name in left:
        try:
            _cut_string(text, at, name)
        except _OtherValue:
            continue
        return name, None
    raise _OtherValue


def _elements(text: str, at: int, value: list[Any]) -> int | str:
    _expect(text, at, "[")
    at = _next(text, at + 1)
    for number, inner in enumerate(value):
        if number and at < len(text):
            _expect(text, at, ",")
            at = _next(text, at + 1)
        elif number:
            return f",{_written(value[number:])[1:]}"
        found = _follow(text, at, inner)
        if isinstance(found, str):
            return found + "".join(f",{_written(other)}" for other in value[number + 1 :]) + "]"
        at = _next(text, found)
    if at == len(text):
        return "]"
    _expect(text, at, "]")
    return at + 1


def _string(text: str, at: int, value: str) -> int | str:
    _expect(text, at, '"')
    whole = _STRING.match(text, at)
    if whole is None:
        return _cut_string(text, at, value)
    if msgspec.json.decode(whole[0]) != value:
        raise _OtherValue
    return whole.end()


def _cut_string(text: str, at: int, value: str) -> str:
    """The rest of a string that begins here and has no end."""
    whole = _CHARACTERS.match(text, at + 1)
    end = whole.end() if whole is not None else at + 1
    said: str = msgspec.json.decode(f'"{text[at + 1 : end]}"')
    if not value.startswith(said):
        raise _OtherValue
    left, escape = value[len(said) :], text[end:]
    if not escape:
        return _written(left)[1:]
    for spelled in _escaped(left[:1]):
        if spelled.startswith(escape) or (escape.startswith("\\u") and spelled.startswith(escape.lower())):
            return spelled[len(escape) :] + _written(left[1:])[1:]
    raise _OtherValue


def _escaped(character: str) -> list[str]:
    if not character:
        return []
    units = character.encode("utf-16-be").hex()
    by_number = "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
    return [_SHORT[character], by_number] if character in _SHORT else [by_number]


def _word(text: str, at: int, value: Any) -> int | str:
    """A number, true, false or null."""
    word = _WORD.match(text, at)
    written, end = (word[0], word.end()) if word is not None else ("", at)
    wanted = _written(value)
    if written and end == len(text) and wanted.startswith(written):
        return wanted[len(written) :]
    if written != wanted and not _same_number(written, value):
        raise _OtherValue
    return end


def _same_number(written: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return False
    try:
        return bool(float(written) == value)
    except ValueError:
        return False


def _closing(left: dict[str, Any], end: str, *, separated: bool = False) -> str:
    members = ",".join(f"{_written(name)}:{_written(value)}" for name, value in left.items())
    return f"{'' if separated or not members else ','}{members}{end}"


def _next(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()


def _expect(text: str, at: int, character: str) -> None:
    if text[at] != character:
        raise _OtherValue


def _written(value: Any) -> str:
    return msgspec.json.encode(value).decode()


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
    whole = draft.rstrip()
    return whole[:-1] if whole.endswith("}") else draft


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
