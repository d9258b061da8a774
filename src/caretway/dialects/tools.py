"""Checks what a client says of its tools: a name's characters and length, a name that is used twice, a choice of a tool
that is not declared, `tool_choice` as a word (auto, none, required). Renames nothing: that is
`dialects/openai_responses/tools.py`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from ..core.request import ToolSpec
from .fields import At, FieldPath, invalid_value, needed_string

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
"""Wider than any API's own rule: MCP clients put dots, colons and slashes into names."""


def needed_name(tool: Mapping[str, object], at: At) -> str:
    """The required name of a tool."""
    return check_name(needed_string(tool, "name", at), FieldPath(at, "name"))


def check_name(name: str, param: At) -> str:
    if not _NAME.fullmatch(name):
        raise invalid_value(param, "use 1 to 128 letters, digits, or any of _ . : / -")
    return name


def check_unique(tools: Sequence[tuple[At, ToolSpec]]) -> tuple[ToolSpec, ...]:
    """The tools, each given with the place in the request that holds its name."""
    seen: dict[str, ToolSpec] = {}
    for at, tool in tools:
        if tool.name in seen:
            raise invalid_value(FieldPath(at, "name"), f"the tool name '{tool.name}' is used twice.")
        seen[tool.name] = tool
    return tuple(seen.values())


def check_declared(name: str, tools: tuple[ToolSpec, ...], param: str) -> str:
    if not any(tool.name == name for tool in tools):
        raise invalid_value(param, f"there is no tool {name[:128]!r} among the {len(tools)} declared ones.")
    return name


Mode = Literal["auto", "none", "required"]

_MODES: Final[dict[str, Mode]] = {"auto": "auto", "none": "none", "required": "required"}


def choice_mode(value: str, param: str, tools: tuple[ToolSpec, ...], forms: str) -> Mode:
    """`forms`: what may stand in this field, for a message."""
    mode = _MODES.get(value)
    if mode is None:
        raise invalid_value(param, f"use {forms}, not {value[:60]!r}.")
    if mode == "required" and not tools:
        raise invalid_value(param, "a tool call is required, and the request declares no tool that can be served.")
    return mode
