"""An MCP server's definition as values: its process or address, allow, deny, read-only, and hiding its secrets in
messages. Also the bridge's limits, and the backoff before a restart (doubles, at most 60 s).

`sources.py` reads definitions.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from shlex import quote
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

HIDDEN: Final = "***"
SETTINGS: Final = "settings"
"""The origin of servers from the gateway's settings, not from a separate file."""
_SHORTEST_SECRET: Final = 5
"""Shorter values (`1`, `true`) are not secrets, and hiding them would corrupt other text."""
_KEY_IN_A_PATH: Final = 16
"""Shorter segments of a path are ordinary words."""


@dataclass(frozen=True, slots=True)
class Process:
    """A server that the gateway starts, with messages over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables in addition to the few that every server gets."""
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The client that the server's owner registered for this gateway; without an id the gateway registers itself."""

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    callback_port: int = 0
    """The port of the redirect address, for servers that compare it; 0 takes any free port."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote server. `auto` tries streamable HTTP, then SSE."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["auto", "http", "sse"] = "auto"
    oauth: OAuthClient | None = OAuthClient()
    """None forbids sign-in."""

    @property
    def signs_in(self) -> bool:
        """Whether OAuth is used. An `Authorization` header in the definition replaces it."""
        return self.oauth is not None and not any(name.lower() == "authorization" for name in self.headers)


@dataclass(frozen=True, slots=True)
class ServerDefinition:
    name: str
    reached: Process | Remote
    origin: str = ""
    """The file or setting that holds the definition."""
    allow: tuple[str, ...] = ()
    """Patterns of tool names; empty allows all."""
    deny: tuple[str, ...] = ()
    read_only: bool = False
    """Offer only tools that the server itself marks as read-only."""
    call_timeout: float | None = None
    connect_timeout: float | None = None
    expanded: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that came from the environment."""

    def offers(self, tool: str, *, read_only: bool) -> bool:
        """Whether the tool is offered. Deny wins over allow; patterns are case-sensitive shell patterns."""
        if self.read_only and not read_only:
            return False
        if any(fnmatchcase(tool, pattern) for pattern in self.deny):
            return False
        return not self.allow or any(fnmatchcase(tool, pattern) for pattern in self.allow)

    @property
    def place(self) -> str:
        """The command or address for messages, without credentials. A URL is cut to its host: paths may hold keys."""
        if isinstance(self.reached, Process):
            return self.hide(" ".join((self.reached.command, *self.reached.args)))
        parts = urlsplit(self.reached.url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"

    @property
    def login_command(self) -> str:
        file = "" if self.origin in ("", SETTINGS) else f" --mcp-config {quote(self.origin)}"
        return f"caretway mcp login {quote(self.name)}{file}"

    def hide(self, text: str) -> str:
        """`text` without any value that may be a credential of this server."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def _secrets(self) -> set[str]:
        values = set(self.expanded)
        if isinstance(self.reached, Process):
            values |= set(self.reached.env.values())
        else:
            parts = urlsplit(self.reached.url)
            values |= {word for header in self.reached.headers.values() for word in (header, *header.split())}
            values |= {self.reached.oauth.client_secret} if self.reached.oauth else set()
            values |= {parts.query, parts.password or "", *(pair.rpartition("=")[2] for pair in parts.query.split("&"))}
            values |= {segment for segment in parts.path.split("/") if len(segment) >= _KEY_IN_A_PATH}
        return {value for value in values if len(value) >= _SHORTEST_SECRET}


class Misfit(Struct, frozen=True):
    """A definition that cannot be used. /health, /v1/tools and the log name it; other servers are not affected."""

    name: str
    origin: str
    problem: str


class BridgeLimits(Struct, frozen=True):
    connect_timeout: float = 30.0
    """Time limit for starting a server, the handshake and listing its tools; also for listing them again."""
    call_timeout: float = 300.0
    """Time limit of a call without progress; each progress notification restarts it."""
    call_timeout_total: float = 3600.0
    """Time limit of a call with progress, unless `call_timeout` is longer."""
    result_bytes: int = 200_000
    """Bytes of text in one result."""
    image_bytes: int = 5 * 2**20
    """Bytes of one image in a result."""
    message_bytes: int = 16 * 2**20
    """Bytes of one line of a stdio server."""
    noise_lines: int = 10_000
    """Lines without a message that a stdio server may write before it is killed."""
    max_tools: int = 1000
    """Tools of one server."""
    max_pages: int = 100
    """Pages of one list of tools."""
    first_pause: float = 1.0
    longest_pause: float = 60.0
    relist_pause: float = 0.25
    """The shortest interval between two lists, for a server that keeps reporting changes."""
    check_interval: float = 60.0
    """Seconds between two lists of a remote server's tools, to notice its loss."""
    stop_grace: float = 1.5
    """The grace before a stdio server gets SIGTERM, and again before SIGKILL."""
    start_wait: float = 5.0
    """Seconds that the first requests wait for servers that are still connecting."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def pause_before(attempt: int, limits: BridgeLimits) -> float:
    """Seconds to wait before the next attempt; `attempt` counts the failures in a row, from 1."""
    return float(min(limits.longest_pause, limits.first_pause * 2 ** min(attempt - 1, 30)))
