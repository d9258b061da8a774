"""Messages' `tools` and `tool_choice` -> ToolSpec and ToolChoice: tools that Anthropic runs itself are left out and
named, a choice of such a tool becomes auto, `disable_parallel_tool_use`.

Tools that Anthropic runs itself, or whose schema only its own models know, cannot be offered to Cursor: they are left
out and named, not refused, because clients like Claude Code always send them. Deferred tools are offered like others;
Claude Code's placeholder for those that it keeps back is left out. Changes that stand among the messages
(`tool_addition`, `tool_removal`) are applied in their order: what is offered is the result.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from ...core.request import ToolChoice, ToolSpec
from ..fields import (
    At,
    FieldPath,
    an_array,
    an_object,
    invalid_value,
    needed_string,
    optional_bool,
    optional_string,
)
from ..tools import check_declared, check_unique, needed_name

_READ: Final = frozenset({"type", "name", "description", "input_schema"})
SILENT_IN_TOOLS: Final = frozenset({"cache_control", "defer_loading", "eager_input_streaming", "strict"})
"""Without effect: arguments are always passed on as soon as the model writes them."""
_CHOICE: Final = frozenset({"type", "name", "disable_parallel_tool_use"})
_FORMS: Final = "{'type': 'auto'}, {'type': 'any'}, {'type': 'none'} or {'type': 'tool', 'name': ...}"


_PLACEHOLDER: Final = "DeferredToolPlaceholder"
"""Claude Code sends it, deferred, for all tools that the model has not searched for yet. It must not be called."""


class Tools(Struct):
    """The tools of a request. `left_out` has the names of those that are not offered."""

    offered: tuple[ToolSpec, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    left_out: set[str] = field(default_factory=set)
    ignored: dict[str, None] = field(default_factory=dict)


class ToolChange(Struct, frozen=True):
    """One `tool_addition` or `tool_removal`."""

    adds: bool
    tool: Mapping[str, object]
    at: FieldPath


def decode_tools(body: Mapping[str, object], changes: Iterable[ToolChange] = ()) -> Tools:
    tools = Tools()
    declared = body.get("tools")
    specs: list[tuple[At, ToolSpec]] = []
    for i, one in enumerate(() if declared is None else an_array(declared, "tools")):
        at = FieldPath("", "tools", i)
        spec = _tool(one, at, tools)
        if spec is not None:
            specs.append((at, spec))
    tools.offered = _changed(check_unique(specs), changes, tools)
    tools.choice = _choice(body.get("tool_choice"), tools)
    return tools


def _changed(declared: tuple[ToolSpec, ...], changes: Iterable[ToolChange], tools: Tools) -> tuple[ToolSpec, ...]:
    offered = {spec.name: spec for spec in declared}
    known = dict(offered)
    for change in changes:
        kind = needed_string(change.tool, "type", change.at)
        if kind == "tool_definition" and change.adds:
            spec = _tool(change.tool.get("definition"), FieldPath(change.at, "definition"), tools)
            if spec is not None:
                offered[spec.name] = known[spec.name] = spec
        elif kind == "tool_reference":
            name = needed_string(change.tool, "name", change.at)
            if not change.adds:
                offered.pop(name, None)
            elif name in known:
                offered[name] = known[name]
        else:  # tools of MCP servers that Anthropic connects to
            tools.ignored[f"{'tool_addition' if change.adds else 'tool_removal'}.{kind}"] = None
    return tuple(offered.values())


def _tool(value: object, at: FieldPath, tools: Tools) -> ToolSpec | None:
    tool = an_object(value, at)
    kind = optional_string(tool, "type", at)
    if kind not in (None, "custom"):
        tools.ignored[f"tools.{kind}"] = None
        tools.left_out.add(optional_string(tool, "name", at) or "")
        return None
    name = needed_name(tool, at)
    if name == _PLACEHOLDER and tool.get("defer_loading") is True:
        tools.left_out.add(name)
        return None
    for key in tool.keys() - _READ - SILENT_IN_TOOLS:
        if tool[key] is not None:
            tools.ignored[f"tools.{key}"] = None
    schema = tool.get("input_schema")
    return ToolSpec(
        name,
        optional_string(tool, "description", at) or "",
        {} if schema is None else an_object(schema, FieldPath(at, "input_schema")),
    )


def _choice(value: object, tools: Tools) -> ToolChoice:
    if value is None:
        return ToolChoice()
    choice = an_object(value, "tool_choice")
    kind = needed_string(choice, "type", "tool_choice")
    parallel = optional_bool(choice, "disable_parallel_tool_use", "tool_choice") is not True
    for key in choice.keys() - _CHOICE:
        tools.ignored[f"tool_choice.{key}"] = None
    if kind == "auto":
        return ToolChoice(parallel=parallel)
    if kind == "none":
        return ToolChoice("none")
    if kind == "any":
        if tools.offered:
            return ToolChoice("required", parallel=parallel)
        if not tools.left_out:
            raise invalid_value("tool_choice", "a tool call is required, and the request declares no tool.")
    elif kind == "tool":
        name = needed_string(choice, "name", "tool_choice")
        if name not in tools.left_out:
            return ToolChoice("named", check_declared(name, tools.offered, "tool_choice.name"), parallel)
    else:
        raise invalid_value("tool_choice.type", f"use {_FORMS}, not {kind[:60]!r}.")
    # It wants a tool that cannot be offered (Claude Code's web search does): an answer in words is the best there is.
    tools.ignored["tool_choice"] = None
    return ToolChoice(parallel=parallel)
