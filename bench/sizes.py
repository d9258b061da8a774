"""How much is measured: everything that `--quick` makes smaller, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 7
    """Interleaved rounds of the paced and latency measures; each target comes once in each, in rotated order."""
    paced_streams: int = 20
    paced_deltas: int = 100
    paced_gap_us: int = 25_000
    """20 x 40 deltas a second: what token streams look like."""
    requests: tuple[tuple[int, int], ...] = ((1, 60), (8, 160), (16, 320), (64, 640))
    """(concurrent, requests in a round)."""
    slow_requests: tuple[tuple[int, int], ...] = ((1, 10), (8, 16), (16, 32), (64, 64))
    """The same for a target that would need minutes."""
    answer_deltas: int = 5
    burst_rounds: int = 3
    burst_deltas: int = 20_000
    burst_many: tuple[int, int] = (64, 500)
    slow_burst_deltas: int = 500
    held: tuple[int, int] = (250, 1250)
    """Two counts of open streams, each on a fresh process."""
    parked: int = 100
    starts: int = 5
    histories: tuple[int, ...] = (10, 100, 1000, 2000)
    tools: tuple[int, ...] = (1, 10, 100, 300)
    """Cursor takes 330 at most, and so does the gateway."""
    growth_requests: int = 10
    growth_held: int = 10
    resumed: int = 200
    """Steps that are resumed: what resuming costs is a small difference of two large numbers."""
    cli_requests: int = 40
    steps: int = 20
    """Of each tool loop on a slow route."""
    mcp_calls: int = 200
    """In one turn."""
    text_chars: tuple[int, ...] = (60_000, 250_000, 1_000_000)


FULL = Sizes()
QUICK = Sizes(
    rounds=2,
    paced_deltas=60,
    requests=((1, 30), (8, 48), (16, 96), (64, 192)),
    slow_requests=((1, 4), (8, 8), (16, 16), (64, 64)),
    burst_rounds=1,
    burst_deltas=10_000,
    burst_many=(64, 200),
    slow_burst_deltas=200,
    held=(100, 600),
    parked=100,
    starts=3,
    histories=(10, 100, 1000),
    tools=(1, 10, 100, 300),
    growth_requests=5,
    growth_held=5,
    resumed=20,
    cli_requests=15,
    steps=10,
    mcp_calls=50,
    text_chars=(40_000, 160_000, 640_000),
)
