"""What is added to every API's usage object: `estimated`, and under `caretway` the total of the whole run.

The key `caretway` is ours; clients ignore keys that they do not know. A run's figures are Cursor's own, with the cache
included in its input. They are on the response that ended the run, but are not part of that response's figures.
"""

from ..core.events import Usage


def beside(usage: Usage) -> dict[str, object]:
    """Fields to add to a usage object."""
    guessed = usage.estimated or (usage.cache_read_tokens is None and usage.shared_tokens is not None)
    more: dict[str, object] = {"estimated": True} if guessed else {}
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
        if run.cents is not None:
            run_usage["cents"] = run.cents
        if run.charged_cents is not None:
            run_usage["charged_cents"] = run.charged_cents
        more["caretway"] = {"run": run_usage}
    return more
