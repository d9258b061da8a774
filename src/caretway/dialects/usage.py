"""What every API's usage object says beyond its own fields: what is an estimate, and what a whole run has cost.

The key `caretway` is ours: clients pass over what they do not know. A run's figures are Cursor's own, cache included in
its input; they stand on the response that ended the run and are no part of that response's figures.
"""

from ..core.events import Usage


def beside(usage: Usage) -> dict[str, object]:
    """To be added to a usage object."""
    more: dict[str, object] = {"estimated": True} if usage.estimated else {}
    run = usage.run
    if run is not None:
        told: dict[str, object] = {}
        if run.input_tokens is not None:
            told["input_tokens"] = run.input_tokens
        if run.output_tokens is not None:
            told["output_tokens"] = run.output_tokens
        if run.cache_read_tokens is not None:
            told["cache_read_tokens"] = run.cache_read_tokens
        if run.cache_write_tokens is not None:
            told["cache_write_tokens"] = run.cache_write_tokens
        if run.reasoning_tokens is not None:
            told["reasoning_tokens"] = run.reasoning_tokens
        told["steps"] = run.steps
        if not run.complete:
            told["at_least"] = True
        more["caretway"] = {"run": told}
    return more
