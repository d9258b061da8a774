"""Adds up usage when one response took several model calls or runs (a correction, a bridged tool): the last input, the
sum of the output. Pure.

When a response took several model calls or runs (a bridge's tool loop, a correction), its input is the context of the
last one, its output is the sum, and the cost of its runs is a sum, too.
"""

from typing import TypeVar

from .events import RunUsage, Usage

Number = TypeVar("Number", int, float)


def together(earlier: Usage | None, latest: Usage) -> Usage:
    """The usage of one response from the usage of two parts of it, in order."""
    if earlier is None:
        return latest
    return Usage(
        latest.input_tokens,
        _sum(earlier.output_tokens, latest.output_tokens),
        latest.cache_read_tokens,
        latest.cache_write_tokens,
        _both(earlier.reasoning_tokens, latest.reasoning_tokens),
        estimated=earlier.estimated or latest.estimated,
        shared_tokens=latest.shared_tokens,
        run=all_runs(earlier.run, latest.run),
    )


def all_runs(one: RunUsage | None, other: RunUsage | None) -> RunUsage | None:
    """The sum of several runs. A figure that only one of them has is kept."""
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
        cents=_sum(one.cents, other.cents),
        charged_cents=_sum(one.charged_cents, other.charged_cents),
    )


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return other if one is None else one if other is None else one + other


def _both(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
