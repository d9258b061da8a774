"""How much there is in a JSON text, found out before it is decoded. Pure, at the speed of `bytes.count`.

A decoder makes an object of every value, in one step that nobody can interrupt; ten million empty lists are thirty
seconds. These bounds are too high where a text holds brackets and commas inside its strings, and never too low.
"""

from typing import Final

MAX_VALUES: Final = 50_000
"""In a text that is decoded within a turn: the arguments of a call, an answer that must be JSON."""
_LEAST: Final = 2
"""Characters that a value takes with what stands between it and the next one."""


def crowded(text: str | bytes, limit: int = MAX_VALUES) -> bool:
    """True when there may be more values than that."""
    if len(text) < _LEAST * limit:
        return False
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{") >= limit
    return text.count(b",") + text.count(b"[") + text.count(b"{") >= limit
