"""Arguments of calls that are being written and not shown yet, because the call is not known or belongs to a later
response. Bounded in number and characters. Pure."""

from collections.abc import Sequence
from typing import Final

from .arguments import grown

MAX_DRAFTS: Final = 512
MAX_DRAFT_CHARS: Final = 4 * 1024 * 1024
"""Of all of them."""
MAX_ID_CHARS: Final = 1024


class Drafts:
    __slots__ = ("_chars", "_texts")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._chars = 0

    def knows(self, ids: Sequence[str]) -> bool:
        return any(one in self._texts for one in ids)

    def begin(self, ids: Sequence[str]) -> None:
        if len(self._texts) < MAX_DRAFTS and len(ids[0]) <= MAX_ID_CHARS:
            self._texts[ids[0]] = ""

    def grow(self, ids: Sequence[str], piece: str) -> bool:
        """False: it is too much."""
        for one in ids:
            if one in self._texts:
                before = self._texts[one]
                self._texts[one] = draft = grown(before, piece)
                self._chars += len(draft) - len(before)
        return self._chars <= MAX_DRAFT_CHARS

    def text(self, call_id: str) -> str:
        return self._texts.get(call_id, "")

    def take(self, ids: Sequence[str]) -> str:
        draft = next((self._texts.pop(one) for one in ids if one in self._texts), "")
        self._chars -= len(draft)
        return draft

    def clear(self) -> None:
        self._texts.clear()
        self._chars = 0
