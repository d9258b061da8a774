"""Checks a server's tools/list before the SDK reads it: leaves out an invalid tool and reports the reason; a schema
without a type becomes an object. Pure.

Without the check the SDK would refuse the whole list because of one tool.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

_TEXTS: Final = ("title", "description")
_OBJECTS: Final = ("annotations", "_meta", "execution")


def sift(tools: list[Any], refused: Callable[[Mapping[str, Any]], str | None]) -> tuple[list[Any], dict[str, str]]:
    """(usable tools, name of each unusable tool -> reason). `refused` returns why the SDK would refuse a tool."""
    kept: list[Any] = []
    left_out: dict[str, str] = {}
    for number, tool in enumerate(tools, 1):
        tool = _as_object(tool)
        reason = _problem(tool) or refused(tool)
        if reason is None:
            kept.append(tool)
        else:
            name = tool.get("name") if isinstance(tool, dict) else None
            left_out[name if isinstance(name, str) and name else f"tool {number}"] = reason
    return kept, left_out


def _as_object(tool: Any) -> Any:
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    if isinstance(schema, dict) and "type" not in schema:
        return {**tool, "inputSchema": {"type": "object", **schema}}
    return tool


def _problem(tool: Any) -> str | None:
    if not isinstance(tool, dict):
        return "it is not an object"
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        return "it has no name"
    for field in _TEXTS:
        if not isinstance(tool.get(field), str | None):
            return f"its {field} is not text"
    for field in _OBJECTS:
        if not isinstance(tool.get(field), dict | None):
            return f"its {field} is not an object"
    return _schema_problem("inputSchema", tool.get("inputSchema")) or (
        _schema_problem("outputSchema", tool["outputSchema"]) if tool.get("outputSchema") is not None else None
    )


def _schema_problem(name: str, schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return f"its {name} is not an object" if schema is not None else f"it has no {name}"
    if schema.get("type") != "object":
        return f"its {name} is not of type object"
    if not isinstance(schema.get("properties", {}), dict):
        return f"the properties of its {name} are not an object"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        return f"what its {name} requires is not a list of names"
    return None
