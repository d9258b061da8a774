"""The loop guard: notices a model that makes the same call again and again and learns nothing from it.

In: a request's whole history, so there is no state to keep and a stateless client is guarded too. Out: a verdict on
the results that came with this request. It changes nothing by itself; `corrected` is for whoever follows the verdict.

The rule. The calls of one answer are a step. A call *repeats* when the same tool was called with the same arguments
(as JSON, not as text) in an earlier step and came out the same: same outcome, same result. Counting starts again
  - for one call, when its result is another one than the last time (polling something that moves is no loop);
  - for all calls, when a step brings anything that was never seen before: the model looks elsewhere, or acts;
  - for all calls, when the user speaks: after an answer always, beside tool results if the words are new (some clients
    attach the same reminder to every result).
So only a model that goes in circles is caught, through one call or through several in turn. A call may repeat
`max_repeat` times; five times as often when the tool only looks or runs commands, because reading a file again is
cheap and waiting for a command is work, unless the arguments themselves were refused: that never changes by itself.
At the limit the model is told (`Correct`), at the next repeat the turn ends (`Stop`).
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from msgspec.structs import replace

from ..core.canonical import canonical_json
from ..core.errors import ErrorKind, GatewayError
from ..core.request import Image, Message, Part, Role, Text, ToolCall, ToolResult, TurnRequest, last_answer

log = logging.getLogger(__name__)

GENEROUS_FACTOR: Final = 5

LOOKING: Final = frozenset(
    {
        *("read", "readfile", "readmanyfiles", "view", "viewfile", "viewimage", "cat", "open", "openfile", "tree"),
        *("ls", "list", "listdir", "listdirectory", "listfiles"),
        *("grep", "ripgrep", "rg", "search", "searchfiles", "searchcode", "codebasesearch"),
        *("glob", "find", "findfiles", "filesearch"),
        *("bash", "shell", "sh", "localshell", "terminal", "exec", "execcommand", "execute", "executecommand"),
        *("runcommand", "runshellcommand", "runterminalcmd"),
        *("writestdin", "bashoutput", "taskoutput", "taskget", "checkbackgroundjob", "waitagent"),
    }
)
"""Tools that only look, run commands or wait for them: names in lower case, without separators and server prefix."""


class CallOutcome(Enum):
    SUCCESS = "success"
    ERROR = "error"
    VALIDATION_FAILURE = "validation_failure"
    """The tool never ran: its arguments were refused."""


_FAILED: Final = re.compile(
    r"\s*(<tool_use_error>|<error>|\[error\]|error\b|inputvalidationerror"
    r"|invalid (tool )?(arguments|parameters|input)\b"
    r"|the arguments provided to the tool are invalid|the \S+ tool was called with invalid)",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"input ?validation ?error|invalid (tool )?(arguments?|parameters?|input)\b|arguments? provided .{0,40}\binvalid"
    r"|(schema|argument|parameter|input) validation|validation (error|failed)"
    r"|(missing|required) (required )?(argument|parameter|property|field)",
    re.IGNORECASE,
)
_HEAD: Final = 300
"""How much of a failure is read to tell why; the reason comes first."""


def outcome(result: ToolResult) -> CallOutcome:
    """Some dialects cannot mark a failure, so its text decides too; a success is never read for reasons."""
    text = result.text[:_HEAD]
    if not result.is_error and not _FAILED.match(text):
        return CallOutcome.SUCCESS
    return CallOutcome.VALIDATION_FAILURE if _REFUSED.search(text) else CallOutcome.ERROR


@dataclass(frozen=True, slots=True)
class Ok:
    """Nothing repeats beyond measure."""


@dataclass(frozen=True, slots=True)
class Correct:
    """The results of these calls should carry the message to the model."""

    call_ids: tuple[str, ...]
    message: str
    tools: tuple[str, ...]
    repeats: int


@dataclass(frozen=True, slots=True)
class Stop:
    error: GatewayError
    tools: tuple[str, ...]
    repeats: int


Verdict = Ok | Correct | Stop


@dataclass(frozen=True, slots=True)
class LoopGuard:
    max_repeat: int = 2
    """0 switches the guard off."""
    generous: frozenset[str] = LOOKING

    def verdict(self, history: Sequence[Message]) -> Verdict:
        """On the calls whose results come last in the history. Takes time in proportion to its length, and hardly any
        when they brought something new, or when there are none."""
        if self.max_repeat <= 0 or not _came_before(history):
            return Ok()
        circling = [run for run in _last_runs(history) if run.repeats >= self.limit(run)]
        if not circling:
            return Ok()
        past = [run for run in circling if run.repeats > self.limit(run)]
        if past:
            worst = max(past, key=_repeats)
            return Stop(_error(worst), (worst.tool,), worst.repeats)
        repeats = min(map(_repeats, circling))
        tools = tuple(dict.fromkeys(run.tool for run in circling))
        call_ids = tuple(call_id for run in circling for call_id in run.call_ids)
        return Correct(call_ids, _correction(repeats + 1), tools, repeats)

    def limit(self, run: "Repetition") -> int:
        looks = plain_name(run.tool) in self.generous and run.outcome is not CallOutcome.VALIDATION_FAILURE
        return self.max_repeat * GENEROUS_FACTOR if looks else self.max_repeat


def loop_guard(max_repeat: int) -> Callable[[TurnRequest], TurnRequest]:
    """A request as the model should see it; raises GatewayError(TOOL_LOOP) when it has been told and goes on."""
    guard = LoopGuard(max_repeat)

    def guarded(request: TurnRequest) -> TurnRequest:
        match guard.verdict(request.messages):
            case Ok():
                return request
            case Correct(tools=tools, repeats=repeats) as verdict:
                log.warning("loop guard: %s repeated %d times, the model is told", ", ".join(tools), repeats)
                return corrected(request, verdict)
            case Stop(error=error, tools=tools, repeats=repeats):
                log.warning("loop guard: %s repeated %d times, the turn is ended", ", ".join(tools), repeats)
                raise error

    return guarded


def corrected(request: TurnRequest, verdict: Correct) -> TurnRequest:
    """The request as the model should see it. The client's own history stays what it was: remember that one."""
    last = last_answer(request.messages)
    wanted = frozenset(verdict.call_ids)
    note = Text(f"\n\n{verdict.message}")

    def extended(part: Part) -> Part:
        if isinstance(part, ToolResult) and part.call_id in wanted:
            return replace(part, content=(*part.content, note))
        return part

    tail = (replace(message, parts=tuple(map(extended, message.parts))) for message in request.messages[last:])
    return replace(request, messages=(*request.messages[:last], *tail))


def plain_name(tool: str) -> str:
    """`mcp__files__Read_File` -> `readfile`."""
    return re.sub(r"[^a-z0-9]", "", tool.rpartition("__")[2].lower())


# ---- counting

_Content = tuple[str | bytes, ...]


@dataclass(slots=True)
class Repetition:
    """One call, made again and again with the same result."""

    tool: str
    outcome: CallOutcome
    content: _Content
    repeats: int = 0
    call_ids: list[str] = field(default_factory=list)
    """The calls of the newest step."""


_Call = tuple[str, str]
_Print = tuple[_Call, CallOutcome, _Content]


@dataclass(slots=True)
class _Step:
    """What came between two answers: results, and whether the user spoke."""

    results: list[tuple[_Print, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _came_before(history: Sequence[Message]) -> bool:
    """False when the newest step has no results, or one that no earlier step had: then none of its calls repeats, and
    there is nothing to count. Compares results as they are; reading each call of a long history costs far more."""
    end = last_answer(history)
    brought = _results(history[end - 1 :]) if end else []
    if not brought:
        return False
    called = {part.id for part in history[end - 1].parts if isinstance(part, ToolCall)}
    if len(called.intersection([result.call_id for result in brought])) < len(brought):
        return True  # one of them answers something older, or nothing: only counting tells
    new = [_content(result) for result in brought]
    for result in _results(history[: end - 1]):
        content = _content(result)
        if content in new:
            new = [other for other in new if other != content]
            if not new:
                return True
    return False


def _last_runs(history: Iterable[Message]) -> list[Repetition]:
    """The runs that the newest step is part of."""
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
    """Twins within one step are one call: nothing could be learned between them."""
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
                    made = (call.name, canonical_json(call.arguments))
                    step.results.append(((made, outcome(part), _content(part)), call_id))
                case Text(text=text) if message.role is Role.USER and (said := text.strip()):
                    step.words.append(said)
                case _:
                    pass
    yield step


def _results(messages: Sequence[Message]) -> list[ToolResult]:
    assistant, result = Role.ASSISTANT, ToolResult  # who calls does not answer; looked up once, histories are long
    return [part for told in messages if told.role is not assistant for part in told.parts if type(part) is result]


def _content(result: ToolResult) -> _Content:
    """The result itself, not a digest of it: strings keep their own hash."""
    images = [part.data for part in result.content if isinstance(part, Image)]
    return (result.text.strip(), *images)


def _repeats(run: Repetition) -> int:
    return run.repeats


# ---- words


def _correction(times: int) -> str:
    return (
        f"[Note from the gateway: this exact call has now been made {times} times and gave this same result each time."
        " Making it again will not help, and the turn will be ended if it is. Do something else, or answer with what"
        " you know.]"
    )


def _error(run: Repetition) -> GatewayError:
    return GatewayError(
        ErrorKind.TOOL_LOOP,
        f"The model called `{run.tool}` {run.repeats + 1} times with the same arguments and the same result"
        f" ({run.outcome.value}), also after it was told; the turn was ended.",
        hint="Say what to do differently, or raise TOOL_LOOP_MAX_REPEAT (0 switches the loop guard off).",
        code="tool_loop_detected",
    )
