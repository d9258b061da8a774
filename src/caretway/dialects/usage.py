"""What every API's usage object says beyond its own fields: what is an estimate, and what a whole run has cost.

The key `caretway` is ours: clients pass over what they do not know. A run's figures are Cursor's own, cache included in
its input; they stand on the response that ended the run and are no part of that response's figures.
"""

from ..core.events import RunUsage, Usage


def beside(usage: Usage) -> dict[str, object]:
    """To be added to a usage object."""
    more: dict[str, object] = {"estimated": True} if usage.estimated else {}
    if usage.run is not None:
        more["caretway"] = {"run": _run(usage.run)}
    return more


def _run(run: RunUsage) -> dict[str, object]:
    counts = {
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "cache_read_tokens": run.cache_read_tokens,
        "cache_write_tokens": run.cache_write_tokens,
        "reasoning_tokens": run.reasoning_tokens,
    }
    told: dict[str, object] = {name: count for name, count in counts.items() if count is not None}
    told["steps"] = run.steps
    if not run.complete:
        told["at_least"] = True
    return told
