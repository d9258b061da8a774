"""Scripts that a test prepared: which turn plays which script, also in later attempts and replays; and the requests
that reached the simulated model. Pure, bounded, thread-safe.

A turn begins with a user message that ends the history. Its first attempt takes the next script; later attempts, found
by their run or their conversation, continue the same script.
"""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Literal

from .model_input import InputMessage, InputResult, Recent
from .script import (
    FAILURES,
    Drop,
    Fail,
    Hang,
    Instructions,
    Leave,
    Loop,
    Mute,
    Recall,
    Result,
    Say,
    ScriptCall,
    ScriptStream,
    Step,
    Think,
    ToolUse,
    Wait,
)

MAX_TURNS: Final = 1_000
"""Turns that are remembered; older turns are forgotten."""


@dataclass(slots=True)
class ModelRequest:
    """One run, as the simulated model sees it."""

    model: str
    instructions: str
    messages: tuple[InputMessage, ...]
    tools: tuple[str, ...]
    results: list[str] = field(default_factory=list)
    """Results of the client's tools during this run, in order; results of earlier runs are in `messages`."""

    @property
    def prompt(self) -> str:
        """The newest user message."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def all_results(self) -> tuple[str, ...]:
        """All results, including those in the history."""
        earlier = [part.text for message in self.messages for part in message.parts if isinstance(part, InputResult)]
        return (*earlier, *self.results)


class Prepared:
    """The scripts of coming turns, and the model's requests. `unscripted`: the number of turns without a script.
    `watched`: keep requests; off by default, because prompts are long."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[Step, ...]] = deque()
        self._prepared = 0
        self._by_run: Recent[str, tuple[Step, ...]] = Recent(MAX_TURNS)
        self._by_words: Recent[tuple[str, ...], tuple[Step, ...]] = Recent(MAX_TURNS)
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
        """The script of a turn. `start`: the index of its first message. None: no script was ever prepared, so the
        prompt decides."""
        with self._lock:
            if not self._prepared:
                return None
            words = tuple(message.text for message in history[: start + 1] if message.role == "user")
            begins = start + 1 >= len(history)
            known = self._by_run.get(run) if begins else self._by_words.get(words)
            if known is not None:
                return known
            steps = self._waiting.popleft() if self._waiting else self._missing()
            self._by_run[run] = steps
            self._by_words[words] = steps
            return steps

    def _missing(self) -> tuple[Step, ...]:
        self.unscripted += 1
        return (Say(f"[no script is left: {self._prepared} prepared, turn {self._prepared + self.unscripted}]"),)


# ---- scripts

# The script of one turn: thinking, text, tool calls, faults. A value: every method returns a new script. `str(script)`
# is the script as lines of a prompt.


@dataclass(frozen=True, slots=True)
class Script:
    steps: tuple[Step, ...] = ()

    def _then(self, step: Step) -> "Script":
        return Script((*self.steps, step))

    def think(self, text: str) -> "Script":
        return self._then(Think(text))

    def say(self, text: str) -> "Script":
        return self._then(Say(text))

    def call(self, tool: str, arguments: dict[str, Any] | None = None, /, **named: Any) -> "Script":
        """Call a tool of the agent and wait for its result: `call("weather", city="Paris")`."""
        return self._then(ScriptCall((ToolUse(tool, {**(arguments or {}), **named}),)))

    def calls(self, *tools: tuple[str, dict[str, Any]]) -> "Script":
        """Call several tools at once: `calls(("weather", {"city": "Paris"}), ("clock", {}))`."""
        return self._then(ScriptCall(tuple(ToolUse(name, dict(arguments)) for name, arguments in tools)))

    def loop(self, tool: str, arguments: dict[str, Any] | None = None, /, **named: Any) -> "Script":
        """Call the same tool repeatedly, as a confused model does."""
        return self._then(Loop(ToolUse(tool, {**(arguments or {}), **named})))

    def result(self) -> "Script":
        """Say the results of the last tools."""
        return self._then(Result())

    def instructions(self) -> "Script":
        """Say the instructions that reached the model."""
        return self._then(Instructions())

    def recall(self) -> "Script":
        """Say how much of the conversation reached the model."""
        return self._then(Recall())

    def stream(self, count: int, size: int, delay_ms: float = 0) -> "Script":
        """Stream `count` pieces of text of `size` characters, `delay_ms` apart."""
        return self._then(ScriptStream(count, size, delay_ms))

    def wait(self, delay_ms: float) -> "Script":
        return self._then(Wait(delay_ms))

    def fail(self, code: str, when: Literal["here", "before", "after"] = "here") -> "Script":
        """Fail as Cursor does: `rate_limit`, `usage_limit`, `unavailable`, `overflow` ... (docs/testing.md)."""
        if code not in FAILURES:
            raise ValueError(f"there is no failure {code!r}; there are {', '.join(FAILURES)}")
        return self._then(Fail(code, when))

    def drop(self, times: int = 1) -> "Script":
        """Cut the connection to Cursor here, in this many attempts."""
        return self._then(Drop(times))

    def leave(self, times: int = 1) -> "Script":
        """End the stream without an error before the turn is over, in this many attempts."""
        return self._then(Leave(times))

    def hang(self) -> "Script":
        """Send only heartbeats."""
        return self._then(Hang())

    def mute(self) -> "Script":
        """Send nothing."""
        return self._then(Mute())

    def __str__(self) -> str:
        return "\n".join(f"sim: {_line(step)}" for step in self.steps)


def _line(step: Step) -> str:
    match step:
        case Say(text) | Think(text):
            return f"{'say' if isinstance(step, Say) else 'think'} " + text.replace("\n", "\\n")
        case ScriptCall(uses):
            return "call " + " & ".join(map(_use, uses))
        case Loop(use):
            return "loop " + _use(use)
        case ScriptStream(count, size, delay_ms):
            return f"stream {count} {size} {delay_ms:g}"
        case Wait(delay_ms):
            return f"wait {delay_ms:g}"
        case Fail(code, when):
            return f"fail {code}" + ("" if when == "here" else f" {when}")
        case Drop(times) | Leave(times):
            return f"{type(step).__name__.lower()} {times}"
        case _:
            return type(step).__name__.lower()


def _use(use: ToolUse) -> str:
    return f"{use.name} {json.dumps(use.args)}"
