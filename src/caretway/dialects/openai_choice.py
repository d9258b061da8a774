"""`tool_choice` as a word (auto, none, required) in both of OpenAI's APIs; `required` without a tool is an error."""

from typing import Final, Literal

from ..core.request import ToolSpec
from .fields import invalid_value

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
