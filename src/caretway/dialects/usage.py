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
        run_usage: dict[str, object] = {}
        if run.input_tokens is not None:
            run_usage["input_tokens"] = run.input_tokens
        if run.output_tokens is not None:
            run_usage["output_tokens"] = run.output_tokens
        if run.cache_read_tokens is not None:
            run_usage["cache_read_tokens"] = run.cache_read_tokens
        if run.cache_write_tokens is not None:
            run_usage["cache_write_tokens"] = run.cache_write_tokens
        if run.reasoning_tokens is not None:
            run_usage["reasoning_tokens"] = run.reasoning_tokens
        run_usage["steps"] = run.steps
        if not run.complete:
            run_usage["at_least"] = True
        more["caretway"] = {"run": run_usage}
    return more
