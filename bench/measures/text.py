"""The text protocol: CPU per character of an answer that is read for calls, and whether that grows with the answer,
even for hostile text."""

import time
from collections.abc import Sequence
from typing import Final

from caretway.backends.text_protocol.parser import DEFAULT_TEXT_LIMITS, Parser
from caretway.backends.text_protocol.turn import TextReader
from caretway.core.events import Event, TextDelta, TurnEnded

from ..ledger import Ledger, slope
from ..sizes import Sizes
from ..targets import GATEWAY, House

TRIGGER: Final = "<<CALL_abcd1234>>"
OPENING: Final = f'{TRIGGER}<invoke name="add">'
DELTA: Final = 20
PIECE: Final = 4096
WHOLE: Final = 2**30
REPEATS: Final = 3
PROSE: Final = ("", "the quick brown fox ")
HOSTILE: Final = {
    "<": ("", "<"),
    "a beginning of the trigger": ("", "<<CALL_"),
    "triggers": ("", TRIGGER),
    "openings": ("", OPENING),
    "closings inside a string": (OPENING + '{"x": "', "</invoke>"),
    "quotes inside a call": (OPENING, '"'),
}


async def measure(house: House, sizes: Sizes, ledger: Ledger) -> None:
    for _ in range(sizes.rounds):
        for piece in (DELTA, PIECE):
            ledger.add(
                f"text: CPU ns per character, words, {piece} at a time", GATEWAY, _ns(PROSE, sizes, piece)[-1][1]
            )
        slopes = []
        for name, text in HOSTILE.items():
            by_size = {piece: _ns(text, sizes, piece) for piece in (PIECE, WHOLE)}
            ledger.add(f"text: CPU ns per character, {name}", GATEWAY, by_size[PIECE][-1][1])
            slopes += [1 + slope(found) for found in by_size.values()]
        ledger.add("text: steepest log-log slope of CPU over characters", GATEWAY, max(slopes))


def _ns(text: tuple[str, str], sizes: Sizes, piece: int) -> list[tuple[float, float]]:
    """(characters, CPU ns for each) of texts that grow; the least of several readings."""
    return [(size, min(cpu_s(text, size, piece) for _ in range(REPEATS)) / size * 1e9) for size in sizes.text_chars]


def cpu_s(kind: tuple[str, str], size: int, piece: int) -> float:
    opening, pattern = kind
    text = opening + pattern * (size // len(pattern))
    batches: Sequence[list[Event]] = [[TextDelta(text[at : at + piece])] for at in range(0, len(text), piece)]
    parser = Parser(TRIGGER, frozenset({"add"}), keep_bad_calls=True)
    reader = TextReader(parser, DEFAULT_TEXT_LIMITS)
    began = time.process_time()
    for batch in batches:
        reader.feed(batch)
    reader.feed([TurnEnded()])
    return time.process_time() - began
