"""Prompts and answers, kept in memory only while the owner has enabled it: keeping until it is switched off, recording
for a bounded time. Content is bounded and is deleted with the conversation, the switch and the process. Also converts a
recorded conversation to a script for the simulator.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from msgspec import Struct, field

from ..core.fold import Reply
from ..core.request import Message, Reasoning, Text, ToolCall, ToolResult, TurnRequest, last_answer

MAX_CONVERSATIONS: Final = 100
MAX_STEPS: Final = 500
MAX_CHARS: Final = 64 * 1024
"""The limit for the prompt of one step, and for its answer."""
MAX_OPENING: Final = 160
MAX_SCRIPT_CHARS: Final = 4 * MAX_CHARS
"""The approximate limit for one step as a script."""
MAX_ALL_CHARS: Final = 16 * 2**20
MAX_RECORD_S: Final = 3600.0
_CUT: Final = " ... (cut)"
_FAILURES: Final = {
    "signed_out": "unauthenticated",
    "quota": "usage_limit",
    "rate_limited": "rate_limit",
    "context_too_long": "overflow",
    "model_unknown": "bad_model",
    "upstream_deprecated": "deprecated",
    "upstream_down": "unavailable",
}
"""Kinds of errors -> the simulator's names; other kinds are `internal`."""


class KeptStep(Struct, frozen=True):
    at: float
    said: str
    answered: str
    begins: bool
    """The step answers a user message, not tool results."""
    script: str
    """The model's actions as lines of the simulator's script."""

    @property
    def chars(self) -> int:
        return len(self.said) + len(self.answered) + len(self.script)


class _Kept(Struct):
    model: str
    recorded: bool = False
    steps: list[KeptStep] = field(default_factory=list)


class KeptContent:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._chars = 0
        self._keep = False
        self._until = 0.0

    # ---- the switches

    @property
    def keep(self) -> bool:
        return self._keep

    @keep.setter
    def keep(self, keep: bool) -> None:
        """Switch the keeping on or off. Switching off deletes conversations that were not recorded."""
        self._keep = keep
        if not keep:
            for name in [name for name, kept in self._kept.items() if not kept.recorded]:
                self.forget(name)

    @property
    def until(self) -> float | None:
        """When recording ends; None while it is off."""
        return self._until if self._clock() < self._until else None

    def record(self, seconds: float) -> None:
        self._until = self._clock() + min(max(0.0, seconds), MAX_RECORD_S)

    def recording(self) -> dict[str, object] | None:
        """The state of recording; None while it is off."""
        until = self.until
        return None if until is None else {"until": until, "conversations": len(self.recorded())}

    # ---- what is kept

    def hear(self, conversation: str, request: TurnRequest, reply: Reply, at: float) -> None:
        if not self._keep and self._clock() >= self._until:
            return
        kept = self._kept.pop(conversation, None) or _Kept(request.model)
        self._kept[conversation] = kept  # moves the newest to the end
        kept.recorded = kept.recorded or self.until is not None
        step = _step(request, reply, at)
        kept.steps.append(step)
        self._chars += step.chars
        while len(self._kept) > MAX_CONVERSATIONS or (self._chars > MAX_ALL_CHARS and len(self._kept) > 1):
            self.forget(next(iter(self._kept)))
        while len(kept.steps) > MAX_STEPS or (self._chars > MAX_ALL_CHARS and len(kept.steps) > 1):
            self._chars -= kept.steps.pop(0).chars

    def forget(self, conversation: str) -> int:
        """Deletes a conversation's content and returns the number of its steps."""
        kept = self._kept.pop(conversation, None)
        if kept is None:
            return 0
        self._chars -= sum(step.chars for step in kept.steps)
        return len(kept.steps)

    def __contains__(self, conversation: str) -> bool:
        return conversation in self._kept

    def opening(self, conversation: str) -> str:
        """The first words of the conversation; empty if it is not kept."""
        kept = self._kept.get(conversation)
        return " ".join(kept.steps[0].said[:MAX_OPENING].split()) if kept is not None else ""

    def steps(self, conversation: str) -> list[dict[str, object]] | None:
        kept = self._kept.get(conversation)
        if kept is None:
            return None
        return [{"at": step.at, "said": step.said, "answered": step.answered} for step in kept.steps]

    def recorded(self) -> list[dict[str, object]]:
        return [
            {"id": name, "at": kept.steps[-1].at, "steps": len(kept.steps), "model": kept.model}
            for name, kept in reversed(self._kept.items())
            if kept.recorded
        ]

    def script(self, conversation: str) -> Callable[[], str] | None:
        """A slow function that writes the script as of now; None if the conversation was not recorded."""
        kept = self._kept.get(conversation)
        if kept is None or not kept.recorded:
            return None
        return partial(_script, conversation, kept.model, tuple(kept.steps))


def _script(conversation: str, model: str, steps: Sequence[KeptStep]) -> str:
    """The script of a conversation, with a block for each user message."""
    blocks = [
        f"# Conversation {conversation} with {model}, recorded by Caretway.",
        "# Send each block as a message of the user: `caretway serve --backend simulator` then answers the same.",
    ]
    for step in steps:
        if step.begins:
            blocks += ["", "\n".join([f"# {line}" for line in step.said.splitlines()])]
        if step.script:
            blocks.append(step.script)
    return "\n".join(blocks) + "\n"


def _step(request: TurnRequest, reply: Reply, at: float) -> KeptStep:
    talk = request.talk
    tail = talk[last_answer(talk) :]
    begins = not any(isinstance(part, ToolResult) for message in tail for part in message.parts)
    calls = (f"{call.name} {call.arguments}" for call in reply.calls)
    ended = [f"({reply.error.message})"] if reply.error is not None else []
    answered = _joined(chain([reply.text], calls, ended))
    return KeptStep(at, _joined(_words(tail)), answered, begins, "\n".join(_lines(reply)))


def _words(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield from (part.text for part in message.parts if isinstance(part, Text))
        results = (part for part in message.parts if isinstance(part, ToolResult))
        yield from (part.text for result in results for part in result.content if isinstance(part, Text))


def _joined(texts: Iterable[str]) -> str:
    """Joins texts, reading no more than is kept."""
    taken: list[str] = []
    room = MAX_CHARS + 2
    for text in filter(None, texts):
        taken.append(text[:room])
        room -= len(taken[-1]) + 1
        if room <= 0:
            break
    return _short("\n".join(taken))


def _lines(reply: Reply) -> list[str]:
    lines: list[str] = []
    calls: list[str] = []
    chars = 0
    for part in reply.parts:
        if chars > MAX_SCRIPT_CHARS:
            lines.append("# Here it was cut: the step was too long to be kept whole.")
            break
        match part:
            case Text(text=text) if text:
                lines.append(f"sim: say {_escaped(text)}")
                chars += len(lines[-1])
            case Reasoning(text=text) if text:
                lines.append(f"sim: think {_escaped(text)}")
                chars += len(lines[-1])
            case ToolCall(name=name, arguments=arguments) if len(arguments) > MAX_CHARS:
                lines.append(f"# The arguments of {name} were too long to be kept.")
                calls.append(f"{name} {{}}")
                chars += len(lines[-1]) + len(calls[-1])
            case ToolCall(name=name, arguments=arguments):
                calls.append(f"{name} {_compact(arguments)}")
                chars += len(calls[-1])
            case _:
                pass
    if calls:
        lines.append(f"sim: call {' & '.join(calls)}")
    if reply.error is not None:
        lines.append(f"sim: fail {_FAILURES.get(reply.error.kind.value, 'internal')}")
    return lines


def _escaped(text: str) -> str:
    return _short(text).replace("\r", "").replace("\n", "\\n")


def _compact(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return "{}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + _CUT
