"""The words that the load generator and the stand-ins share: what a prompt asks for, and the text that must come back.

A prompt holds one instruction, whatever stands around it: `bench:COUNT:MICROSECONDS:SIZE` asks for COUNT pieces of
SIZE characters that far apart (0: as fast as they go), `bench:hold` for one piece and then silence, `bench:park` for
one tool call and, after its result, what the result asks for (`bench:park:NAME;`: of another tool than the client's).
No two pieces are alike: no guard against repetition sees a loop.
"""

import re
from dataclasses import dataclass
from typing import Final

TOOL: Final = "bench_tool"
MODEL: Final = "gpt-4o-mini"
"""A name every peer knows: unknown ones cost LiteLLM a detour."""
FIRST_PIECE: Final = b"t00000"
"""How the first piece begins, whatever its size; nothing else in an answer looks like it."""
MIN_SIZE: Final = 8

_COUNTED: Final = re.compile(rb"bench:(\d+):(\d+):(\d+)")
_PARKED: Final = re.compile(rb"bench:park(?::(\w+);)?")


@dataclass(frozen=True, slots=True)
class Order:
    """What one answer is made of."""

    count: int = 1
    gap_us: int = 0
    size: int = MIN_SIZE
    hold: bool = False
    park: bool = False
    tool: str = TOOL
    """The one that is called."""

    def prompt(self) -> str:
        if self.hold:
            return "bench:hold"
        if self.park:
            return "bench:park" if self.tool == TOOL else f"bench:park:{self.tool};"
        return f"bench:{self.count}:{self.gap_us}:{self.size}"

    def text(self) -> str:
        return "".join(piece(index, self.size) for index in range(self.count))


HOLD: Final = Order(hold=True)
PARK: Final = Order(park=True)


def read_order(data: bytes) -> Order:
    """The order inside a request, wherever it stands; one piece when there is none."""
    if b"bench:hold" in data:
        return HOLD
    if parked := _PARKED.search(data):
        return Order(park=True, tool=parked[1].decode()) if parked[1] else PARK
    found = _COUNTED.search(data)
    return Order(int(found[1]), int(found[2]), int(found[3])) if found else Order()


def piece(index: int, size: int) -> str:
    return f"t{index:0{size - 2}d} "
