"""File bytes as text: detects binary data (NUL), converts UTF-16 with a byte-order mark, takes line ranges (negative
from the end), cuts with a note on how to continue, and shares the output limit of stdout and stderr. Pure."""

from dataclasses import dataclass
from typing import Final

from ....processes.child import decoded

_SNIFF: Final = 8192
_BLOCK: Final = 1 << 16


def is_binary(data: bytes) -> bool:
    """Whether there is a NUL near the beginning, the rule of git and ripgrep."""
    return b"\0" in data[:_SNIFF]


def as_utf8(data: bytes) -> bytes:
    """Convert UTF-16 with a byte-order mark to UTF-8; its NULs would make it look binary. Other data is unchanged."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace").encode()
    return data


@dataclass(frozen=True, slots=True)
class Excerpt:
    text: str
    total_lines: int
    """The official client's count: a final line break starts another line."""
    truncated: bool


class BeyondEnd(Exception):
    """The requested lines do not exist."""


def excerpt(
    data: bytes, *, offset: int | None, limit: int | None, max_bytes: int, max_chars: int | None, complete: bool
) -> Excerpt:
    """Lines of a file. `offset` counts from 1, or from the end if negative. `complete`: `data` is the whole file."""
    total = data.count(b"\n") + 1
    lines = total - 1 if data.endswith(b"\n") else total
    first = 1 if not offset else offset if offset > 0 else max(1, lines + 1 + offset)
    if first > max(lines, 1):
        raise BeyondEnd(f"line {first} is beyond the end: the file has {lines} lines")
    start = _line_start(data, first - 1, 0)
    end = _line_start(data, limit, start) if limit else len(data)
    stop = min(end, start + max_bytes)
    text = decoded(data[start:stop], cut_tail=stop < end)
    if max_chars is not None and max_chars > 0 and len(text) > max_chars:
        text = text[:max_chars]
        stop = start + len(text.encode())
    if stop < end:
        text = _marked(text, _way_on(first, first + data.count(b"\n", start, stop)))
    elif not complete and end == len(data):
        text = _marked(text, f"the file is too large: only its first {len(data)} bytes can be read here")
    else:
        return Excerpt(text, total, truncated=False)
    return Excerpt(text, total, truncated=True)


def _way_on(first: int, reached: int) -> str:
    if reached > first:
        return f"truncated in line {reached}; continue with offset={reached}"
    return f"truncated: line {reached} is too long to be shown whole; continue with offset={reached + 1}"


def _marked(text: str, mark: str) -> str:
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[... {mark} ...]"


def _line_start(data: bytes, lines: int, start: int) -> int:
    """The start of the line that is `lines` lines after `start`; the end of the data if there is none. Whole blocks are
    counted first, so that a file of only line breaks is not slow."""
    at = start
    while lines > 0 and at < len(data):
        here = data.count(b"\n", at, at + _BLOCK)
        if here < lines:
            lines -= here
            at += _BLOCK
            continue
        while lines > 0:
            at = data.index(b"\n", at) + 1
            lines -= 1
    return min(at, len(data))


def share(stdout: int, stderr: int, limit: int) -> tuple[int, int]:
    """(length of stdout, length of stderr) to show: stderr gets at least a quarter, and each may use unused space."""
    for_errors = min(stderr, max(limit // 4, limit - stdout))
    return min(stdout, limit - for_errors), for_errors
