"""The words that settings with a choice can take, and the groups of settings. Values only.

Rows of the table (settings.py) refer to these; what a word means is known where the setting is used.
"""

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
CliTransport = Literal["auto", "acp", "print"]
CliMode = Literal["ask", "plan", "agent", "force"]
CliToolEvents = Literal["hidden", "reasoning", "tool_calls"]
LocalTools = Literal["read-only", "all", "off"]
WebSearchBy = Literal["off", "client", "cursor"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
AuthMode = Literal["own", "passthrough"]
TokenStore = Literal["file", "keyring"]
ImageScope = Literal["off", "public", "any"]
McpOffer = Literal["always", "ask", "never"]
McpActivity = Literal["hidden", "note", "reasoning"]
