"""Conversations whose right course is known to the letter. Pure: a kind and a nonce give a scene.

Every prompt, argument, result and answer holds the scene's nonce, so that words of another scene show at once. What the
client's tools answer follows from the call and from how often it ran, so that a call that ran twice shows in the text.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from caretway_sim.script import ScriptStream

NONCE: Final = re.compile(r"n[0-9a-f]{12}n")

PROPERTIES: Final[dict[str, str]] = {"look": "key", "find": "key", "deploy": "key", "bash": "command"}
"""The client's tools, and the one argument that each takes."""


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    argument: str

    @property
    def arguments(self) -> dict[str, Any]:
        return {PROPERTIES[self.tool]: self.argument}

    @property
    def key(self) -> str:
        return call_key(self.tool, self.arguments)

    def script(self) -> str:
        return f"{self.tool} {json.dumps(self.arguments)}"


def call_key(tool: str, arguments: Mapping[str, Any]) -> str:
    """The same for calls that mean the same."""
    return f"{tool} {json.dumps(arguments, sort_keys=True)}"


def outcome(nonce: str, key: str, times: int) -> str:
    """What the client's tool answers when this call runs for the `times`-th time in its scene."""
    digest = sum(key.encode()) % 9973
    return f"outcome {nonce} {digest:04} run-{times}"


@dataclass(frozen=True, slots=True)
class Turn:
    """One user turn: the prompt, and all that must come of it."""

    prompt: str
    text: str
    """Of all responses of the turn together, words only."""
    thought: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    kind: str
    nonce: str
    turns: tuple[Turn, ...]

    @property
    def expected(self) -> Counter[str]:
        """How often each call is to run."""
        return Counter(call.key for turn in self.turns for call in turn.calls)


@dataclass(slots=True)
class _Writer:
    """Writes a prompt and, beside it, what must come of it."""

    nonce: str
    ran: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    last: list[str] = field(default_factory=list)

    def say(self, words: str) -> "_Writer":
        self.lines.append(f"sim: say {words}")
        self.words.append(words)
        return self

    def think(self, words: str) -> "_Writer":
        self.lines.append(f"sim: think {words}")
        self.thoughts.append(words)
        return self

    def stream(self, count: int, size: int) -> "_Writer":
        self.lines.append(f"sim: stream {count} {size}")
        step = ScriptStream(count, size)
        self.words.append("".join(step.delta(index) for index in range(count)))
        return self

    def call(self, *calls: Call) -> "_Writer":
        self.lines.append("sim: call " + " & ".join(call.script() for call in calls))
        return self._made(calls)

    def shell(self, command: str) -> "_Writer":
        """A built-in exec, which the client's own `bash` has to run."""
        self.lines.append(f"sim: exec shell {json.dumps({'command': command})}")
        return self._made((Call("bash", command),))

    def _made(self, calls: tuple[Call, ...]) -> "_Writer":
        self.calls += calls
        self.last = []
        for call in calls:
            self.ran[call.key] += 1
            self.last.append(outcome(self.nonce, call.key, self.ran[call.key]))
        return self

    def result(self) -> "_Writer":
        self.lines.append("sim: result")
        self.words += self.last
        return self

    def recall(self, turns: tuple[Turn, ...]) -> "_Writer":
        self.lines.append("sim: recall")
        results, first = (
            len(self.calls) + sum(len(turn.calls) for turn in turns),
            " ".join(turns[0].prompt.split())[:400],
        )
        plural = "s" * (len(turns) != 1)
        self.words.append(
            f"{len(turns)} earlier user turn{plural} and {results} tool result{'s' * (results != 1)}. "
            f"First user text: {first}"
        )
        return self

    def done(self) -> Turn:
        prompt = f"A scene called {self.nonce}.\n" + "\n".join(self.lines)
        turn = Turn(prompt, squash(" ".join(self.words)), squash(" ".join(self.thoughts)), tuple(self.calls))
        self.lines, self.words, self.thoughts, self.calls, self.last = [], [], [], [], []
        return turn


def squash(text: str) -> str:
    """Words alone: where the white space between two pieces goes is not what a soak is about."""
    return "".join(text.split())


def _text(w: _Writer, n: str) -> list[Turn]:
    return [w.say(f"The first words of {n} come before").say(f"the second ones, which end in {n}").done()]


def _long(w: _Writer, n: str) -> list[Turn]:
    return [w.say(f"begin {n}").stream(40, 64).say(f"end {n}").done()]


def _thinking(w: _Writer, n: str) -> list[Turn]:
    return [w.think(f"Let me think about {n} for a while").say(f"I thought about {n} and this is all").done()]


def _tool(w: _Writer, n: str) -> list[Turn]:
    w.say(f"Looking for {n}").call(Call("look", f"a {n}")).say(f"Found {n}").result()
    return [w.done()]


def _two_steps(w: _Writer, n: str) -> list[Turn]:
    """Two steps, one of them parallel: the scene of the cut sweeps."""
    w.say(f"First both {n}").call(Call("look", f"a {n}"), Call("find", f"b {n}")).result()
    w.say(f"then once more {n}").call(Call("deploy", f"c {n}")).say(f"done {n}").result()
    return [w.done()]


def _three_steps(w: _Writer, n: str) -> list[Turn]:
    for letter in "abc":
        w.call(Call("deploy", f"{letter} {n}")).result()
    return [w.say(f"three times {n}").done()]


def _twins(w: _Writer, n: str) -> list[Turn]:
    """Two calls that are the same, at the same time: they stay two."""
    w.call(Call("deploy", f"t {n}"), Call("deploy", f"t {n}")).result().say(f"both {n}")
    return [w.done()]


def _redirected(w: _Writer, n: str) -> list[Turn]:
    return [w.think(f"a shell for {n}").shell(f"echo {n}").say(f"The shell said {n}").result().done()]


def _again(w: _Writer, n: str) -> list[Turn]:
    """The same command before and after a change: it is asked for twice, and gives two results."""
    w.shell(f"cat {n}").result().call(Call("deploy", f"d {n}")).result().shell(f"cat {n}").result()
    return [w.say(f"both versions of {n}").done()]


def _continued(w: _Writer, n: str) -> list[Turn]:
    first = w.say(f"A beginning {n}").call(Call("look", f"a {n}")).result().done()
    return [first, w.say(f"A second turn {n}").recall((first,)).done()]


def _continued_call(w: _Writer, n: str) -> list[Turn]:
    first = w.say(f"Only words at first {n}").done()
    return [first, w.call(Call("look", f"x {n}"), Call("find", f"y {n}")).result().recall((first,)).done()]


KINDS: Final[dict[str, Callable[[_Writer, str], list[Turn]]]] = {
    "text": _text,
    "long text": _long,
    "thinking": _thinking,
    "one call": _tool,
    "two steps": _two_steps,
    "three steps": _three_steps,
    "twins": _twins,
    "redirected": _redirected,
    "asked again": _again,
    "continued": _continued,
    "call in turn two": _continued_call,
}


def scene(kind: str, nonce: str) -> Scene:
    return Scene(kind, nonce, tuple(KINDS[kind](_Writer(nonce), nonce)))
