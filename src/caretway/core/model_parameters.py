"""Names and values of model parameters as makers spell them: which one is an effort, `200k` or `1m` as a context
window, a model with all its parameters as one id. Pure.
"""

from functools import lru_cache
from typing import Final

EFFORT_IDS: Final = ("effort", "reasoning", "reasoning_effort")
"""Parameters that are a rung of effort, whatever a model's maker calls it."""
THOUGHT_IDS: Final = frozenset({"thinking", *EFFORT_IDS})
"""Parameters that say how much a model thinks, or whether."""


@lru_cache(maxsize=256)
def spelled(model: str, parameters: tuple[tuple[str, str], ...], max_mode: bool) -> str:
    """A model and all its parameters as one id; also where they are the usual ones, which may change."""
    parts = [f"{key}={value}" for key, value in parameters]
    if max_mode:
        parts.append("max=true")
    return f"{model}@{','.join(parts)}" if parts else model


def window(value: str) -> int | None:
    """`200k` -> 200000; None when it is no window."""
    number, unit = value[:-1], value[-1:].lower()
    if not number.isascii() or not number.isdigit() or len(number) > 6 or unit not in ("k", "m"):
        return None
    return int(number) * (1000 if unit == "k" else 1_000_000)
