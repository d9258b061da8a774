"""Whether the arguments of a tool call fit the tool's schema (JSON Schema), and when the model is told to correct them:
once in a turn. What cannot be judged cheaply fits. Pure.

A model is told where nobody has seen its call yet. Elsewhere the call is passed on with a note, or refused by a setting
(`tool_arguments`); that is decided in `sessions/response.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from ..core.request import ToolSpec
from .check import SchemaChecker
from .document import Unreadable

ArgumentRule = Literal["note", "refuse"]

CORRECTIONS: Final = 1
"""Of one turn. A model that is told twice is not helped, and every time costs a step."""
MAX_STEPS: Final = 3_000
"""Of one check: some milliseconds. A larger schema is not checked."""
MAX_CHECKED_CHARS: Final = 128 * 1024
MAX_CHECKED_CALLS: Final = 16
"""Of one response."""
_SAID: Final = 200


def misfit(tool: ToolSpec, arguments: str) -> str:
    """What is wrong with the arguments; empty when they fit, or if that cannot be known."""
    if len(arguments) > MAX_CHECKED_CHARS:
        return ""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return "they are not JSON"
    if not isinstance(value, dict):
        return "they are not an object"
    if not tool.schema:
        return ""
    try:
        problem = SchemaChecker(tool.schema, MAX_STEPS).first(value)
    except Unreadable:
        return ""
    return "" if problem is None else f"{problem.json_path}: {problem.message}"[:_SAID]


class ArgumentCheck:
    """The calls of one response, or of one turn that can correct its model."""

    __slots__ = ("_checked", "_corrections", "_found", "_specs")

    def __init__(self, tools: Sequence[ToolSpec], corrections: int = 0) -> None:
        self._specs = tools
        self._corrections = corrections
        self._checked = 0
        self._found: dict[str, ToolSpec] | None = None

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """By name; made when a call asks for it, which most turns do not."""
        if self._found is None:
            self._found = {tool.name: tool for tool in self._specs}
        return self._found

    def problem(self, name: str, arguments: str) -> str:
        tool = self.tools.get(name)
        self._checked += 1
        return misfit(tool, arguments) if tool is not None and self._checked <= MAX_CHECKED_CALLS else ""

    def correction(self, name: str, arguments: str) -> str:
        """What the model is to be told instead of running its call; empty: the call goes out."""
        if not self._corrections or not (problem := self.problem(name, arguments)):
            return ""
        self._corrections -= 1
        return f"The call was not made: its arguments do not fit the tool's schema ({problem}). Correct them."
