"""What a client asks for, in our own canonical form. No dialect's field names survive `decode`.

Tool arguments stay the JSON text they arrived as; whoever needs them parsed parses them at that edge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking that a client sends back. `signature` is opaque and rides along untouched."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    content: tuple[Text | Image, ...]
    is_error: bool = False

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, Text))


Part = Text | Image | Reasoning | ToolCall | ToolResult


class Role(Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The plain text of the message, parts joined without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool the client declared and will execute."""

    name: str
    description: str = ""
    schema: Mapping[str, object] = field(default_factory=dict)
    """JSON schema of the arguments; empty means: any object."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    """The tool that must be called; only with mode `named`."""
    parallel: bool = True
    """False: at most one call in a response."""


@dataclass(frozen=True, slots=True)
class OutputFormat:
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


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One decoded request. `messages` is the whole history as the client sent it, system messages included."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    stop: tuple[str, ...] = ()
    output_format: OutputFormat | None = None
    effort: str | None = None
    """Reasoning effort as the client named it (`low`, `medium`, `high` ...)."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Model parameters (id, value) as the model list names them; fitted from what the client asked for."""
    session: SessionMode | None = None
    """None: the gateway's setting decides."""
    workspace: str | None = None
    """The directory the request wants to work in; checked against the allow-list by whoever uses it."""
    bridge: bool | None = None
    """Whether the gateway's own MCP tools are wanted beside the client's; None: the gateway's setting decides."""
    bridged: frozenset[str] = frozenset()
    """Names in `tools` that the gateway added and runs itself. Never set by a dialect."""
    stream: bool = False
    include_usage: bool = False
    ignored: tuple[str, ...] = ()
    """Fields that were understood and cannot be honoured; sent back as a header."""
    echo: Mapping[str, object] = field(default_factory=dict)
    """What the dialect must repeat in its answer. Opaque to everybody else."""

    @property
    def system(self) -> str:
        """All system (and developer) text, in order, as one instruction."""
        return "\n\n".join(m.text for m in self.messages if m.role is Role.SYSTEM and m.text)
