"""Chat's `tools`, `tool_choice`, `parallel_tool_calls` and legacy `functions` -> ToolSpec and ToolChoice:
`allowed_tools`, a choice of a tool that is not declared, tools that are no functions (refused).

Does not know who executes a tool. Schemas are passed on unchanged; only their outermost structure is checked.
"""

from collections.abc import Mapping
from typing import Final

from ...core.errors import bad_request
from ...core.request import ToolChoice, ToolSpec
from ..fields import (
    FieldPath,
    an_array,
    an_object,
    missing,
    needed_string,
    optional_bool,
    optional_string,
    unsupported,
    wrong_type,
)
from ..tools import check_declared, check_unique, choice_mode, needed_name

_FIELDS: Final = frozenset({"tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"})
_FORMS: Final = "'auto', 'none', 'required' or {'type': 'function', 'function': {'name': ...}}"


def decode_tools(body: Mapping[str, object]) -> tuple[tuple[ToolSpec, ...], ToolChoice, bool]:
    """The tools, the choice, and whether the client uses the legacy form."""
    if _FIELDS.isdisjoint(body):
        return (), ToolChoice(), False
    modern = [_tool(one, FieldPath("", "tools", i)) for i, one in _each(body, "tools")]
    legacy = [_function(one, FieldPath("", "functions", i)) for i, one in _each(body, "functions")]
    if modern and legacy:
        raise bad_request("Send either 'tools' or 'functions', not both.", param="functions", code="invalid_value")
    parallel = optional_bool(body, "parallel_tool_calls") is not False
    if legacy:
        tools = check_unique(legacy)
        # One call at a time: the legacy answer has room for no more.
        return tools, _legacy_choice(body.get("function_call"), tools), True
    tools = check_unique(modern)
    return *_choose(body.get("tool_choice"), tools, parallel), False


def _each(body: Mapping[str, object], key: str) -> enumerate[object]:
    value = body.get(key)
    return enumerate(() if value is None else an_array(value, key))


def _tool(value: object, at: FieldPath) -> tuple[FieldPath, ToolSpec]:
    tool = an_object(value, at)
    kind = needed_string(tool, "type", at)
    if kind != "function":
        hint = "Declare a function, or use POST /v1/responses." if kind == "custom" else ""
        raise unsupported(f"{at}.type", f"Tools of type {kind[:60]!r} are not supported, only 'function'.", hint=hint)
    if tool.get("function") is None:
        raise missing(f"{at}.function")
    return _function(tool["function"], FieldPath(at, "function"))


def _function(value: object, at: FieldPath) -> tuple[FieldPath, ToolSpec]:
    """The tool, and where it was described."""
    function = an_object(value, at)
    name = needed_name(function, at)
    description = optional_string(function, "description", at) or ""
    schema = function.get("parameters")
    # `strict` is accepted and changes nothing: arguments are passed on exactly as the model wrote them.
    optional_bool(function, "strict", at)
    return at, ToolSpec(name, description, {} if schema is None else an_object(schema, FieldPath(at, "parameters")))


def _choose(value: object, tools: tuple[ToolSpec, ...], parallel: bool) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    if value is None:
        return tools, ToolChoice(parallel=parallel)
    if isinstance(value, str):
        return tools, ToolChoice(choice_mode(value, "tool_choice", tools, _FORMS), parallel=parallel)
    if not isinstance(value, dict):
        raise wrong_type("tool_choice", _FORMS, value)
    kind = needed_string(value, "type", "tool_choice")
    if kind == "function":
        name = _named(value, "tool_choice")
        check_declared(name, tools, "tool_choice.function.name")
        return tools, ToolChoice("named", name, parallel)
    if kind == "allowed_tools":
        return _allowed(value, tools, parallel)
    raise unsupported("tool_choice.type", f"A tool choice of type {kind[:60]!r} is not supported; use {_FORMS}.")


def _allowed(
    choice: Mapping[str, object], tools: tuple[ToolSpec, ...], parallel: bool
) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """Only some of the declared tools may be used: the others are not passed on."""
    param = "tool_choice.allowed_tools"
    if choice.get("allowed_tools") is None:
        raise missing(param)
    allowed = an_object(choice["allowed_tools"], param)
    names: set[str] = set()
    for i, one in enumerate(an_array(allowed.get("tools"), f"{param}.tools")):
        at = f"{param}.tools[{i}]"
        name = _named(an_object(one, at), at)
        check_declared(name, tools, f"{at}.function.name")
        names.add(name)
    left = tuple(tool for tool in tools if tool.name in names)
    mode = optional_string(allowed, "mode", param) or "auto"
    return left, ToolChoice(choice_mode(mode, f"{param}.mode", left, _FORMS), parallel=parallel)


def _legacy_choice(value: object, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    if value is None:
        return ToolChoice(parallel=False)
    if isinstance(value, str):
        return ToolChoice(choice_mode(value, "function_call", tools, _FORMS), parallel=False)
    if not isinstance(value, dict):
        raise wrong_type("function_call", "'auto', 'none' or {'name': ...}", value)
    name = needed_string(value, "name", "function_call")
    check_declared(name, tools, "function_call.name")
    return ToolChoice("named", name, parallel=False)


def _named(holder: Mapping[str, object], param: str) -> str:
    function = holder.get("function")
    if function is None:
        raise missing(f"{param}.function")
    return needed_string(an_object(function, f"{param}.function"), "name", f"{param}.function")
