"""A client's request in our own form: messages and their parts, tools, tool choice, output format, session mode, model
choice. Values only; no dialect's field names.

Tool arguments stay the JSON text they arrived as; the code that needs them parses them. Values are structs: a long
history has thousands of them, and they cost a third of what frozen dataclasses do. Those that hold only text are not
tracked by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from .events import Usage
    from .turn import Stage


class Text(Struct, frozen=True, gc=False):
    text: str


class Image(Struct, frozen=True, gc=False):
    data: bytes
    mime_type: str


class Reasoning(Struct, frozen=True, gc=False):
    """Thinking that a client sends back. `signature` is opaque and is passed on unchanged."""

    text: str
    signature: str = ""


class ToolCall(Struct, frozen=True, gc=False):
    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True):
    call_id: str
    content: tuple[Text | Image, ...]
    is_error: bool = False

    @property
    def text(self) -> str:
        return _joined(self.content)


Part = Text | Image | Reasoning | ToolCall | ToolResult


class Role(Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"

    __hash__ = object.__hash__  # that of Enum is a call of a Python function


class Message(Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The plain text of the message, parts joined without a separator."""
        return _joined(self.parts)


def _joined(parts: Sequence[Part]) -> str:
    if len(parts) == 1 and isinstance(only := parts[0], Text):
        return only.text  # nearly always
    return "".join([part.text for part in parts if isinstance(part, Text)])


SYSTEM_WORDS: Final = "<system_message>\n{}\n</system_message>"
"""Marks the text of a system message that stands among the user's words."""


ADDED_WORDS: Final = "\n\n[The user adds:]\n"
"""Begins the last part of a result, if words came beside it."""


def as_user_text(message: Message) -> Text:
    """The text of a message, marked if it is the system's."""
    return system_text(message.text) if message.role is Role.SYSTEM else Text(message.text)


def system_text(words: str) -> Text:
    return Text(SYSTEM_WORDS.format(words))


def are_the_systems(words: Sequence[Text]) -> bool:
    """Each of them is a `system_text`."""
    mark = SYSTEM_WORDS.partition("{")[0]
    return all(text.text.startswith(mark) for text in words)


def joined(messages: Sequence[Message]) -> Message:
    """Neighbouring messages as one of the user."""
    if len(messages) == 1 and messages[0].role is Role.USER:
        return messages[0]
    parts: list[Part] = []
    for message in messages:
        if parts and message.text:
            parts.append(Text("\n\n"))
        parts += message.parts
    return Message(Role.USER, tuple(parts))


class ToolSpec(Struct, frozen=True):
    """A tool the client declared and will execute."""

    name: str
    description: str = ""
    schema: Mapping[str, object] = field(default_factory=dict)
    """JSON schema of the arguments; empty means: any object."""
    namespace: str = ""
    """Where the client has it; the model is not told."""
    hints: tuple[tuple[str, bool], ...] = ()
    """What its MCP server claims about it (`readOnlyHint`, `destructiveHint` ...)."""


class ToolChoice(Struct, frozen=True):
    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    """The tool that must be called; only with mode `named`."""
    parallel: bool = True
    """False: at most one call in a response."""


class OutputFormat(Struct, frozen=True):
    """The answer must be JSON; with a schema if there is one."""

    name: str = ""
    schema: Mapping[str, object] | None = None


class SessionMode(Enum):
    AUTO = "auto"
    """Resume when safe, otherwise replay the history into a fresh run."""
    FRESH = "fresh"
    """Never reuse anything."""
    REQUIRED = "required"
    """Resume or fail."""


class ModelChoice(Struct, frozen=True, gc=False):
    """How the model of a request was chosen. Never set by a dialect."""

    answers_as: str = ""
    """What the answer says its model is; empty: the name that was asked for."""
    exactly: str = ""
    """The model with its parameters, as one id."""
    why: str = ""
    slug: str = ""
    """The flat id of the same choice; empty when there is none."""
    max_mode: bool = False
    listed: bool = True
    """Cursor's list of models has it."""
    images: bool | None = None
    """Whether the model takes pictures; None: unknown."""
    instead_of: str = ""
    """The model that was refused before this one of the same alias was asked."""


class ModelFallback(Struct, frozen=True):
    """The next model of an alias, or of the request's own list. Never set by a dialect."""

    model: str
    parameters: tuple[tuple[str, str], ...]
    choice: ModelChoice
    asked: str = ""
    """The name in the request's own list; empty: an alias names it."""


# ---- What the runs of one turn are charged. No behaviour; budgets implement it.


class RunCharge(Protocol):
    @property
    def notice(self) -> str:
        """What to tell the client: how little is left; empty if not needed."""
        ...

    async def open_run(self, request: TurnRequest) -> None:
        """One more run. It is counted when this returns. Raises GatewayError when there may be none."""
        ...

    def run_failed(self) -> None:
        """The run that was counted last was not opened."""
        ...

    def response_ended(self, variant: str, usage: Usage | None) -> None:
        """What a response has used; with the total of its run, if that has ended."""
        ...

    def stage(self, request: TurnRequest) -> Stage | None:
        """Ends the response when its run passes a limit of its own; None when there is none."""
        ...


class RunCharges(Protocol):
    def charge(self, key: str, conversation: str) -> RunCharge | None:
        """For the runs of one turn; None when nothing is counted. `key` is a caller's, `conversation` ours."""
        ...


class TurnRequest(Struct, frozen=True):
    """One decoded request. `messages` is the whole history as the client sent it, system messages included."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    stop: tuple[str, ...] = ()
    output_format: OutputFormat | None = None
    effort: str | None = None
    """Reasoning effort as the client named it (`low`, `medium`, `high` ...)."""
    thinking: bool | None = None
    """Whether the model is to think; None: the client did not say."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Model parameters (id, value) as in the model list, chosen to fit the client's request."""
    choice: ModelChoice = ModelChoice()
    fallbacks: tuple[ModelFallback, ...] = ()
    """The other models of the alias that was asked for, then `else_models`; asked in order when Cursor refuses one."""
    else_models: tuple[str, ...] = ()
    """The names of other models that the client takes instead."""
    session: SessionMode | None = None
    """None: the gateway's setting decides."""
    hint: str = ""
    """The client's own name for its conversation; empty: it has none. It helps to tell why, and resumes nothing."""
    kind: str = "turn"
    """What its client wants it for, as in `dialects/kinds.py`. For accounting alone."""
    workspace: str | None = None
    """The directory that the request wants to work in. Its user checks it against the allow-list."""
    home: str | None = None
    """The only directory that the caller's key may work in; it takes the place of the allow-list. Never set by a
    dialect."""
    bridge: bool | None = None
    """Whether the gateway's own MCP tools are wanted beside the client's; None: the gateway's setting decides."""
    bridged: frozenset[str] = frozenset()
    """Names in `tools` that the gateway added and runs itself. Never set by a dialect."""
    reopened: int = 0
    """How many earlier runs for this request were lost. Never set by a dialect."""
    max_output: int | None = None
    """The longest answer in tokens, as the client wants it. Cut only where a setting says so (`stages/token_cut`)."""
    charge: RunCharge | None = None
    """Asked before each run that is opened for this request. Never set by a dialect."""
    stream: bool = False
    generate: bool = True
    """False: a warm-up. The request is checked and remembered, and no model is asked."""
    large: bool = False
    """So large that work in proportion to its size must run in `tasks.aside`."""
    include_usage: bool = False
    ignored: tuple[str, ...] = ()
    """Fields that were understood but cannot be honoured; reported in a header."""
    call_prefix: str = "call_"
    """The prefix of call ids in the client's API; some clients rewrite ids that look foreign."""
    echo: Mapping[str, object] = field(default_factory=dict)
    """What the dialect must repeat in its answer. Opaque to all other rooms."""

    @property
    def system(self) -> str:
        """The instructions: the text of the leading system (and developer) messages."""
        return "\n\n".join([m.text for m in self.messages[: leading(self.messages)] if m.text])

    @property
    def talk(self) -> list[Message]:
        """The messages after the instructions. A later system message stays where it stands, as marked text of the
        user's message beside it."""
        return in_place(self.messages)[leading(self.messages) :]


def leading(messages: Sequence[Message]) -> int:
    """How many system messages stand before all others."""
    for count, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return count
    return len(messages)


def in_place(messages: Sequence[Message]) -> list[Message]:
    """Turn each system message after the leading ones into marked user text, and join it with adjacent user
    messages."""
    first = leading(messages)
    if all(message.role is not Role.SYSTEM for message in messages[first:]):
        return list(messages)  # nearly always
    talk = [[message] for message in messages[:first]]
    beside = False  # the last one of `talk` ends with the system's words
    for message in messages[first:]:
        marked = message.role is Role.SYSTEM
        if marked:
            if not message.text:
                continue
            message = Message(Role.USER, (as_user_text(message),))
        if (marked or beside) and message.role is Role.USER and talk and talk[-1][0].role is Role.USER:
            talk[-1].append(message)
        else:
            talk.append([message])
        beside = marked
    return [group[0] if len(group) == 1 else joined(group) for group in talk]


def ends_with_results(messages: Sequence[Message]) -> bool:
    """The last message is a tool's, whatever the system said after it."""
    for message in reversed(messages):
        if message.role is not Role.SYSTEM:
            return message.role is Role.TOOL
    return False


def last_answer(messages: Sequence[Message]) -> int:
    """How many messages there are up to and including the last one of the assistant; 0 without one."""
    for count in range(len(messages), 0, -1):
        if messages[count - 1].role is Role.ASSISTANT:
            return count
    return 0
