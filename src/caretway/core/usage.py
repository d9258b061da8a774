"""Adding up usage. Pure.

A response that took several model calls or several runs (a bridge's tool loop, a correction) has read the context of
its last one and said what all of them said; what its runs cost is a sum.
"""

from .events import RunUsage, Usage


def together(earlier: Usage | None, latest: Usage) -> Usage:
    """Usage of one response out of the usage of two parts of it, in their order."""
    if earlier is None:
        return latest
    return Usage(
        latest.input_tokens,
        _sum(earlier.output_tokens, latest.output_tokens),
        latest.cache_read_tokens,
        latest.cache_write_tokens,
        _both(earlier.reasoning_tokens, latest.reasoning_tokens),
        estimated=earlier.estimated or latest.estimated,
        run=all_runs(earlier.run, latest.run),
    )


def all_runs(one: RunUsage | None, other: RunUsage | None) -> RunUsage | None:
    """What several runs cost together. What only one of them said is at least known of that one."""
    if one is None or other is None:
        return one or other
    return RunUsage(
        _sum(one.input_tokens, other.input_tokens),
        _sum(one.output_tokens, other.output_tokens),
        _sum(one.cache_read_tokens, other.cache_read_tokens),
        _sum(one.cache_write_tokens, other.cache_write_tokens),
        _sum(one.reasoning_tokens, other.reasoning_tokens),
        steps=one.steps + other.steps,
        complete=one.complete and other.complete,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _both(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
