"""What of a tool's result the loop guard compares: its words, without keys that differ each time (times, ids), and of a
long one the beginning. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

MAX_COMPARED: Final = 64 * 1024
_DEPTH: Final = 16
_UNSTEADY: Final = re.compile(r"(time|duration|ms|pid|id)$", re.IGNORECASE)


def result_words(value: object) -> str:
    text = "\n".join(_words(value, _DEPTH))
    return text if len(text) <= MAX_COMPARED else f"{text[:MAX_COMPARED]}({len(text)})"


def _words(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            if not _UNSTEADY.search(str(key)):
                yield from _words(inner, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for inner in value:
            yield from _words(inner, depth - 1)
    elif value is not None:
        yield str(value)
