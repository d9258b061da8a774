"""How the text of a call's arguments goes on, when only its beginning was told: keys may stand in another order than
ours, and characters may be escaped in another way. Pure.

The text is followed along the value that it must have in the end. Where it breaks off, the rest is written.
"""

import re
from typing import Any, Final

import msgspec

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
    """Where the value ends in the text; or what is missing of it, when the text ends before."""
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
    told, end = (word[0], word.end()) if word is not None else ("", at)
    wanted = _written(value)
    if told and end == len(text) and wanted.startswith(told):
        return wanted[len(told) :]
    if told != wanted and not _same_number(told, value):
        raise _OtherValue
    return end


def _same_number(told: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return False
    try:
        return bool(float(told) == value)
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
