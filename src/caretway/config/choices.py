"""The words that settings with a choice can take, the groups of settings, and the built-in model aliases for
cursor-agent. Values only.

Rows of the table (settings.py) refer to these; what a word means is known where the setting is used.
"""

from collections.abc import Mapping
from typing import Final, Literal

SERVER: Final = "server"
CURSOR: Final = "Cursor"
SESSIONS: Final = "sessions and tools"
MCP: Final = "MCP servers"
LIMITS: Final = "limits"
CLUSTER: Final = "several gateways"
GROUPS: Final = (SERVER, CURSOR, SESSIONS, MCP, LIMITS, CLUSTER)

BackendName = Literal["auto", "sdk", "cli", "agent", "legacy-chat", "simulator"]
WhenAway = Literal["refuse", "allow"]
TransportName = Literal["auto", "h2", "http1"]
SessionName = Literal["auto", "fresh", "required"]
MaxTokens = Literal["ignore", "cut"]
NoProgressRule = Literal["warn", "stop", "off"]
ToolArguments = Literal["note", "refuse"]
ThinkingName = Literal["visible", "hide", "inline"]
PromptStyle = Literal["tags", "transcript"]
SystemDelivery = Literal["rule", "message"]
HistoryCarrier = Literal["root", "typed"]
ReplayAction = Literal["message", "resume"]
ReplayToolNames = Literal["plain", "prefixed"]
SdkSystemDelivery = Literal["custom", "message"]
CliTransport = Literal["auto", "acp", "print"]
CliTools = Literal["auto", "text"]
CliMode = Literal["ask", "plan", "agent"]
CliToolEvents = Literal["hidden", "reasoning", "tool_calls"]
LocalTools = Literal["read-only", "all", "off"]
WebSearchBy = Literal["off", "client", "cursor"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
AuthMode = Literal["own", "passthrough"]
TokenStore = Literal["file", "keyring"]
ModelShapeName = Literal["auto", "base", "details", "both", "requested"]
ImageScope = Literal["off", "public", "any"]
McpOffer = Literal["always", "ask", "never"]
McpActivity = Literal["hidden", "note", "reasoning"]

CLI_ALIASES: Final[Mapping[str, str]] = dict.fromkeys(
    ("gpt-4", "gpt-4o", "gpt-3.5-turbo", "claude-sonnet-4-5", "claude-opus-4-5", "claude-3-5-sonnet"), "auto"
)
"""Names that clients have built in. If Cursor has a model of that name, that model is used."""
