"""The setting `tool_strict`: `tool_choice` auto becomes required when tools are offered, for orchestrators that cannot
use an answer without a call. An answer to tool results may end the turn in words, so nothing is demanded of it."""

from msgspec.structs import replace

from ...core.request import Role, TurnRequest, last_answer


def demand_tools(request: TurnRequest) -> TurnRequest:
    """Only `auto` becomes stricter: a caller that chose none, required or a name meant it."""
    choice = request.tool_choice
    if not request.tools or choice.mode != "auto":
        return request
    if any(message.role is Role.TOOL for message in request.messages[last_answer(request.messages) :]):
        return request
    return replace(request, tool_choice=replace(choice, mode="required"))
