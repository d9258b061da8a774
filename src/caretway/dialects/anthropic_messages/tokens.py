"""Anthropic's usage object: the estimate in `message_start`, cached tokens apart from `input_tokens`; estimates are
marked.
"""

from ...core.estimate import CHARS_PER_TOKEN, estimate_input
from ...core.events import Usage
from ...core.request import TurnRequest
from ..usage import beside


def estimate_text(characters: int) -> int:
    return -(-characters // CHARS_PER_TOKEN)


def first_usage(request: TurnRequest, context: int | None) -> dict[str, object]:
    """For `message_start`, which needs both totals before they are known: the estimated input (`context`, else the size
    of the request), and the shortest possible answer."""
    return {"input_tokens": max(1, estimate_input(request) if context is None else context), "output_tokens": 1}


def usage_object(
    usage: Usage | None, request: TurnRequest, characters: int, context: int | None = None
) -> dict[str, object]:
    """Usage under Anthropic's names. Its clients need the two totals, so a figure that was not reported is estimated
    from the request and from the length of the answer, and marked. Unlike ours, `input_tokens` excludes the cache.

    It is never 0: Claude Code takes a 0 for missing, and adds the estimate of `message_start` to the cached tokens. If
    all input is cached, one of its tokens is shown as input."""
    counted = usage or Usage()
    read, written = counted.cached, counted.cache_write_tokens
    if counted.input_tokens is not None:
        whole = counted.input_tokens
    else:
        whole = estimate_input(request) if context is None else context
    fresh = whole - (read or 0) - (written or 0)
    if fresh <= 0:
        fresh = 1
        if written:
            written -= 1
        elif read:
            read -= 1
    shown: dict[str, object] = {
        "input_tokens": fresh,
        "output_tokens": estimate_text(characters) if counted.output_tokens is None else counted.output_tokens,
    }
    if written is not None:
        shown["cache_creation_input_tokens"] = written
    if read is not None:
        shown["cache_read_input_tokens"] = read
    if counted.reasoning_tokens is not None:
        shown["output_tokens_details"] = {"thinking_tokens": counted.reasoning_tokens}
    if counted.input_tokens is None or counted.output_tokens is None:
        shown["estimated"] = True
    return shown | beside(counted)
