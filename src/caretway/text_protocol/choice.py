"""`tool_strict`: offered tools are demanded, for orchestrators that cannot go on with an answer that calls none."""

from msgspec.structs import replace

from ..core.request import TurnRequest


def demand_tools(request: TurnRequest) -> TurnRequest:
    """Only `auto` is made stricter: a caller that said none, required or a name meant it."""
    choice = request.tool_choice
    if not request.tools or choice.mode != "auto":
        return request
    return replace(request, tool_choice=replace(choice, mode="required"))
