"""Arguments of tool calls: converts protobuf values to JSON (3.0 becomes 3), compares JSON texts by meaning, joins
streamed pieces that repeat earlier text, and completes a partial text. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from google.protobuf.struct_pb2 import Value

# ---- Completes the text of a call's arguments from its beginning: the order of keys and the escapes of characters may
# differ from msgspec's. Pure.
#
# The text is compared with the final value from the start. Where the text ends, the rest of the value is written.

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*"', re.DOTALL)
"""A whole string. The parts match in only one way, so that a long string without an end stays linear. A possessive
group around the alternatives matches wrongly in Python 3.11.2 (Debian 12)."""
_CHARACTERS: Final = re.compile(
    r'(?:[^"\\]++|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""Whole characters of a string, without an incomplete escape at the end."""
_WORD: Final = re.compile(r"[-+.0-9A-Za-z]*")
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class _OtherValue(Exception):
    """The text is the beginning of another value."""


def completion(begun: str, value: Any) -> str | None:
    """The text that completes `begun` to a JSON text of this value; None if `begun` starts another value."""
    try:
        end = _follow(begun, 0, value)
    except (_OtherValue, RecursionError, msgspec.DecodeError):
        return None
    if isinstance(end, str):
        return end
    return None if begun[end:].strip() else ""


def _follow(text: str, at: int, value: Any) -> int | str:
    """The end of the value in the text, or the missing rest of the value if the text ends first."""
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
    """(key, end of the key in the text); the end is None if the text ends within the key."""
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
    """The rest of a string that begins at `at` and has no end in the text."""
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
    """Compare a number, true, false or null."""
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
"""The replacement character that a decoder writes for an incomplete character."""


def plain_value(value: Value) -> Any:
    """The Python value of a google.protobuf.Value. A whole number becomes an int, so that 2 does not become 2.0."""
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
    """Whether both texts are the same JSON value, in any spelling."""
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, RecursionError):
        return False


def grown(before: str, piece: str) -> str:
    """The text after another piece of streamed arguments.

    Cursor sends the whole text each time; older servers sent only the new part. A piece is the whole text if it begins
    with the earlier text, apart from an incomplete character at its end, or if it starts a new object.
    """
    if piece.startswith(before):
        return piece
    if piece and before.endswith(_BROKEN) and piece.startswith(before.rstrip(_BROKEN)):
        return piece
    if piece.startswith("{") and before.endswith("}") and complete(before):
        return piece
    return before + piece


def sure(draft: str) -> str:
    """The part of a text that can be shown before the call is asked for: without the closing brace, because more
    arguments may follow, and without text after an incomplete character."""
    broken = draft.find(_BROKEN)
    if broken >= 0:
        return draft[:broken]
    whole = draft.rstrip()
    return whole[:-1] if whole.endswith("}") else draft


def spellings(draft: str, arguments: str) -> tuple[str, ...]:
    """The possible texts of a call's arguments: the model's own text if it is whole, then the gateway's text."""
    return (draft, arguments) if draft and same_meaning(draft, arguments) else (arguments,)


def rest(streamed: str, whole: Sequence[str]) -> str | None:
    """The missing end of the streamed text: from the first whole text that continues it, otherwise from the value of
    the last whole text. Returns "" if the streamed text is complete, and None if it cannot be completed."""
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
    """Whether the text is a whole JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False
