"""The simulated model's input as values: messages, parts, tools, and the lookup of a tool by name (plain or
`mcp_PROVIDER_NAME`).

Imports only the standard library, so that a stand-in program starts fast.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

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
    """base64; empty if the image itself was not sent."""


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
    in_prose: bool = False
    """Found in prose or in a turn's steps: the model has read it, but the state does not hold it as a result."""


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
        """The name that its owner gave it; `name` usually has the provider in front."""
        return self.tool_name or self.name

    @property
    def prefixed(self) -> str:
        """The name under which models were recorded to call it occasionally."""
        return f"mcp_{self.provider}_{self.shown}"


def find(tools: Sequence[Tool], name: str) -> Tool | None:
    return next((tool for tool in tools if name in (tool.tool_name, tool.name, tool.prefixed)), None)


K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A mapping that forgets the entries that were set longest ago."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)


# ---- tokens

# Simulated token estimates (four bytes each) and the prefix cache: which pieces of a prompt are cached, including a
# hidden preamble of 12,000 tokens.

CONTEXT_TOKENS: Final = 200_000
IMAGE_TOKENS: Final = 800
PREAMBLE_TOKENS: Final = 12_000
"""Instructions and built-in tools that Cursor puts before every prompt, hidden from clients: 10,000 to 15,000
tokens."""
MAX_PREFIXES: Final = 50_000
_BYTES_PER_TOKEN: Final = 4


def estimate(text: str) -> int:
    """About four bytes a token; non-empty text costs at least one token."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Charge:
    cached: int
    uncached: int


def preamble(model: str) -> Piece:
    """Cursor's preamble, equal in all conversations with a model and first in the prompt: the second run finds it
    cached."""
    return Piece(f"preamble\x00{model}", PREAMBLE_TOKENS)


class PrefixCache:
    def __init__(self, max_prefixes: int = MAX_PREFIXES) -> None:
        self._seen: Recent[bytes, None] = Recent(max_prefixes)

    def charge(self, prompt: Sequence[Piece]) -> Charge:
        """Cached and uncached tokens of this prompt; afterwards all its prefixes are cached."""
        cached = uncached = 0
        rolling = hashlib.sha256()
        warm = True
        for piece in prompt:
            data = piece.text.encode("utf-8", "surrogatepass")
            rolling.update(len(data).to_bytes(8, "big") + data)
            key = rolling.digest()
            warm = warm and key in self._seen
            if warm:
                cached += piece.tokens
            else:
                uncached += piece.tokens
            self._seen[key] = None
        return Charge(cached, uncached)
