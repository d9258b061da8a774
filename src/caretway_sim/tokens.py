"""Simulated token estimates (four bytes each) and the prefix cache: which pieces of a prompt are cached, and the hidden
preamble of 12,000 tokens.

A prompt is a list of pieces (Cursor's own preamble, the conversation, system, tools, one per message). The pieces that
open an earlier prompt in the same order are cached, everything from the first difference on is not. No clock: entries
leave only when the cache is full.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONTEXT_TOKENS: Final = 200_000
IMAGE_TOKENS: Final = 800
PREAMBLE_TOKENS: Final = 12_000
"""Instructions and built-in tools that Cursor puts before every prompt and no client ever sees: 10,000 to 15,000."""
MAX_PREFIXES: Final = 50_000
_BYTES_PER_TOKEN: Final = 4


def estimate(text: str) -> int:
    """About four bytes a token; something said is never free."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Charge:
    cached: int
    uncached: int


def preamble(model: str) -> Piece:
    """The same in every conversation with a model, so it opens the prompt: the second run finds it cached."""
    return Piece(f"preamble\x00{model}", PREAMBLE_TOKENS)


class PrefixCache:
    def __init__(self, max_prefixes: int = MAX_PREFIXES) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._max = max_prefixes

    def charge(self, prompt: Sequence[Piece]) -> Charge:
        """What this prompt costs now; afterwards all its prefixes are cached."""
        cached = uncached = 0
        rolling = hashlib.sha256()
        warm = True
        for piece in prompt:
            data = piece.text.encode("utf-8", "surrogatepass")
            rolling.update(len(data).to_bytes(8, "big") + data)
            key = rolling.digest()
            warm = warm and key in self._seen
            if warm:
                cached += piece.tokens
            else:
                uncached += piece.tokens
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > self._max:
            self._seen.popitem(last=False)
        return Charge(cached, uncached)
