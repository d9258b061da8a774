"""The loop guard for tools that run in the gateway during one turn: counts equal calls; a call that may change
something starts the count again.

In: a key for each call, and whether the call may change something. Out: how often the call was made, and how that
compares with the limit. Results are not looked at: a new call that may change something starts the counting again,
because the same question may then have another answer. All calls are counted generously.
"""

from collections import Counter

from .rule import RepeatLevel, repeat_level


class CallCounter:
    __slots__ = ("_calls", "_max_repeat")

    def __init__(self, max_repeat: int) -> None:
        self._max_repeat = max_repeat
        self._calls: Counter[str] = Counter()

    def count(self, key: str, *, changes: bool) -> tuple[RepeatLevel, int]:
        """Count a call; the number includes this one."""
        if changes and key not in self._calls:
            self._calls.clear()
        self._calls[key] += 1
        calls = self._calls[key]
        return repeat_level(calls - 1, self._max_repeat, generous=True), calls
