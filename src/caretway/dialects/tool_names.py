"""The names of tools a client declares: which are possible, and that each is used once."""

import re
from collections.abc import Iterable
from typing import Final

from ..core.request import ToolSpec
from .fields import invalid_value

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
"""Wider than any API's own rule: MCP clients put dots, colons and slashes into names."""


def check_name(name: str, param: str) -> str:
    if not _NAME.fullmatch(name):
        raise invalid_value(param, "use 1 to 128 letters, digits, or any of _ . : / -")
    return name


def check_unique(tools: Iterable[tuple[str, ToolSpec]]) -> tuple[ToolSpec, ...]:
    """The tools, each given with the place of its name in the request."""
    seen: dict[str, ToolSpec] = {}
    for param, tool in tools:
        if tool.name in seen:
            raise invalid_value(param, f"the tool name '{tool.name}' is used twice.")
        seen[tool.name] = tool
    return tuple(seen.values())


def check_declared(name: str, tools: tuple[ToolSpec, ...], param: str) -> str:
    if not any(tool.name == name for tool in tools):
        raise invalid_value(param, f"there is no tool {name[:128]!r} among the {len(tools)} declared ones.")
    return name
