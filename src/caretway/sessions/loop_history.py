"""The loop guard for a client's tools: which calls count as repeats (same arguments, same result), what resets the
count, when the model is warned and when the turn ends with an error.

Input: the whole history, so the guard keeps no state and works for stateless clients, too. Output: a verdict on the
results of this request. `loop_guard` follows the verdict; the client's own history stays unchanged.

The calls of one answer are a step. A call *repeats* when an earlier step has the same tool with the same arguments (as
JSON, not as text) and the same result. The count is reset
- for one call, when its result differs from the last one (polling something that moves is no loop);
- for all calls, when a step has a new result: the model looks elsewhere, or acts;
- for all calls, when the user speaks: after an answer always, beside tool results if the words are new (some clients
attach the same reminder to every result).
So the guard catches only a model that goes in circles, through one call or through several in turn. `rule` has the
limits. A call with refused arguments gets no generous limit: it will be refused again. At the limit the model is warned
(`Correct`), at the next repeat the turn ends (`Stop`). Steps that only look and find nothing new are counted, too
(`wander`): the model is warned, and a setting makes the turn end.
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ..core.errors import GatewayError
from ..core.json_bounds import canonical_json
from ..core.request import Image, Message, Part, Role, Text, ToolCall, ToolResult, TurnRequest, last_answer
from .loop_guard import (
    LOOKING,
    WANDER_STEPS,
    NoProgress,
    RepeatLevel,
    Wander,
    loop_error,
    only_looks,
    plain_name,
    repeat_level,
    wander_error,
    wander_level,
    wander_warning,
    warning,
)

log = logging.getLogger(__name__)


class CallOutcome(Enum):
    SUCCESS = "success"
    ERROR = "error"
    VALIDATION_FAILURE = "validation_failure"
    """The tool did not run, because its arguments were refused."""


_FAILED: Final = re.compile(
    r"\s*(<tool_use_error>|<error>|\[error\]|error\b|inputvalidationerror"
    r"|invalid (tool )?(arguments|parameters|input)\b|validation failed\b"
    r"|the arguments provided to the tool are invalid|the \S+ tool was called with invalid)",
    re.IGNORECASE,
)
_REFUSED: Final = (
    r"(?i)"
    r"input ?validation ?error|invalid (tool )?(arguments?|parameters?|input)\b|arguments? provided .{0,40}\binvalid"
    r"|(schema|argument|parameter|input) validation|validation (error|failed)"
    r"|(missing|required) (required )?(argument|parameter|property|field)"
)
_NOTHING_NEW: Final = "brought nothing new"
_HEAD: Final = 300
"""Characters of a failure that are searched for its reason, which comes first."""


def outcome(result: ToolResult) -> CallOutcome:
    """The outcome of a result. Some dialects cannot mark a failure, so the beginning of the text decides, too."""
    text = result.text[:_HEAD]
    if not result.is_error and not _FAILED.match(text):
        return CallOutcome.SUCCESS
    return CallOutcome.VALIDATION_FAILURE if re.search(_REFUSED, text) else CallOutcome.ERROR


class Ok(Struct, frozen=True):
    """No call repeats too often."""


class Correct(Struct, frozen=True):
    """Append the message for the model to the results of these calls."""

    call_ids: tuple[str, ...]
    message: str
    tools: tuple[str, ...]
    repeats: int
    how: str = "repeated"


class Stop(Struct, frozen=True):
    error: GatewayError
    tools: tuple[str, ...]
    repeats: int
    how: str = "repeated"


Verdict = Ok | Correct | Stop


class LoopGuard(Struct, frozen=True):
    max_repeat: int = 2
    """Allowed repeats of a call; 0: any number. `no_progress` applies in any case."""
    generous: frozenset[str] = LOOKING
    no_progress: NoProgress = "warn"

    def verdict(self, history: Sequence[Message]) -> Verdict:
        """The verdict on the calls whose results are last in the history. Linear in its length; nearly free if there
        are no results or a result is new."""
        if not last_answer(history):
            return Ok()
        repeated = self._repeated(history)
        return repeated if not isinstance(repeated, Ok) else self._wandered(history)

    def _wandered(self, history: Sequence[Message]) -> Verdict:
        if self.no_progress == "off" or not _looks_on(history, WANDER_STEPS):
            return Ok()
        wander, newest = _wandering(history)
        level = wander_level(wander.steps, wander.tokens, 0.0, self.no_progress)
        tools = tuple(dict.fromkeys(call[0] for (call, _, _), _ in newest.results))
        if level is RepeatLevel.PAST_LIMIT:
            return Stop(wander_error(wander.steps, wander.tokens), tools, wander.steps, _NOTHING_NEW)
        if level is RepeatLevel.BELOW_LIMIT or not newest.results:
            return Ok()
        call_ids = (newest.results[-1][1],)
        return Correct(call_ids, wander_warning(wander.steps, wander.tokens), tools, wander.steps, _NOTHING_NEW)

    def _repeated(self, history: Sequence[Message]) -> Verdict:
        if self.max_repeat <= 0 or not _came_before(history):
            return Ok()
        levels = [(run, self.level(run)) for run in _last_runs(history)]
        circling = [run for run, level in levels if level is not RepeatLevel.BELOW_LIMIT]
        if not circling:
            return Ok()
        if past := [run for run, level in levels if level is RepeatLevel.PAST_LIMIT]:
            worst = max(past, key=_repeats)
            error = loop_error(worst.tool, worst.repeats + 1, worst.outcome.value, warned=True)
            return Stop(error, (worst.tool,), worst.repeats)
        repeats = min(map(_repeats, circling))
        tools = tuple(dict.fromkeys(run.tool for run in circling))
        call_ids = tuple(call_id for run in circling for call_id in run.call_ids)
        return Correct(call_ids, warning(repeats + 1), tools, repeats)

    def level(self, run: "Repetition") -> RepeatLevel:
        looks = plain_name(run.tool) in self.generous and run.outcome is not CallOutcome.VALIDATION_FAILURE
        return repeat_level(run.repeats, self.max_repeat, generous=looks)


def loop_guard(max_repeat: int, no_progress: NoProgress = "warn") -> Callable[[TurnRequest], TurnRequest]:
    """A function that adds warnings to a request. It raises GatewayError(TOOL_LOOP) if the model ignored a warning."""
    guard = LoopGuard(max_repeat, no_progress=no_progress)

    def guarded(request: TurnRequest) -> TurnRequest:
        match guard.verdict(request.messages):
            case Ok():
                return request
            case Correct(tools=tools, repeats=repeats, how=how) as verdict:
                log.warning("loop guard: %s %s %d times; the model is warned", ", ".join(tools), how, repeats)
                return corrected(request, verdict)
            case Stop(error=error, tools=tools, repeats=repeats, how=how):
                log.warning("loop guard: %s %s %d times; the turn ends", ", ".join(tools), how, repeats)
                raise error

    return guarded


def corrected(request: TurnRequest, verdict: Correct) -> TurnRequest:
    """The request with the warning. Remember the client's own history, not this one."""
    last = last_answer(request.messages)
    wanted = frozenset(verdict.call_ids)
    note = Text(f"\n\n{verdict.message}")

    def extended(part: Part) -> Part:
        if isinstance(part, ToolResult) and part.call_id in wanted:
            return replace(part, content=(*part.content, note))
        return part

    tail = (replace(message, parts=tuple(map(extended, message.parts))) for message in request.messages[last:])
    return replace(request, messages=(*request.messages[:last], *tail))


# ---- counting

_Content = tuple[str | bytes, ...]


class Repetition(Struct):
    """One call that repeats with the same result."""

    tool: str
    outcome: CallOutcome
    content: _Content
    repeats: int = 0
    call_ids: list[str] = field(default_factory=list)
    """The call ids of the newest step."""


_Call = tuple[str, str]
_Print = tuple[_Call, CallOutcome, _Content]


class _Step(Struct):
    """The results and the user's words between two answers."""

    results: list[tuple[_Print, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _came_before(history: Sequence[Message]) -> bool:
    """Whether a call of the newest step may repeat; True in doubt. A cheap test before counting, which reads every call
    of a long history: this reads only calls with the same result. False if the step has no results, or a result that is
    new since the user spoke."""
    end = last_answer(history)
    brought = _results(history[end - 1 :]) if end else []
    if not brought:
        return False
    calls = _calls(history[end - 1])
    if len(calls.keys() & {result.call_id for result in brought}) < len(brought):
        return True  # a result belongs to an older call or to none: count
    contents = list({_content(result) for result in brought})
    unseen: set[tuple[_Call, _Content]] = set()  # not compared before a result resembles one of them
    count = 0
    for answer, alike in _steps_that_matter(history[: end - 1], contents):
        if not alike and len(unseen) == count:
            return False
        if not count:
            unseen = {(_made(calls[result.call_id]), _content(result)) for result in brought}
            count = len(unseen)
        earlier = _calls(answer)
        for result in alike:
            if (call := earlier.get(result.call_id)) is not None:
                unseen.discard((_made(call), _content(result)))
            else:  # a result of an older call, which may be any call
                unseen = {pair for pair in unseen if pair[1] != _content(result)}
        if not unseen:
            return True
    return False


def _steps_that_matter(
    history: Sequence[Message], contents: Sequence[_Content]
) -> Iterable[tuple[Message, list[ToolResult]]]:
    """Answers, the newest first, with their results that resemble `contents`. An answer that only the user's words
    follow has none."""
    assistant, user = Role.ASSISTANT, Role.USER  # local names: histories are long
    alike: list[ToolResult] = []
    answered = spoke = False
    for message in reversed(history):
        if message.role is assistant:
            if alike or (spoke and not answered):
                yield message, alike
                alike = []
            answered = spoke = False
            continue
        for part in message.parts:
            if type(part) is ToolResult:
                answered = True
                if _content(part) in contents:
                    alike.append(part)
            elif message.role is user and type(part) is Text and part.text and not part.text.isspace():
                spoke = True


def _calls(answer: Message) -> dict[str, ToolCall]:
    return {part.id: part for part in answer.parts if type(part) is ToolCall}


def _made(call: ToolCall) -> _Call:
    return call.name, canonical_json(call.arguments)


def _last_runs(history: Iterable[Message]) -> list[Repetition]:
    """The repetitions that include the newest step."""
    seen: set[_Print] = set()
    heard: set[str] = set()
    runs: dict[_Call, Repetition] = {}
    newest: list[Repetition] = []
    for step in _steps(history):
        if any(fingerprint not in seen for fingerprint, _ in step.results):
            runs.clear()
        newest = _count(step, runs)
        seen.update(fingerprint for fingerprint, _ in step.results)
        if step.words and (not step.results or not heard.issuperset(step.words)):
            runs.clear()
            newest = []
        heard.update(step.words)
    return newest


def _count(step: _Step, runs: dict[_Call, Repetition]) -> list[Repetition]:
    """Add a step's calls to `runs`, and return the entries of these calls. Equal calls within one step are one
    repeat: the model saw no result between them."""
    touched: dict[_Call, Repetition] = {}
    for (call, came_out, content), call_id in step.results:
        run = runs.get(call)
        if run is None or (run.outcome, run.content) != (came_out, content):
            run = runs[call] = Repetition(call[0], came_out, content)
        elif call not in touched:
            run.repeats += 1
            run.call_ids = []
        run.call_ids.append(call_id)
        touched[call] = run
    return list(touched.values())


def _looks_on(history: Sequence[Message], steps: int) -> bool:
    """Whether the newest `steps` answers only call tools that look. Cheap: it reads from the end and stops at the first
    other answer."""
    for message in reversed(history):
        if message.role is Role.ASSISTANT:
            calls = [part for part in message.parts if isinstance(part, ToolCall)]
            if not calls or not all(only_looks(call.name, call.arguments) for call in calls):
                return False
            steps -= 1
            if not steps:
                return True
    return False


def _wandering(history: Sequence[Message]) -> tuple[Wander, _Step]:
    """How long the model has looked around without progress, and its newest step."""
    wander, newest, heard = Wander(), _Step(), set[str]()
    for step in _steps(history):
        newest = step
        texts = [str(part) for (_, _, content), _ in step.results for part in content]
        if step.results:
            wander.step(texts, looks=all(only_looks(*call) for (call, _, _), _ in step.results))
        if step.words and (not step.results or not heard.issuperset(step.words)):
            wander.start_again()
        heard.update(step.words)
    return wander, newest


def _steps(history: Iterable[Message]) -> Iterable[_Step]:
    waiting: dict[str, ToolCall] = {}
    step = _Step()
    for message in history:
        if message.role is Role.ASSISTANT:
            yield step
            step = _Step()
        for part in message.parts:
            match part:
                case ToolCall(id=call_id):
                    waiting[call_id] = part
                case ToolResult(call_id=call_id) if (call := waiting.pop(call_id, None)) is not None:
                    step.results.append(((_made(call), outcome(part), _content(part)), call_id))
                case Text(text=text) if message.role is Role.USER and (words := text.strip()):
                    step.words.append(words)
                case _:
                    pass
    yield step


def _results(messages: Sequence[Message]) -> list[ToolResult]:
    assistant, result = Role.ASSISTANT, ToolResult  # local names: histories are long
    return [
        part for message in messages if message.role is not assistant for part in message.parts if type(part) is result
    ]


def _content(result: ToolResult) -> _Content:
    """The result itself, not a digest: strings cache their hash."""
    content = result.content
    if len(content) == 1 and type(only := content[0]) is Text:
        return (only.text.strip(),)  # the usual case, for each result of a long history
    return (result.text.strip(), *[part.data for part in content if isinstance(part, Image)])


def _repeats(run: Repetition) -> int:
    return run.repeats
