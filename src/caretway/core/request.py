"""A client's request, independent of its dialect: messages and their parts, tools, tool choice, output format, session
mode, model choice. Values only.

Tool arguments stay unparsed JSON text; the code that needs them parses them. Values are structs: a long history has
thousands, and a struct costs a third of a frozen dataclass. The garbage collector does not track structs that hold only
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import groupby
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
        content = self.content
        if len(content) == 1 and isinstance(only := content[0], Text):
            return only.text  # nearly always
        return _joined(content)


Part = Text | Image | Reasoning | ToolCall | ToolResult


class Role(Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"

    __hash__ = object.__hash__  # Enum.__hash__ is a Python function


class Message(Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The plain text of the message, parts joined without a separator."""
        parts = self.parts
        if len(parts) == 1 and isinstance(only := parts[0], Text):
            return only.text  # nearly always
        return _joined(parts)


def _joined(parts: Sequence[Part]) -> str:
    return "".join([part.text for part in parts if isinstance(part, Text)])


SYSTEM_WORDS: Final = "<system_message>\n{}\n</system_message>"
"""Marks the text of a system message inside a user message."""
_SYSTEM_MARK: Final = SYSTEM_WORDS.partition("{")[0]
_USER_MARK: Final = "\n\n[The user adds:]\n"


def as_user_text(message: Message) -> Text:
    """The text of a message, marked if it is a system message."""
    return system_text(message.text) if message.role is Role.SYSTEM else Text(message.text)


def system_text(words: str) -> Text:
    return Text(SYSTEM_WORDS.format(words))


def are_the_systems(words: Sequence[Text]) -> bool:
    """Whether all texts are made by `system_text`."""
    return all(text.text.startswith(_SYSTEM_MARK) for text in words)


def added_words(extra: Sequence[Text]) -> Text:
    """The words that came with a tool result, to be added to it: the user's with a heading, the system's marked."""
    said = ""
    for systems, texts in groupby(extra, lambda text: are_the_systems([text])):
        words = "\n\n".join([text.text for text in texts])
        said += f"\n\n{words}" if systems else f"{_USER_MARK}{words}"
    return Text(said)


def are_added(words: Text) -> bool:
    """Whether the text is made by `added_words`."""
    return words.text.startswith((_USER_MARK, f"\n\n{_SYSTEM_MARK}"))


def joined(messages: Sequence[Message]) -> Message:
    """Adjacent messages joined into one user message."""
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
    """JSON schema of the arguments; empty: any object."""
    namespace: str = ""
    """The client's namespace for the tool; not sent to the model."""
    hints: tuple[tuple[str, bool], ...] = ()
    """The hints of its MCP server (`readOnlyHint`, `destructiveHint` ...)."""


class ToolSet(tuple[ToolSpec, ...]):
    """Tools that many requests share. Hashed by identity, so that what follows from them can be cached."""

    __slots__ = ()
    __hash__ = object.__hash__


class ToolChoice(Struct, frozen=True):
    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    """The tool that must be called; only with mode `named`."""
    parallel: bool = True
    """False: at most one call in a response."""


class OutputFormat(Struct, frozen=True):
    """The answer must be JSON and match the schema, if there is one."""

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
    """The model name in the answer; empty: the requested name."""
    exactly: str = ""
    """The model with its parameters, as one id."""
    why: str = ""
    slug: str = ""
    """The flat id of the same choice; empty if there is none."""
    max_mode: bool = False
    listed: bool = True
    """Whether Cursor's list of models has the model."""
    images: bool | None = None
    """Whether the model accepts images; None: unknown."""
    instead_of: str = ""
    """The refused model that this model of the same alias replaces."""


class ModelFallback(Struct, frozen=True):
    """The next model of an alias, or of the request's own list. Never set by a dialect."""

    model: str
    parameters: tuple[tuple[str, str], ...]
    choice: ModelChoice
    asked: str = ""
    """The name in the request's own list; empty: the model is from an alias."""


# ---- The protocols for charging the runs of a turn; budgets implement them.


class RunCharge(Protocol):
    @property
    def notice(self) -> str:
        """A notice for the client that a budget is nearly used up; empty if none is."""
        ...

    async def open_run(self, request: TurnRequest) -> None:
        """Count one more run. Raises GatewayError if no further run is allowed."""
        ...

    def run_failed(self) -> None:
        """Uncount the last run, which was not opened."""
        ...

    def response_ended(self, variant: str, usage: Usage | None) -> None:
        """Add the usage of a response, which has the total of its run if the run has ended."""
        ...

    def stage(self, request: TurnRequest) -> Stage | None:
        """A stage that ends the response when its run exceeds its own limit; None without such a limit."""
        ...


class RunCharges(Protocol):
    def charge(self, key: str, conversation: str) -> RunCharge | None:
        """A charge for the runs of one turn; None if nothing is counted. `conversation` is the gateway's id."""
        ...


class TurnRequest(Struct, frozen=True):
    """One decoded request. `messages` is the whole history as the client sent it, system messages included."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    stop: tuple[str, ...] = ()
    web_search: bool = False
    """Whether the client offers its provider's own web search, so that a search may be part of the answer."""
    output_format: OutputFormat | None = None
    effort: str | None = None
    """Reasoning effort as the client named it (`low`, `medium`, `high` ...)."""
    thinking: bool | None = None
    """Whether the model shall think; None: not specified."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Model parameters (id, value) as in the model list, chosen to fit the client's request."""
    choice: ModelChoice = ModelChoice()
    fallbacks: tuple[ModelFallback, ...] = ()
    """The other models of the requested alias, then `else_models`; tried in order after a refusal by Cursor."""
    else_models: tuple[str, ...] = ()
    """The names of other models that the client accepts instead."""
    session: SessionMode | None = None
    """None: the gateway's setting decides."""
    hint: str = ""
    """The client's own name for its conversation, or empty. It explains decisions, but never resumes a turn."""
    kind: str = "turn"
    """The purpose of the request, as in `dialects/kinds.py`. Only for accounting."""
    workspace: str | None = None
    """The requested working directory. The code that uses it checks the allow-list."""
    home: str | None = None
    """The only directory that the caller's key may work in; it replaces the allow-list. Never set by a dialect."""
    bridge: bool | None = None
    """Whether to offer the gateway's own MCP tools, too; None: the gateway's setting decides."""
    bridged: frozenset[str] = frozenset()
    """Names in `tools` that the gateway added and runs itself. Never set by a dialect."""
    reopened: int = 0
    """How many earlier runs for this request were lost. Never set by a dialect."""
    max_output: int | None = None
    """The client's limit of the answer in tokens. Enforced only if the setting `max_tokens` is `cut`."""
    charge: RunCharge | None = None
    """Counts each run that is opened for this request. Never set by a dialect."""
    stream: bool = False
    generate: bool = True
    """False: a warm-up. The request is checked and stored, but no model is called."""
    large: bool = False
    """Whether linear work on the request must run in `tasks.aside`."""
    include_usage: bool = False
    ignored: tuple[str, ...] = ()
    """Fields without effect, which a header reports."""
    call_prefix: str = "call_"
    """The prefix of call ids in the client's API; some clients rewrite ids that look foreign."""
    echo: Mapping[str, object] = field(default_factory=dict)
    """Values for the dialect's answer. Opaque to all other packages."""

    @property
    def system(self) -> str:
        """The instructions: the text of the leading system (and developer) messages."""
        first = leading(self.messages)
        return "\n\n".join([m.text for m in self.messages[:first] if m.text]) if first else ""

    @property
    def talk(self) -> list[Message]:
        """The messages after the instructions. A later system message stays in place, as marked text of the adjacent
        user message."""
        first = leading(self.messages)
        talk = [*self.messages[first:]]
        return talk if _no_systems(talk) else in_place(self.messages)[first:]


def leading(messages: Sequence[Message]) -> int:
    """How many system messages precede all others."""
    for count, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return count
    return len(messages)


def _no_systems(messages: Sequence[Message]) -> bool:
    """Whether there is no system message, as is usual after the leading ones."""
    return Role.SYSTEM not in [message.role for message in messages]


def in_place(messages: Sequence[Message]) -> list[Message]:
    """Turn each system message after the leading ones into marked user text, and join it with adjacent user
    messages."""
    first = leading(messages)
    if _no_systems(messages[first:]):
        return list(messages)
    talk = [[message] for message in messages[:first]]
    beside = False  # the last message of `talk` ends with system text
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
    """Whether the last message is a tool result, ignoring system messages after it."""
    for message in reversed(messages):
        if message.role is not Role.SYSTEM:
            return message.role is Role.TOOL
    return False


def last_answer(messages: Sequence[Message]) -> int:
    """The number of messages up to and including the last assistant message; 0 without one."""
    for count in range(len(messages), 0, -1):
        if messages[count - 1].role is Role.ASSISTANT:
            return count
    return 0
