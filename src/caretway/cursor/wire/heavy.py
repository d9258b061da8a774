"""Reduces large messages before they are decoded: a long text is cut into pieces, an exec with too many values loses
its arguments (`Oversized`), a checkpoint that is too large is dropped, other messages raise `TooMuch`.
The cost of a message depends on its number of fields, not on its bytes, so the fields are counted first, with the
decoder's own descriptors. An update that needs no answer is dropped if it is too large.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from .embedding import embed
from .messages import pb

# ---- Fast path: reads a short text or thinking delta without building a protobuf message.
#
# Input: a serialised AgentServerMessage. Output: a delta if the bytes are exactly one delta in the form that every
# encoder writes (three nested fields, each with a length of one byte), else None. The result always equals the protobuf
# decoder's; a test compares them.

TEXT: Final = 0x0A
"""The tag of InteractionUpdate.text_delta on the wire."""
THINKING: Final = 0x22
"""The tag of InteractionUpdate.thinking_delta."""

_UPDATE: Final = 0x0A
_DELTA_WORDS: Final = 0x0A
_SHORT: Final = 130
"""The smallest message size whose outermost length needs two bytes."""


def _heads(kind: int) -> tuple[bytes | None, ...]:
    """The first bytes of a delta by its size; None for impossible sizes."""
    none = (None,) * 7
    return *none, *(bytes([_UPDATE, size - 2, kind, size - 4, _DELTA_WORDS, size - 6]) for size in range(7, _SHORT))


_TEXT_HEADS: Final = _heads(TEXT)
_THINKING_HEADS: Final = _heads(THINKING)


def read_delta(payload: bytes) -> tuple[int, str] | None:
    """(TEXT or THINKING, the text) of a delta; None for another message."""
    size = len(payload)
    if size >= _SHORT:
        return None
    head = payload[:6]
    if head == _TEXT_HEADS[size]:
        kind = TEXT
    elif head == _THINKING_HEADS[size]:
        kind = THINKING
    else:
        return None
    try:
        return kind, payload[6:].decode()
    except UnicodeDecodeError:
        return None


PIECE_BYTES: Final = 8 * 1024
"""A long text is cut into pieces of this size."""
MAX_FIELDS: Final = 40_000
"""Fields of a message that is stored or skimmed."""
MAX_ASKED_FIELDS: Final = 12_000
"""Fields of a message that needs an answer: each value becomes an object."""
MAX_ASKED_BYTES: Final = 512 * 1024
"""The size of a tool call with arguments. Few models write that much in one call."""
MAX_PARTIAL_BYTES: Final = 1024 * 1024 + 64 * 1024
"""The size of a partial call, whose text so far is one field."""
_MAX_KEPT_BYTES: Final = 1024
"""The size of one field in an exec without arguments: ids and names are shorter."""
_MAX_DEPTH: Final = 6

UPDATE_TAG: Final = bytes((_UPDATE,))
"""The first byte of every update."""
_WORDS: Final = b"\x0a"
"""The tag of a delta's text, its first field."""
_EXEC: Final = 0x12
_CHECKPOINT: Final = 0x1A
_KV: Final = 0x22
_ASKING: Final = (0x12, 0x2A, 0x3A)
"""Tags of messages that need an answer: execs, their control, queries."""
_PARTIAL_CALL: Final = 0x3A
NO_CHECKPOINT: Final = b"\x1a\x00"
"""An empty checkpoint, which replaces a checkpoint that is too large."""
STAND_INS: Final[Mapping[int, bytes]] = {_CHECKPOINT: NO_CHECKPOINT}

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ARGUMENTS: Final = pb.McpArgs.DESCRIPTOR.fields_by_name["args"].message_type
_NAMES: Final = {number: field.name for number, field in pb.AgentServerMessage.DESCRIPTOR.fields_by_number.items()}


class TooMuch(ValueError):
    """The message would take too much time or memory to decode."""


class Oversized(bytes):
    """An AgentServerMessage with an exec that is too large: it keeps ids and names, but not the arguments."""


def informs(payload: bytes) -> bool:
    """Whether the message needs no answer: it is exactly one update."""
    return payload[:1] == b"\x0a" and _only_field(payload, 0) is not None


def lighten(payload: bytes) -> list[bytes]:
    kind, inside = payload[0] if payload else 0, _only_field(payload, 0)
    if kind == _UPDATE and inside is not None:
        return _update(payload, inside)
    stored = kind in (_CHECKPOINT, _KV) and inside is not None
    asks = kind in _ASKING and len(payload) > MAX_ASKED_BYTES
    if not asks and _cheap(payload, MAX_FIELDS if stored else MAX_ASKED_FIELDS):
        return [payload]
    if stored and kind == _CHECKPOINT:
        return [NO_CHECKPOINT]
    if kind == _EXEC and inside is not None:
        return [Oversized(_bare(payload, _MAX_KEPT_BYTES))]
    raise TooMuch(f"a message of {len(payload)} bytes ({_NAMES.get(kind >> 3, 'unknown')}) is too much to work on")


def _update(payload: bytes, inside: int) -> list[bytes]:
    kind = payload[inside] if inside < len(payload) else 0
    if kind in (TEXT, THINKING) and (pieces := _pieces(payload, inside)):
        return pieces
    if kind not in (TEXT, THINKING, _PARTIAL_CALL):
        return [payload] if _cheap(payload, MAX_FIELDS) else []
    if kind == _PARTIAL_CALL:
        if len(payload) <= MAX_PARTIAL_BYTES and _cheap(payload, MAX_ASKED_FIELDS):
            return [payload]
        return [_bare(payload, MAX_PARTIAL_BYTES)]  # if this drops its text, the exec has the call
    if len(payload) <= MAX_ASKED_BYTES and _cheap(payload, MAX_ASKED_FIELDS):
        return [payload]
    raise TooMuch(f"a delta of {len(payload)} bytes is too much to work on")


def _pieces(payload: bytes, inside: int) -> list[bytes]:
    """Cut a delta with only text into several, between characters. Empty if the delta has other fields."""
    kind, words = payload[inside : inside + 1], _only_field(payload, inside)
    if words is None or payload[words : words + 1] != _WORDS:
        return []
    at, stop = _only_field(payload, words), len(payload)
    pieces: list[bytes] = []
    while at is not None and at < stop:
        end = min(at + PIECE_BYTES, stop)
        for _ in range(3):  # at most 3 bytes continue a character; more are no text
            if end < stop and payload[end] & 0xC0 == 0x80:
                end -= 1
        pieces.append(embed(UPDATE_TAG, embed(kind, embed(_WORDS, payload[at:end]))))
        at = end
    return pieces


def _only_field(payload: bytes, at: int) -> int | None:
    """The start of the content if `payload` has only this field; otherwise None."""
    if at >= len(payload) or payload[at] & 7 != _BYTES or payload[at] & 0x80:
        return None
    length, at = _varint(payload, at + 1, len(payload))
    return at if at + length == len(payload) else None


@cache
def _nested(message: Descriptor) -> dict[int, Descriptor | None]:
    """The nested fields of a message by number: message fields with their descriptor, packed numbers with None."""
    nested: dict[int, Descriptor | None] = {}
    for field in message.fields:
        if field.message_type is not None:
            nested[field.number] = field.message_type
        elif field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES) and field.is_repeated:
            nested[field.number] = None
    return nested


def _cheap(payload: bytes, most: int) -> bool:
    """Whether the message has at most `most` fields, including nested messages. At invalid bytes the count so far
    decides, because the decoder stops there too."""
    stack = [(pb.AgentServerMessage.DESCRIPTOR, 0, len(payload))]
    while stack:
        message, at, stop = stack.pop()
        nested = _nested(message)
        while at < stop:
            most -= 1
            if most < 0:
                return False
            tag, at = _varint(payload, at, stop)
            wire, number = tag & 7, tag >> 3
            if wire == _BYTES:
                length, at = _varint(payload, at, stop)
                if at + length > stop:
                    return True
                if number in nested:
                    inner = nested[number]
                    if inner is None:
                        most -= length
                    else:
                        stack.append((inner, at, at + length))
                at += length
            elif wire == _VARINT:
                _, at = _varint(payload, at, stop)
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                return not number or wire > _FIXED32  # groups are refused: unused, and they may nest
            if not number:
                return True
    return True


def _bare(payload: bytes, most_bytes: int) -> bytes:
    """The message without the arguments of MCP calls and without fields longer than `most_bytes`."""
    left = MAX_FIELDS

    def copy(message: Descriptor, at: int, stop: int, depth: int) -> bytes:
        nonlocal left
        nested, kept = _nested(message), bytearray()
        while at < stop:
            left -= 1
            if left < 0:
                raise TooMuch(f"a message of {len(payload)} bytes has more fields than can be looked at")
            begin = at
            tag, at = _varint(payload, at, stop)
            wire, number = tag & 7, tag >> 3
            if wire == _BYTES:
                after_tag = at
                length, at = _varint(payload, at, stop)
                inner, end = nested.get(number), at + length
                if end > stop:
                    raise TooMuch(f"a message of {len(payload)} bytes cannot be read")
                if inner is not None and inner is not _ARGUMENTS and depth < _MAX_DEPTH:
                    kept += embed(payload[begin:after_tag], copy(inner, at, end, depth + 1))
                elif inner is None and length <= most_bytes:
                    kept += payload[begin:end]
                at = end
                continue
            if wire == _VARINT:
                _, at = _varint(payload, at, stop)
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                raise TooMuch(f"a message of {len(payload)} bytes cannot be read")
            kept += payload[begin : min(at, stop)]
        return bytes(kept)

    return copy(cast(Descriptor, pb.AgentServerMessage.DESCRIPTOR), 0, len(payload), 0)


def _varint(payload: bytes, at: int, stop: int) -> tuple[int, int]:
    """(the number, its end). An unterminated number ends at `stop`."""
    value = shift = 0
    while at < stop and shift < 64:
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at
