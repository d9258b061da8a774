"""Edits JSON files with comments and trailing commas (JSONC): adds or removes one value, and every other byte stays.
Pure.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_MAX_DEPTH: Final = 200
_SPACE: Final = " \t\r\n\ufeff"
_ENDS: Final = ",]}"
_LINE: Final = 220
"""A value up to this length is written on one line, so that a list of models stays readable."""


@dataclass(slots=True)
class _Node:
    start: int
    end: int = 0
    value: Any = None
    members: list["_Member"] | None = None
    """The members of an object."""


@dataclass(slots=True)
class _Member:
    key: str
    start: int
    node: _Node
    comma: int | None = None
    """The position of the comma after the member."""


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0
    depth: int = field(default=0)

    def fail(self, what: str) -> ValueError:
        line = self.text.count("\n", 0, self.at) + 1
        return ValueError(f"line {line}: {what}")

    def skip(self) -> None:
        """Skips white space and comments."""
        text = self.text
        while self.at < len(text):
            if text[self.at] in _SPACE:
                self.at += 1
            elif text.startswith("//", self.at):
                found = text.find("\n", self.at)
                self.at = len(text) if found < 0 else found
            elif text.startswith("/*", self.at):
                found = text.find("*/", self.at)
                if found < 0:
                    raise self.fail("a comment does not end")
                self.at = found + 2
            else:
                return

    def peek(self) -> str:
        self.skip()
        return self.text[self.at : self.at + 1]

    def read(self) -> _Node:
        mark = self.peek()
        node = _Node(self.at)
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.fail("nested too deeply")
        if mark == "{":
            self._object(node)
        elif mark == "[":
            self._array(node)
        else:
            node.value = self._scalar(mark)
        self.depth -= 1
        node.end = self.at
        return node

    def _object(self, node: _Node) -> None:
        self.at += 1
        node.members, node.value = [], {}
        while (mark := self.peek()) != "}":
            if mark != '"':
                raise self.fail("a name in double quotes or `}` is expected")
            start, key = self.at, self._scalar(mark)
            if self.peek() != ":":
                raise self.fail("`:` is expected")
            self.at += 1
            member = _Member(key, start, self.read())
            node.members.append(member)
            node.value[key] = member.node.value
            member.comma = self._comma("}")
        self.at += 1

    def _array(self, node: _Node) -> None:
        self.at += 1
        node.value = []
        while self.peek() != "]":
            node.value.append(self.read().value)
            self._comma("]")
        self.at += 1

    def _comma(self, closing: str) -> int | None:
        mark = self.peek()
        if mark == ",":
            self.at += 1
            return self.at - 1
        if mark != closing:
            raise self.fail(f"`,` or `{closing}` is expected")
        return None

    def _scalar(self, mark: str) -> Any:
        start = self.at
        if mark == '"':
            self.at += 1
            while self.text[self.at : self.at + 1] not in ('"', "\n", ""):
                self.at += 2 if self.text[self.at] == "\\" else 1
            self.at += 1
        else:
            while self.text[self.at : self.at + 1] not in ("", "/", *_ENDS, *_SPACE):
                self.at += 1
        try:
            return json.loads(self.text[start : self.at])
        except ValueError:
            self.at = start
            raise self.fail("a value is expected") from None


def _parsed(text: str) -> _Node | None:
    """The text as nodes; None if it has no value. Raises ValueError."""
    reader = _Reader(text)
    if not reader.peek():
        return None
    node = reader.read()
    if reader.peek():
        raise reader.fail("something follows the value")
    return node


def load(text: str) -> Any:
    """The values; None if there are none. Raises ValueError."""
    node = _parsed(text)
    return None if node is None else node.value


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with `value` at `path`: replaced, or added at the end of its object. Raises ValueError."""
    root = _parsed(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if root is None:
        kept = text.rstrip() + newline if text.strip(_SPACE) else ""
        return kept + _written(_nested(path, value), "", "  ", newline, len(path)) + newline
    node, depth = root, 0
    while depth < len(path):
        if node.members is None:
            raise ValueError(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        inner = _last(node.members, path[depth])
        if inner is None:
            break
        node, depth = inner.node, depth + 1
    unit = _unit(text, root)
    if depth == len(path):
        written = _written(value, _indent_at(text, node.start), unit, newline)
        return text[: node.start] + written + text[node.end :]
    rest = path[depth + 1 :]
    return _added(text, node, path[depth], _nested(rest, value), unit, newline, len(rest))


def _added(text: str, node: _Node, key: str, value: Any, unit: str, newline: str, deep: int) -> str:
    closing = node.end - 1
    before = text[:closing].rstrip(" \t\r\n")
    several_lines = "\n" in text[node.start : node.end]
    assert node.members is not None
    if not node.members and not several_lines and not text[node.start + 1 : closing].strip(_SPACE):
        several_lines = True  # opens an object `{}`
    outer = _indent_at(text, node.start)
    trailing = "," if node.members and node.members[-1].comma is not None else ""  # follows the file's style
    if several_lines:
        written = f"{_quoted(key)}: {_written(value, outer + unit, unit, newline, deep)}"
        addition = f"{newline}{outer}{unit}{written}{trailing}{newline}{outer}"
    else:
        space = text[len(before) : closing]
        addition = f" {_quoted(key)}: {json.dumps(value, ensure_ascii=False)}{trailing}{space}"
    if node.members and not trailing:
        cut = node.members[-1].node.end
        before = before[:cut] + "," + before[cut:]
    return before + addition + text[closing:]


def remove(text: str, path: Sequence[str], *, emptied: Sequence[Sequence[str]] = ()) -> str:
    """The text without the value at `path`; unchanged if there is none. `emptied`: paths of objects that are removed,
    too, if nothing is left in them. Raises ValueError."""
    text = _removed(text, path)
    for outer in sorted(emptied, key=len, reverse=True):
        if outer and find(text, outer) == ({},):
            text = _removed(text, outer)
    return text


def find(text: str, path: Sequence[str]) -> tuple[Any, ...]:
    """The value at `path` as a tuple; empty if there is none."""
    value = load(text)
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return ()
        value = value[key]
    return (value,)


def _removed(text: str, path: Sequence[str]) -> str:
    node = _parsed(text)
    if node is None:
        return text
    for key in path[:-1]:
        inner = _last(node.members or (), key)
        if inner is None:
            return text
        node = inner.node
    members = node.members or []
    member = _last(members, path[-1])
    if member is None:
        return text
    index = members.index(member)
    start, end = member.start, member.node.end if member.comma is None else member.comma + 1
    line = text.rfind("\n", 0, start) + 1
    alone = not text[line:start].strip(" \t")
    rest = text.find("\n", end)
    rest = len(text) if rest < 0 else rest
    if alone and not text[end:rest].strip():
        start, end = line, rest + 1  # removes whole lines
    elif alone and text[end:].lstrip(" \t").startswith(_ENDS[1:]):
        start = line
    kept = text[:start]
    if not alone:
        kept = kept.rstrip(" \t")
    if member.comma is None and index > 0:
        comma = members[index - 1].comma
        assert comma is not None
        kept = kept[:comma] + kept[comma + 1 :]
    return kept + text[end:]


def _last(members: Sequence[_Member], key: str) -> _Member | None:
    """The last member with this key, which is the one that counts."""
    return next((member for member in reversed(members) if member.key == key), None)


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def written(value: Any) -> str:
    """The text of a new file that holds `value`."""
    return _written(value, "", "  ", "\n", 1) + "\n"


def _written(value: Any, indent: str, unit: str, newline: str, deep: int = 0) -> str:
    """The first `deep` levels are written on several lines, even if short."""
    plain = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value or (deep <= 0 and len(plain) <= _LINE):
        return plain
    inner = indent + unit
    if isinstance(value, dict):
        rows = [f"{_quoted(key)}: {_written(one, inner, unit, newline, deep - 1)}" for key, one in value.items()]
    else:
        rows = [_written(one, inner, unit, newline, deep - 1) for one in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}{newline}{inner}{f',{newline}{inner}'.join(rows)}{newline}{indent}{last}"


def _indent_at(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: _Node) -> str:
    """The indentation unit of the file."""
    for member in root.members or ():
        line = text[text.rfind("\n", 0, member.start) + 1 : member.start]
        if line and not line.strip(" \t"):
            return line
    return "  "
