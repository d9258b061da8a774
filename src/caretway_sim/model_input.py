"""What the simulated model reads, as values: messages, parts, tools, and which tool a name means (plain or
`mcp_PROVIDER_NAME`). Imports only the standard library.

A stand-in that is started as a program must start fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class InputText:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    mime_type: str
    data: str = ""
    """base64; empty when the picture itself was not sent along."""


@dataclass(frozen=True, slots=True)
class InputCall:
    call_id: str
    name: str
    args: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class InputResult:
    call_id: str
    name: str
    text: str
    is_error: bool = False
    told: bool = False
    """Told in prose or in a turn's steps: the model has read it, the state does not hold it as a result."""


Part = InputText | Thought | Picture | InputCall | InputResult


@dataclass(frozen=True, slots=True)
class InputMessage:
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, InputText))


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    tool_name: str
    provider: str = ""
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The name its owner gave it; `name` usually carries the provider in front."""
        return self.tool_name or self.name

    @property
    def prefixed(self) -> str:
        """The name under which models were seen to call it now and then."""
        return f"mcp_{self.provider}_{self.shown}"


def find(tools: Sequence[Tool], name: str) -> Tool | None:
    return next((tool for tool in tools if name in (tool.tool_name, tool.name, tool.prefixed)), None)
