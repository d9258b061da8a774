"""What happens to Cursor's built-in tools for one request. Pure: the request in, a policy out."""

from ...core.request import TurnRequest
from ...wire.messages import pb
from .calls import Decision, Policy, Refuse
from .turn import JobRunner

MCP_TOOL_CALLS = (
    "mcp_tool_call,get_mcp_tools_tool_call,list_mcp_resources_tool_call,read_mcp_resource_tool_call,mcp_auth_tool_call"
)
"""What the official SDK allows when only custom tools are wanted."""


def tool_policy(request: TurnRequest) -> tuple[Policy, JobRunner | None, str | None]:
    """(what to do with built-in execs, who runs those that run here, which tools the model is told it may use)."""
    offered = [tool.name for tool in request.tools] if request.tool_choice.mode != "none" else []
    reason = (
        f"This tool is not available here. These are: {', '.join(offered)}."
        if offered
        else "No tools are available in this conversation: answer in text."
    )

    def policy(exec_: pb.ExecServerMessage) -> Decision:
        return Refuse(reason)

    return policy, None, MCP_TOOL_CALLS if offered else ""
