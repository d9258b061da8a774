"""Streaming parser of the model's text: prose, thinking tags, and calls. A call counts only after this request's
trigger, against prompt injection; incomplete or too long calls become text. Accepts raw line breaks in JSON.

Sans I/O, incremental, linear in the size of the input. After adjacent pieces of one kind are joined, the pieces do not
depend on the chunking. An incomplete tag becomes text, so nothing is lost.
"""

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from msgspec import Struct

# ---- Limits of the text protocol, in characters: one call, calls in a response, the list of tools.


class TextLimits(Struct, frozen=True):
    max_call_chars: int = 8 * 1024 * 1024
    """One call with its arguments; a longer call is shown as text."""
    max_calls: int = 64
    """Calls in one response; the turn ends after the last call."""
    max_tools_chars: int = 2 * 1024 * 1024
    """The list of tools in the instructions."""


DEFAULT_TEXT_LIMITS = TextLimits()
MAX_NAME_CHARS = 128
"""The longest name of a declared tool."""
MAX_THOUGHTS = 1000
"""Thinking tags in one answer; further tags are text. The limit bounds the number of events."""


class TextPiece(Struct, frozen=True):
    text: str


class ThinkingPiece(Struct, frozen=True):
    text: str


class CallPiece(Struct, frozen=True):
    name: str
    arguments: str
    """The JSON text of an object."""


class BadCall(Struct, frozen=True):
    """A wrong call. The parser returns it only with `keep_bad_calls`."""

    name: str
    problem: str
    raw: str
    """The call as the model wrote it."""
    call: CallPiece | None = None
    """The call, if its only problem is that its arguments do not fit the tool's schema."""


Piece = TextPiece | ThinkingPiece | CallPiece | BadCall


class _State(Enum):
    PROSE = "in the text"
    THINKING = "between thinking tags"
    AFTER_THINKING = "behind thinking, where white space means nothing"
    TRIGGERED = "behind the trigger: a call must follow"
    ARGUMENTS = "inside a call"
    CALLED = "behind a call: another one may follow"


INVOKE: Final = '<invoke name="'
CLOSE: Final = "</invoke>"
THINKING_TAGS: Final = {"<thinking>": "</thinking>", "<think>": "</think>"}
_MAX_BLANKS: Final = 64
_MAX_REST_OF_TAG: Final = 64

_TAG: Final = re.compile(r"<<CALL_\w{8}>>|<think(?:ing)?>")
_BLANK: Final = re.compile(r"\s*")
_OUTSIDE: Final = re.compile(rf'"|{CLOSE}')
_INSIDE: Final = re.compile(r'["\\]')
_MORE: Final = -1
"""The result of a step that needs more text to decide."""


class Parser:
    def __init__(
        self,
        trigger: str = "",
        names: frozenset[str] = frozenset(),
        *,
        thinking: bool = False,
        keep_bad_calls: bool = False,
        max_call_chars: int = 8 * 1024 * 1024,
        problem: Callable[[str, str], str] | None = None,
    ) -> None:
        """Without a trigger there are no calls. `problem` describes what is wrong with (tool, arguments), for
        `keep_bad_calls`. `thinking`: the model was asked to use thinking tags, so they count everywhere; otherwise
        they count only before the answer."""
        self._trigger = trigger
        self._names = names
        self._thinks_anywhere = thinking
        self._keep_bad_calls = keep_bad_calls
        self._max_call_chars = max_call_chars
        self._problem = problem
        self._state = _State.PROSE
        self._spoke = False
        """The answer had visible text."""
        self._thoughts = 0
        self._rest = ""
        """Text that cannot be decided yet, at most as long as a tag."""
        self._raw: list[str] = []
        """The unfinished call as written: trigger, tag, then the arguments."""
        self._raw_chars = 0
        self._name = ""
        self._in_string = False
        self._close = ""
        self._thought: list[str] = []
        """The text after an open thinking tag. If the tag is never closed, the text may hold a call."""
        self._thought_chars = 0
        self.unclosed = False
        """The answer ended inside a thinking tag."""
        self._steps: Final[dict[_State, Callable[[str, int, list[Piece]], int]]] = {
            _State.PROSE: self._prose,
            _State.THINKING: self._thinking,
            _State.AFTER_THINKING: self._after_thinking,
            _State.TRIGGERED: self._opening,
            _State.ARGUMENTS: self._arguments,
            _State.CALLED: self._opening,
        }

    def feed(self, text: str) -> list[Piece]:
        if self._spoke and text and "<" not in text and self._state is _State.PROSE and not self._rest:
            return [TextPiece(text)]  # most deltas: every tag and the trigger begin with `<`
        out: list[Piece] = []
        text = self._rest + text
        self._rest = ""
        at = 0
        while at != _MORE and at < len(text):
            at = self._steps[self._state](text, at, out)
        return out

    @property
    def plain(self) -> bool:
        """Whether all further input is text."""
        decided = self._state is _State.PROSE and self._spoke and not self._rest
        return decided and not self._trigger and not self._thinks_anywhere

    def finish(self) -> list[Piece]:
        """The last pieces at the end of the answer: text that was held back as a possible tag."""
        out: list[Piece] = []
        rest, self._rest = self._rest, ""
        if self._state is _State.THINKING:
            self.unclosed = True
            if rest:
                self._think(rest, out)
            self._calls_inside(out)
        elif self._state is not _State.AFTER_THINKING:
            self._say("".join([*self._raw, rest]), out)
        self._raw, self._raw_chars, self._state = [], 0, _State.PROSE
        return out

    def break_off(self) -> None:
        """Drop an incomplete call, because the answer failed."""
        if self._state in (_State.TRIGGERED, _State.ARGUMENTS, _State.CALLED) or (
            self._trigger and len(self._rest) > 1 and self._trigger.startswith(self._rest)
        ):
            self._raw, self._rest = [], ""

    # ---- steps: each starts at `at` and returns the start of the next step, or _MORE after keeping the undecided rest

    def _prose(self, text: str, at: int, out: list[Piece]) -> int:
        may_think = (self._thinks_anywhere or not self._spoke) and self._thoughts < MAX_THOUGHTS
        if not may_think and not self._trigger:
            self._say(text[at:], out)
            return len(text)
        begin = at
        while (match := _TAG.search(text, begin)) is not None:
            tag, start = match[0], match.start()
            if tag == self._trigger:
                self._say(text[at:start], out)
                self._raw = [tag]
                self._state = _State.TRIGGERED
                return match.end()
            if may_think and tag in THINKING_TAGS:
                may_think = self._thinks_anywhere or not text[at:start].strip()
                if may_think:
                    self._say(text[at:start], out)
                    self._close = THINKING_TAGS[tag]
                    self._state = _State.THINKING
                    self._thoughts += 1
                    return match.end()
            begin = match.end()
        held = max(_overlap(text, at, tag) for tag in (self._trigger, *(THINKING_TAGS if may_think else ())))
        self._say(text[at : len(text) - held], out)
        return self._wait(text, len(text) - held)

    def _thinking(self, text: str, at: int, out: list[Piece]) -> int:
        end = text.find(self._close, at)
        stop = end if end >= 0 else len(text) - _overlap(text, at, self._close)
        if stop > at:
            self._think(text[at:stop], out)
        if end < 0:
            return self._wait(text, stop)
        self._state = _State.AFTER_THINKING
        self._thought, self._thought_chars = [], 0
        return end + len(self._close)

    def _think(self, text: str, out: list[Piece]) -> None:
        out.append(ThinkingPiece(text))
        if self._trigger:
            self._thought.append(text)
            self._thought_chars += len(text)
            if self._thought_chars > self._max_call_chars:
                self._thought, self._thought_chars = [], 0

    def _calls_inside(self, out: list[Piece]) -> None:
        """Add the calls inside a thinking tag that the model did not close. The text around the calls stays
        thinking."""
        thought, self._thought = "".join(self._thought), []
        at = thought.find(self._trigger) if self._trigger else -1
        if at >= 0:
            inner = Parser(self._trigger, self._names, max_call_chars=self._max_call_chars)
            pieces = [*inner.feed(thought[at:]), *inner.finish()]
            out += [piece for piece in pieces if isinstance(piece, CallPiece)]

    def _after_thinking(self, text: str, at: int, out: list[Piece]) -> int:
        end = _blanks(text, at, len(text))
        if end < len(text):
            self._state = _State.PROSE
        return end

    def _opening(self, text: str, at: int, out: list[Piece]) -> int:
        """Read white space and the opening tag of a call. Other input turns the preceding trigger into text."""
        begin = _blanks(text, at, at + _MAX_BLANKS)
        named = begin + len(INVOKE)
        if not text.startswith(INVOKE, begin):
            undecided = INVOKE.startswith(text[begin : begin + len(INVOKE)])
            return self._wait(text, at) if undecided else self._no_call(text, at, begin, out)
        quote = text.find('"', named, named + MAX_NAME_CHARS + 1)
        name = text[named : quote if quote >= 0 else named + MAX_NAME_CHARS + 1]
        if len(name) > MAX_NAME_CHARS or not _is_plain(name):
            return self._no_call(text, at, named, out)
        if quote < 0:
            return self._wait(text, at)
        end = text.find(">", quote + 1, quote + 1 + _MAX_REST_OF_TAG)
        between = text[quote + 1 : end if end >= 0 else quote + 1 + _MAX_REST_OF_TAG]
        if len(between) >= _MAX_REST_OF_TAG or not _is_plain(between):
            return self._no_call(text, at, named, out)
        if end < 0:
            return self._wait(text, at)
        if name not in self._names and not self._keep_bad_calls:
            return self._no_call(text, at, end + 1, out)
        self._raw = [*self._raw, text[at:begin], text[begin : end + 1]]
        self._raw_chars = 0
        self._name, self._in_string, self._state = name, False, _State.ARGUMENTS
        return end + 1

    def _no_call(self, text: str, at: int, to: int, out: list[Piece]) -> int:
        self._say("".join([*self._raw, text[at:to]]), out)
        self._raw, self._raw_chars, self._state = [], 0, _State.PROSE
        return to

    def _arguments(self, text: str, at: int, out: list[Piece]) -> int:
        """Read up to the closing tag; a closing tag inside a JSON string does not count."""
        begin = at
        while True:
            match = (_INSIDE if self._in_string else _OUTSIDE).search(text, begin)
            if match is None:
                held = 0 if self._in_string else _overlap(text, begin, CLOSE)
                return self._more_arguments(text, at, len(text) - held, out)
            if match[0] == CLOSE:
                if self._raw_chars + match.start() - at > self._max_call_chars:
                    return self._overflow(text, at, out)
                return self._complete(text[at : match.start()], match.end(), out)
            if match[0] == "\\":
                if match.end() == len(text):
                    return self._more_arguments(text, at, match.start(), out)
                begin = match.end() + 1
            else:
                self._in_string = not self._in_string
                begin = match.end()

    def _more_arguments(self, text: str, at: int, to: int, out: list[Piece]) -> int:
        if self._raw_chars + to - at > self._max_call_chars:
            return self._overflow(text, at, out)
        self._raw.append(text[at:to])
        self._raw_chars += to - at
        return self._wait(text, to)

    def _overflow(self, text: str, at: int, out: list[Piece]) -> int:
        """Turn the call into text up to the limit, so the result does not depend on the chunking."""
        return self._no_call(text, at, at + self._max_call_chars - self._raw_chars, out)

    def _complete(self, last: str, end: int, out: list[Piece]) -> int:
        # The arguments follow the text before the call (nothing, or the trigger), white space, and the tag.
        tag = next(i for i, part in enumerate(self._raw) if part.startswith(INVOKE))
        arguments = "".join([*self._raw[tag + 1 :], last])
        raw = "".join([*self._raw[: tag + 1], arguments, CLOSE])
        self._raw, self._raw_chars, self._state = [], 0, _State.CALLED
        good = read_arguments(arguments)
        if self._name not in self._names:
            out.append(BadCall(self._name, f"there is no tool {self._name!r}", raw))
        elif good is not None:
            call = CallPiece(self._name, good)
            wrong = self._problem(self._name, good) if self._problem is not None and self._keep_bad_calls else ""
            out.append(BadCall(self._name, wrong, raw, call) if wrong else call)
        elif self._keep_bad_calls:
            out.append(BadCall(self._name, "the arguments are not a JSON object", raw))
        else:
            self._say(raw, out)
            self._state = _State.PROSE
        return end

    # ---- helpers

    def _wait(self, text: str, at: int) -> int:
        self._rest = text[at:]
        return _MORE

    def _say(self, text: str, out: list[Piece]) -> None:
        if text:
            self._spoke = self._spoke or not text.isspace()
            out.append(TextPiece(text))


def _blanks(text: str, at: int, stop: int) -> int:
    """The end of the white space that begins at `at`, up to `stop`."""
    blank = _BLANK.match(text, at, stop)
    return blank.end() if blank else at


def _is_plain(inside_tag: str) -> bool:
    return not any(character in inside_tag for character in "<>\n")


def _overlap(text: str, at: int, tag: str) -> int:
    """The length of the end of `text[at:]` that is a proper prefix of `tag`."""
    window = max(at, len(text) - len(tag) + 1)
    start = text.find(tag[:1], window) if tag else -1
    while start >= 0:
        if tag.startswith(text[start:]):
            return len(text) - start
        start = text.find(tag[:1], start + 1)
    return 0


def read_arguments(text: str) -> str | None:
    """The arguments as valid JSON; None if they are not an object. Missing arguments become an empty object. Raw line
    breaks inside strings, which JSON forbids but models write, are escaped. Nothing else is changed."""
    text = text.strip()
    if not text:
        return "{}"
    try:
        return text if isinstance(json.loads(text, parse_constant=_no_constant), dict) else None
    except (ValueError, RecursionError):
        pass
    try:
        value = json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else None


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not JSON")
