"""Scripts that a test prepared: which turn plays which, also when the turn is tried again or replayed; and what reached
the simulated model, for the test to look at. Pure, bounded, usable from other threads.

A turn begins with a user's message that nothing follows yet. The first attempt at it takes the next script. Every later
attempt, by its run or by the conversation that it brings along, goes on with the same one.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, TypeVar

from .model_input import InputMessage, InputResult
from .script import Say, Step

Key = TypeVar("Key")

MAX_TURNS: Final = 1_000
"""Older ones are forgotten."""


@dataclass(slots=True)
class ModelRequest:
    """One run, as the simulated model saw it."""

    model: str
    instructions: str
    messages: tuple[InputMessage, ...]
    tools: tuple[str, ...]
    results: list[str] = field(default_factory=list)
    """What the client's tools gave while this run went on, in order; an earlier run's are in `messages`."""

    @property
    def prompt(self) -> str:
        """The user's newest words."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def all_results(self) -> tuple[str, ...]:
        """Also those that came back with the history."""
        told = [part.text for message in self.messages for part in message.parts if isinstance(part, InputResult)]
        return (*told, *self.results)


class Prepared:
    """`unscripted` counts the turns for which no script was left. `watched`: requests are kept; prompts are long, so a
    simulator that nobody asks about them keeps none."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[Step, ...]] = deque()
        self._prepared = 0
        self._by_run: OrderedDict[str, tuple[Step, ...]] = OrderedDict()
        self._by_words: OrderedDict[tuple[str, ...], tuple[Step, ...]] = OrderedDict()
        self._requests: deque[ModelRequest] = deque(maxlen=MAX_TURNS)
        self.unscripted = 0
        self.watched = False

    def add(self, steps: Sequence[Step]) -> None:
        with self._lock:
            self._waiting.append(tuple(steps))
            self._prepared += 1

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def requests(self) -> list[ModelRequest]:
        return list(self._requests)

    def note(self, request: ModelRequest) -> ModelRequest:
        if self.watched:
            self._requests.append(request)
        return request

    def steps_for(self, run: str, history: Sequence[InputMessage], start: int) -> tuple[Step, ...] | None:
        """`start`: the message with which the turn began. None: no script was ever prepared, so the prompt decides."""
        with self._lock:
            if not self._prepared:
                return None
            words = tuple(message.text for message in history[: start + 1] if message.role == "user")
            begins = start + 1 >= len(history)
            known = self._by_run.get(run) if begins else self._by_words.get(words)
            if known is not None:
                return known
            steps = self._waiting.popleft() if self._waiting else self._missing()
            _keep(self._by_run, run, steps)
            _keep(self._by_words, words, steps)
            return steps

    def _missing(self) -> tuple[Step, ...]:
        self.unscripted += 1
        return (Say(f"[no script is left: {self._prepared} prepared, turn {self._prepared + self.unscripted}]"),)


def _keep(kept: OrderedDict[Key, tuple[Step, ...]], key: Key, steps: tuple[Step, ...]) -> None:
    kept[key] = steps
    kept.move_to_end(key)
    while len(kept) > MAX_TURNS:
        kept.popitem(last=False)
