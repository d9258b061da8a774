"""How long the text protocol's parser takes for hostile text of growing size: time must double when the size doubles.

Run: `python -m bench.text_parser`. Prints microseconds per kilobyte, which must stay level along each row.
"""

import sys
import time
from typing import Final

from caretway.text_protocol.parser import Parser

TRIGGER: Final = "<<CALL_abcd1234>>"
OPENING: Final = f'{TRIGGER}<invoke name="add">'
SIZES: Final = (125_000, 250_000, 500_000, 1_000_000, 2_000_000)
CHUNK: Final = 4096
REPEATS: Final = 3
PATTERNS: Final = {
    "<": ("", "<"),
    "a beginning of the trigger": ("", "<<CALL_"),
    "triggers": ("", TRIGGER),
    "openings": ("", OPENING),
    "closings inside a string": (OPENING + '{"x": "', "</invoke>"),
    "quotes inside a call": (OPENING, '"'),
    "words": ("", "the quick brown fox "),
}


def seconds(opening: str, pattern: str, size: int, chunk: int) -> float:
    text = opening + pattern * (size // len(pattern))
    chunks = [text[at : at + chunk] for at in range(0, len(text), chunk)]
    best = float("inf")
    for _ in range(REPEATS):
        parser = Parser(TRIGGER, frozenset({"add"}))
        began = time.perf_counter()
        for piece in chunks:
            parser.feed(piece)
        parser.finish()
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    head = "".join(f"{size // 1000:>9} kB" for size in SIZES)
    sys.stdout.write(f"{'us per kB, in pieces of':<38}{head}\n")
    for name, (opening, pattern) in PATTERNS.items():
        for chunk in (CHUNK, max(SIZES) * 2):
            row = "".join(f"{seconds(opening, pattern, size, chunk) / size * 1e9:>12.2f}" for size in SIZES)
            sys.stdout.write(f"{name:<28}{'4 kB' if chunk == CHUNK else 'all':>10}{row}\n")


if __name__ == "__main__":
    main()
