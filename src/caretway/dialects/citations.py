"""Finds which pages of a web search an answer cites: those whose address stands in its text. Pure."""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from ..core.events import WebSource

_GOES_ON = r"(?![\w/%&=+~#?-]|[.,:;!]\w)"
"""An address that goes on after the match is another page."""


class Citation(Struct, frozen=True, gc=False):
    start: int
    end: int
    source: WebSource


def cited(text: str, sources: Iterable[WebSource]) -> list[Citation]:
    """The first mention of each page, in the order of the text."""
    return sorted(_mentions(text, sources), key=lambda one: one.start)


def _mentions(text: str, sources: Iterable[WebSource]) -> Iterator[Citation]:
    for url, source in {source.url: source for source in sources}.items():
        if url in text and (found := re.search(re.escape(url) + _GOES_ON, text)):
            yield Citation(found.start(), found.end(), source)
