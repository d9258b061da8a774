"""Decides for one request whether Cursor's built-in tools are redirected to the client's tools, run in the workspace,
or refused with the names of the available tools. Covers `tool_choice` none and requests with only MCP tools.

For a request with tools nothing runs in the gateway. For a request without tools the local tools run inside the
workspace, if there is a workspace and the setting allows them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from ...core.request import ToolSpec, TurnRequest
from ...core.tally import prompt_chars
from ...cursor.wire.messages import pb
from ...sessions.loop_guard import GuardSettings, LiveGuard
from .execs import Decision, JobRunner, Policy, Refuse
from .redirector import Redirector

MCP_TOOL_CALLS: Final = (
    "mcp_tool_call,get_mcp_tools_tool_call,list_mcp_resources_tool_call,read_mcp_resource_tool_call,mcp_auth_tool_call"
)
"""The allowed tools that the official SDK sends for custom tools only."""
WEB_TOOL_CALLS: Final = "web_search_tool_call,web_fetch_tool_call"
NO_TOOLS: Final = "No tools are available in this conversation: answer in text."


class ToolRules(Struct, frozen=True):
    policy: Policy
    allowed: str
    """The tools that the model may use, as sent to Cursor; empty for none."""
    jobs: JobRunner | None = None
    workspace: str | None = None


ToolPolicy = Callable[[TurnRequest], ToolRules]


class LocalSetup(Struct, frozen=True):
    mode: Literal["read-only", "all", "off"]
    workspace: Path | None
    workspaces: Sequence[Path]
    environment: Mapping[str, str]
    shell_timeout: float = 120.0
    output_bytes: int = 200_000
    """Bytes of a tool's output that are kept."""
    guard: GuardSettings = field(default_factory=GuardSettings)
    web: bool = False
    """Whether Cursor may search the web itself."""


def tool_policy(local: LocalSetup) -> ToolPolicy:
    nothing = ToolRules(_refuse_all(NO_TOOLS), "")

    def rules(request: TurnRequest) -> ToolRules:
        own = [tool for tool in request.tools if tool.name not in request.bridged]
        if own and request.tool_choice.mode != "none":
            return _client_rules(request, own)
        wanted = local.workspace is not None or request.workspace is not None or request.home is not None
        if own or local.mode == "off" or not wanted:
            bridged = not own and request.tools
            return _bridged_rules(request) if bridged else nothing
        from .local.tools import GuardedTools, LocalTools
        from .local.workspaces import workspace_of

        workspace = workspace_of(request, local.workspace, local.workspaces)
        tools = LocalTools(workspace, local.mode, local.shell_timeout, local.output_bytes, local.environment)
        allowed = ",".join(filter(None, (tools.allowed_tools, MCP_TOOL_CALLS if request.tools else "")))
        guarded = GuardedTools(tools.decide, tools, LiveGuard(local.guard, time.monotonic, prompt_chars(request)))
        return ToolRules(guarded.decide, allowed, guarded, str(workspace))

    def with_web(request: TurnRequest) -> ToolRules:
        found = rules(request)
        if request.tool_choice.mode == "none":
            return found
        return replace(found, allowed=",".join(filter(None, (found.allowed, WEB_TOOL_CALLS))))

    return with_web if local.web else rules


def _client_rules(request: TurnRequest, own: Sequence[ToolSpec]) -> ToolRules:
    """Redirect built-in tools to the client's own tools, never to tools that the gateway added. The schemas are read
    when Cursor uses its first built-in tool; few runs do."""
    tools = request.tools
    redirector = cache(lambda: Redirector(own))

    def policy(exec_: pb.ExecServerMessage) -> Decision:
        return redirector().translate(exec_) or Refuse(_others(tools))

    return ToolRules(policy, MCP_TOOL_CALLS)


def _bridged_rules(request: TurnRequest) -> ToolRules:
    return ToolRules(_refuse_all(_others(request.tools)), MCP_TOOL_CALLS)


def _others(tools: Sequence[ToolSpec]) -> str:
    return f"This tool is not available here. These are: {', '.join(tool.name for tool in tools)}."


def _refuse_all(reason: str) -> Policy:
    return lambda _: Refuse(reason)
