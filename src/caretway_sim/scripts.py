"""Builds what the simulated model does in one turn: think, say, call tools, and faults. A value: every word gives a new
script. `str(script)` is the same script as lines of a prompt.

One script is one turn: from a user's message to the end of the answer, tool calls and their results included.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from .script import (
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
from .script_words import FAILURES


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
        """Call the same tool again and again, as a confused model does."""
        return self._then(Loop(ToolUse(tool, {**(arguments or {}), **named})))

    def result(self) -> "Script":
        """Say what the last tools gave."""
        return self._then(Result())

    def instructions(self) -> "Script":
        """Say the instructions that reached the model."""
        return self._then(Instructions())

    def recall(self) -> "Script":
        """Say how much of the conversation reached the model."""
        return self._then(Recall())

    def stream(self, count: int, size: int, delay_ms: float = 0) -> "Script":
        """So many pieces of text of that size, so far apart."""
        return self._then(ScriptStream(count, size, delay_ms))

    def wait(self, delay_ms: float) -> "Script":
        return self._then(Wait(delay_ms))

    def fail(self, code: str, when: Literal["here", "before", "after"] = "here") -> "Script":
        """Cursor refuses: `rate_limit`, `usage_limit`, `unavailable`, `overflow` ... (docs/testing.md)."""
        if code not in FAILURES:
            raise ValueError(f"there is no failure {code!r}; there are {', '.join(FAILURES)}")
        return self._then(Fail(code, when))

    def drop(self, times: int = 1) -> "Script":
        """Cut the connection to Cursor here, so often."""
        return self._then(Drop(times))

    def leave(self, times: int = 1) -> "Script":
        """End the stream properly, but before the turn is over, so often."""
        return self._then(Leave(times))

    def hang(self) -> "Script":
        """Signs of life, and no progress."""
        return self._then(Hang())

    def mute(self) -> "Script":
        """Nothing at all."""
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
