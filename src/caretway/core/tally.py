"""Divides a run's tokens among its responses: the context and the output of each model call, cached tokens, estimates
between checkpoints, impossible totals, lost attempts. Pure.

Input: text, calls and results, and upstream's counts: pieces of output, the context at checkpoints, and one total when
the run ends. Output: the usage of each response: the context and the output of its own model call. The total covers
every model call of the run, so it is the usage of a response only if the run had a single call. Other figures are
estimated from the last reported context plus later additions. The part of a step's context that the previous step has
read counts as cached; the last step gets the rest of upstream's total.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .events import RunUsage, Usage
from .fold import Reply
from .request import Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, TurnRequest, last_answer

# ---- Token estimates if Cursor reports none, always marked: four characters a token, fixed sizes for tools and images,
# usage of a stopped answer. Also the size of a request in bytes, for clients that ask before they send.

CHARS_PER_TOKEN: Final = 4
TOOL_CHARS: Final = 200
"""Roughly the characters that a tool's schema adds to its description."""
IMAGE_CHARS: Final = 1600 * CHARS_PER_TOKEN
"""The estimate for an image, as characters of text."""


def tokens(chars: int) -> int:
    """Characters as tokens, rounded up."""
    return -(-chars // CHARS_PER_TOKEN)


def prompt_chars(request: TurnRequest) -> int:
    return message_chars(request.messages) + sum([len(tool.description) + TOOL_CHARS for tool in request.tools])


def history_tokens(request: TurnRequest) -> int:
    """The tokens of a request's history before its new messages."""
    return tokens(message_chars(request.messages[: last_answer(request.messages)]))


def message_chars(messages: Iterable[Message]) -> int:
    text = Text  # local name: histories are long and mostly text
    return sum(
        [len(part.text) if type(part) is text else _chars(part) for message in messages for part in message.parts]
    )


def _chars(part: Part) -> int:
    match part:
        case Text(text=text) | Reasoning(text=text):
            return len(text)
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case ToolResult():
            return result_chars(part)
        case Image():
            return IMAGE_CHARS


def result_chars(result: ToolResult) -> int:
    return sum([len(part.text) if isinstance(part, Text) else IMAGE_CHARS for part in result.content])


def reply_chars(reply: Reply) -> int:
    """Characters of the answer, including calls."""
    calls = sum([len(call.name) + len(call.arguments) for call in reply.calls])
    return len(reply.text) + len(reply.reasoning) + calls


def estimated_usage(request: TurnRequest, reply: Reply) -> Usage:
    """The usage of an answer that ended before it was reported."""
    read = reply.context_tokens if reply.context_tokens is not None else tokens(prompt_chars(request))
    return Usage(max(1, read), max(1, tokens(reply_chars(reply))), estimated=True)


def estimate_input(request: TurnRequest) -> int:
    """The answer of `count_tokens`: four bytes a token, so that scripts with three bytes a letter count more, with the
    tools' schemas and a fixed size for an image. Good enough for "does it fit?", not for a bill."""
    size = sum([_weight(part) for message in request.messages for part in message.parts])
    for tool in request.tools:
        size += _bytes(tool.name) + _bytes(tool.description) + len(msgspec.json.encode(tool.schema))
    return tokens(size)


def _weight(part: Part) -> int:
    match part:
        case Text(text=text):
            return _bytes(text)
        case Reasoning():
            return 0  # earlier reasoning is not sent
        case Image():
            return IMAGE_CHARS
        case ToolCall(name=name, arguments=arguments):
            return _bytes(name) + _bytes(arguments)
        case ToolResult(content=content):
            return sum([_weight(inner) for inner in content])


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


ABSURD: Final = 3
"""An input of more than this many times the context cannot be that of one model call."""


class Tally(Struct):
    context: int
    """The size of the conversation at the last checkpoint, or the estimated size of the prompt."""
    spoken_chars: int = 0
    spoken_tokens: int = 0
    _since: int = 0
    """Tokens that responses and results have added since that checkpoint; always an estimate."""
    _counted: bool = False
    """Whether a checkpoint of this response has reported the context, results included."""
    _used: int = 0
    """The last context that upstream reported."""
    _said_then: int = 0
    """Output of this response at the last checkpoint, which the context includes."""
    _awaited: int = 0
    """Tokens of the results that began this response, until a checkpoint includes them: the next checkpoint may belong
    to the previous step."""
    _call_chars: int = 0
    _before_calls: int | None = None
    """`spoken_tokens` at the first call of this response."""
    _worked: bool = False
    """Whether a tool was called in this run, so that there are several model calls."""
    _answered: bool = False
    """Whether results were sent that the model has not answered yet."""
    _rounds: int = 1
    _responses: int = 1
    _lost: bool = False
    """Whether an attempt was lost, whose tokens are not counted."""
    _repeats: bool = False
    """Whether a new attempt may repeat output that this response has counted."""
    _estimates: int = 0
    """Sum of the inputs that earlier responses reported."""
    _warm: bool = False
    """Whether upstream's cache may still have the context of the previous response."""
    _read_before: int = 0
    """The context of the previous response, if upstream reported it."""
    _added: int = 0
    """Tokens that the previous response's output and its results have added to that context."""
    _shared: int = 0
    """Tokens that this response shares with the previous response, as reported to the client."""
    _shared_before: int = 0
    """The sum of shared tokens of earlier responses in this attempt."""

    # ---- events

    def reopened(self) -> None:
        """An attempt was lost: its tokens are not counted, and the next attempt may repeat its output."""
        self._lost = self._repeats = True
        self._warm = False
        self._shared = self._shared_before = 0  # upstream's total covers the new attempt

    def checkpoint(self, used: int) -> None:
        if used <= 0:
            return
        said, late = self.output, self._awaited
        if late and (said or (self._used and used >= self.expected - late // 2)):
            late = 0  # the checkpoint includes the results
        self.context = self._used = used
        self._since, self._said_then = late, said
        self._counted = not late

    def counted(self, count: int) -> None:
        """Add output tokens that upstream has counted."""
        if self._answered:
            self.speaking()
        self.spoken_tokens += count

    def calling(self) -> None:
        """The model calls a tool of any kind, so the run has several model calls."""
        self.speaking()
        self._worked = True
        if self._before_calls is None:
            self._before_calls = self.spoken_tokens

    def called(self, name: str, arguments: str) -> None:
        """Add a call that the client has received."""
        self.calling()
        self._call_chars += len(name) + len(arguments)

    def answered(self) -> None:
        self._answered = True
        self._awaited = 0

    def speaking(self) -> None:
        """The model produces output: after results this is the next model call."""
        if self._answered:
            self._answered = False
            self._rounds += 1

    def next_response(self, results: Sequence[ToolResult] = (), *, warm: bool = True) -> None:
        """Begin the next response, with the results that it answers. `warm`: upstream's cache may still have the
        context of the previous response."""
        self._responses += 1
        self._estimates += self._input()
        self._warm = warm
        self._read_before = self._input() if self._counted else 0
        self._shared_before += self._shared
        self._awaited = sum([tokens(result_chars(result)) for result in results])
        self._added = self.output + self._awaited
        self._since += self._added - self._said_then
        self.spoken_tokens = self.spoken_chars = self._call_chars = self._said_then = 0
        self._before_calls = None
        self._counted = self._repeats = False

    # ---- results

    @property
    def expected(self) -> int:
        """The context that the model will read, as far as known."""
        size = self.context + self._since
        return size if size > 0 else 1

    @property
    def output(self) -> int:
        """Output tokens of this response so far."""
        if not self.spoken_tokens or self._repeats:
            return tokens(self.spoken_chars + self._call_chars)
        if self._before_calls is None:
            return self.spoken_tokens
        spoken = self._before_calls or tokens(self.spoken_chars)
        return max(self.spoken_tokens, spoken + tokens(self._call_chars))  # some servers do not count calls at once

    def paused(self) -> Usage:
        """This response's usage as far as it is known."""
        counted = self._counted and self.spoken_tokens > 0 and self._before_calls is None and not self._repeats
        read = self._input()
        self._shared = max(0, min(self._read_before or read - self._added, read)) if self._warm else 0
        return Usage(read, max(1, self.output), estimated=not counted, shared_tokens=self._shared or None)

    def ended(self, total: RunUsage | None) -> Usage:
        """The usage of the last response. `total`: upstream's count of the run, if it reported one."""
        if self._answered:
            self.speaking()
        if total is None:
            return self.paused()
        steps = self._rounds if self._rounds > 1 else self._responses
        if self._responses == 1 and not self._worked and not self._lost and (one := self._single(total)) is not None:
            return one
        own = self.paused()
        if total.input_tokens is not None and not self._counted and (not self._lost or steps == 1):
            own = replace(own, input_tokens=self._fitted(total.input_tokens, steps))
        if self._responses > 1 and (shared := self._last_shared(total)) is not None:
            own = replace(own, shared_tokens=max(0, min(shared, own.input_tokens or 0)))
        return replace(own, run=replace(total, steps=steps, complete=not self._lost))

    def _input(self) -> int:
        if not self._counted:
            return self.expected
        return self.context - self._said_then if self.context > self._said_then else self.context

    def _last_shared(self, total: RunUsage) -> int | None:
        """Upstream's cached tokens minus the tokens that earlier responses were given."""
        cached = total.cache_read_tokens
        if cached is None or (total.input_tokens is not None and cached > total.input_tokens):
            return self._shared or None
        return cached - self._shared_before

    def _single(self, run: RunUsage) -> Usage | None:
        """The run's figures as the usage of its only model call; None if they are impossible for one call."""
        whole, read, written = run.input_tokens, run.cache_read_tokens, run.cache_write_tokens
        if whole is None or run.output_tokens is None or (self._used and whole > ABSURD * self._used):
            return None
        if (read or 0) + (written or 0) > whole:
            read = written = None  # inconsistent: cached tokens are part of the input
        return Usage(whole, run.output_tokens, read, written, run.reasoning_tokens, run=run)

    def _fitted(self, whole: int, steps: int) -> int:
        """The context of the last of several model calls without a checkpoint: the expected context plus the average
        difference between a call's input and its estimate (Cursor's own instructions)."""
        average = (self._estimates + self.expected) // self._responses
        return max(1, min(self.expected + whole // steps - average, whole))
