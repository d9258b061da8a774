"""How long a server that keeps failing is left alone."""

from caretway.mcp.definitions import BridgeLimits, pause_before


def test_pauses_grow_to_their_limit() -> None:
    limits = BridgeLimits(first_pause=1.0, longest_pause=60.0)
    assert [pause_before(attempt, limits) for attempt in (1, 2, 3, 6, 7, 8, 10_000)] == [1, 2, 4, 32, 60, 60, 60]
