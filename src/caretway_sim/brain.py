"""The simulated model's plan: which steps of a `sim:` script remain, given the history; loops, `recall`. Pure and
deterministic.

The script is the last user message with `sim:` lines or plain instructions (`plain_words`). A run that starts with a
half-finished script continues it. A step that leaves no trace (wait, drop, thinking that the client dropped) counts as
done if a later step left a trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from . import default_reply as plain
from . import plain_words
from .model_input import InputCall, InputMessage, InputResult, InputText, Thought, Tool, find
from .script import Exec, Loop, Query, Recall, Result, Say, ScriptCall, ScriptStream, Step, Think, has_script, parse

LOOP_LIMIT: Final = 50
PARTIAL_ANSWER: Final = "A partial answer before the failure."
MAX_RECORDED_CHARS: Final = 1024 * 1024
"""Characters of a longer answer that the conversation's state keeps."""
_RECALL_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...]
    at: int = 0
    """The index of the message with the script."""
    first: int = 0
    """The index of `steps[0]` in the whole script, so that a step has the same index in every attempt."""
    results: tuple[str, ...] = ()
    """Results of the last tool calls."""
    said: bool = False
    """The answer already has text, which the next text continues."""
    looped: int = 0
    """How many calls an unfinished `loop` has made."""


def plan(
    history: Sequence[InputMessage],
    tools: Sequence[Tool],
    *,
    thinks: bool = False,
    prepared: tuple[Step, ...] | None = None,
) -> Plan:
    """The steps that the model still has to take. `prepared`: the script of this turn, which replaces the script of its
    prompt."""
    if prepared is not None:
        return _resume(prepared, history, turn_start(history), tools)
    at = next((i for i in reversed(range(len(history))) if _is_script(history[i])), None)
    if at is not None:
        todo = _follow(history, at, tools, thinks=thinks)
        if todo.steps or not _asks_anew(history[at + 1 :]):
            return todo
    last = next((i for i in reversed(range(len(history))) if history[i].role == "user"), None)
    if last is None:
        return Plan(plain.answer(history, tools, thinks=thinks))
    return _resume(plain.answer(history[: last + 1], tools, thinks=thinks), history, last, tools)


def _follow(history: Sequence[InputMessage], at: int, tools: Sequence[Tool], *, thinks: bool) -> Plan:
    text = history[at].text
    steps = parse(text) if has_script(text) else plain_words.steps(history, at, thinks=thinks)
    return _resume(steps, history, at, tools)


def _is_script(message: InputMessage) -> bool:
    return message.role == "user" and (has_script(message.text) or plain_words.has_orders(message.text))


def _asks_anew(after: Sequence[InputMessage]) -> bool:
    """True if the user wrote again after an answer; a reminder that a client adds to the prompt does not count."""
    return bool(after) and after[-1].role == "user" and any(message.role != "user" for message in after)


def not_offered(name: str) -> str:
    return f"[tool {name} was not offered]"


def recall(history: Sequence[InputMessage], at: int, new_results: int) -> str:
    """The text of `sim: recall` in a script in message `at`; `new_results` results came after that message."""
    turns = sum(map(_begins_turn, history[:at], [None, *history]))
    results = new_results + count_results(history[:at])
    first = next((message.text for message in history if message.role == "user"), "")
    shown = " ".join(first.split())[:_RECALL_CHARS]
    return (
        f"{turns} earlier user turn{'s' * (turns != 1)} and {results} tool result{'s' * (results != 1)}. "
        f"First user text: {shown}"
    )


def turn_start(history: Sequence[InputMessage]) -> int:
    """The index of the message that began the newest turn."""
    pairs = enumerate(zip(history, [None, *history], strict=False))
    return max((index for index, pair in pairs if _begins_turn(*pair)), default=0)


def _begins_turn(message: InputMessage, before: InputMessage | None) -> bool:
    """True unless the user's message directly follows tool results: such a message continues the turn, as in a client's
    replayed history."""
    return message.role == "user" and (before is None or before.role != "tool")


def count_results(messages: Sequence[InputMessage]) -> int:
    """Count the results that the state holds as results, not as prose."""
    return sum(isinstance(part, InputResult) and not part.in_prose for message in messages for part in message.parts)


# ---------------------------------------------------------------------------------------------- what was done already


@dataclass(slots=True)
class _Called:
    name: str
    result: str | None


class _Trail:
    """The messages after the script, consumed step by step."""

    def __init__(self, after: Sequence[InputMessage]) -> None:
        self._items: list[str | _Called] = []
        self._thoughts = ""
        open_calls: dict[str, _Called] = {}
        for message in after:
            if message.role == "assistant":
                self._leave_behind()
            for part in message.parts:
                match part:
                    case InputText(text) if message.role == "assistant":
                        if self._items and isinstance(self._items[-1], str):
                            self._items[-1] += _squash(text)
                        else:
                            self._items.append(_squash(text))
                    case Thought(text):
                        self._thoughts += _squash(text)
                    case InputCall(call_id, name, _):
                        called = open_calls[call_id] = _Called(name, None)
                        self._items.append(called)
                    case InputResult(call_id, _, text, _):
                        if call_id in open_calls:
                            open_calls[call_id].result = text
                    case _:
                        pass
        self.said = False

    def _leave_behind(self) -> None:
        """The model wrote again: calls without a result belong to a lost run."""
        self._items = [item for item in self._items if isinstance(item, str) or item.result is not None]

    def _skip_empty(self) -> None:
        """Drop texts of which nothing is left."""
        while self._items and self._items[0] == "":
            self._items.pop(0)

    def eat_text(self, text: str) -> bool:
        wanted = _squash(text)
        self._skip_empty()
        if not wanted or not self._items:
            return False
        here = self._items[0]
        if isinstance(here, _Called) or not here.startswith(wanted):
            return False
        self._items[0] = here[len(wanted) :]
        self.said = True
        return True

    def eat_thought(self, text: str) -> bool:
        wanted = _squash(text)
        if not wanted or not self._thoughts.startswith(wanted):
            return False
        self._thoughts = self._thoughts[len(wanted) :]
        return True

    def eat_calls(self, count: int) -> tuple[str, ...] | None:
        """The results of the next `count` calls; None unless all of them were made and answered."""
        self._skip_empty()
        results = []
        for item in self._items[:count]:
            if isinstance(item, str) or item.result is None:
                return None
            results.append(item.result)
        if len(results) < count:
            return None
        del self._items[:count]
        self.said = self.said and not count
        return tuple(results)

    def eat_first(self, names: Sequence[str]) -> tuple[str, ...]:
        """The results of the leading calls that match `names` in order."""
        self._skip_empty()
        results: list[str] = []
        for item, name in zip(self._items, names, strict=False):
            if isinstance(item, str) or item.name != name or item.result is None:
                break
            results.append(item.result)
        return tuple(results)

    def eat_some(self, count: int, missing: Sequence[str]) -> tuple[str, ...] | None:
        """The results of `count` calls, if the texts about the `missing` tools follow them; otherwise None, and nothing
        is consumed."""
        before, said = list(self._items), self.said
        results = self.eat_calls(count)
        if results is not None and all(self.eat_text(not_offered(name)) for name in missing):
            return results
        self._items, self.said = before, said
        return None


def _squash(text: str) -> str:
    """The text without white space, because clients trim and re-wrap what they send back."""
    return "".join(text.split())


def _resume(steps: tuple[Step, ...], history: Sequence[InputMessage], at: int, tools: Sequence[Tool]) -> Plan:
    trail = _Trail(history[at + 1 :])
    done, results, looped, answered = 0, tuple[str, ...](), 0, 0
    for index, step in enumerate(steps):
        match step:
            case Say(text):
                found = trail.eat_text(text)
            case Result():
                found = trail.eat_text("\n".join(results))
            case Recall():
                found = trail.eat_text(recall(history, at, answered))
            case ScriptStream():
                found = trail.eat_text(streamed(step))
            case Think(text):
                found = trail.eat_thought(text)
                if not found:
                    continue
            case ScriptCall(uses):
                missing = [use.name for use in uses if find(tools, use.name) is None]
                given = trail.eat_some(len(uses) - len(missing), missing)
                if given is None and missing:
                    given = trail.eat_some(len(uses), ())  # the tools were offered at the time of the calls
                found = given is not None
                if given is not None:
                    results, answered = given, answered + len(given)
                elif some := trail.eat_first([use.name for use in uses]):
                    rest = ScriptCall(uses[len(some) :], some)  # a half-done step: only the missing calls
                    return Plan((rest, *steps[index + 1 :]), at, index, some, False)
            case Exec() | Query():
                given = trail.eat_calls(1)
                found = given is not None
                if given is not None:
                    results, answered = given, answered + 1
            case Loop(use):
                while looped < LOOP_LIMIT and (given := trail.eat_calls(1)) is not None:
                    looped, results, answered = looped + 1, given, answered + 1
                if 0 < looped < LOOP_LIMIT:
                    return Plan(steps[index:], at, index, results, False, looped)
                found = looped == LOOP_LIMIT or (
                    find(tools, use.name) is None and trail.eat_text(not_offered(use.name))
                )
            case _:
                continue
        if not found:
            if _leaves_nothing(step, results):
                continue
            break
        done = index + 1
    return Plan(steps[done:], at, done, results, trail.said)


def _leaves_nothing(step: Step, results: tuple[str, ...]) -> bool:
    match step:
        case Say(text):
            return not text.strip()
        case Result():
            return not "".join(results).strip()
        case ScriptStream(count, size):
            return not count * size
        case _:
            return False


def streamed(step: ScriptStream) -> str:
    """The text of a whole `stream`, cut to the part that the state keeps."""
    count = min(step.count, MAX_RECORDED_CHARS // max(step.size, 1) + 1)
    return "".join(step.delta(index) for index in range(count))[:MAX_RECORDED_CHARS]
