"""What the cursor-agent stand-in reads in a project: which of its own tools a rule denies, what a rule tells the model,
and the MCP tool that a model takes in place of one of its own when it was told to.

A model that was told nothing takes the rejection for the result.
"""

import glob
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model_input import Tool
from ..script import Exec, ToolUse
from .mcp_client import ReachedServer

DENIALS: Final[Mapping[str, str]] = {"execute": "Shell(*)", "edit": "Write(**)"}
"""Kind of a tool of its own -> the rule that denies all of them."""
_SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "shell": ("command",),
    "read": ("path", "filePath", "file_path", "absolute_path"),
}


def denied(cwd: str, kind: str) -> bool:
    try:
        with open(os.path.join(cwd, ".cursor", "cli.json")) as file:
            return DENIALS.get(kind) in json.load(file)["permissions"].get("deny", ())
    except (OSError, ValueError, KeyError):
        return False


def rules(cwd: str) -> str:
    """Those that always apply."""
    found = []
    for path in sorted(glob.glob(os.path.join(cwd, ".cursor", "rules", "*.mdc"))):
        with open(path) as file:
            _, head, text = file.read().split("---", 2)
        if "alwaysApply: true" in head:
            found.append(text)
    return "".join(found)


def instead(step: Exec, cwd: str, servers: Sequence[ReachedServer]) -> ToolUse | None:
    """None: nobody has named a server, or it has nothing that fits."""
    told, subjects = rules(cwd), _SUBJECTS.get(step.kind, ())
    wanted = str(next(iter(step.args.values()), ""))
    for server in servers:
        for tool in server.tools if f"MCP server `{server.name}`" in told else ():
            if taken := next((name for name in subjects if name in tool.schema.get("properties", ())), None):
                return ToolUse(tool.shown, _filled(tool) | {taken: wanted})
    return None


def _filled(tool: Tool) -> dict[str, Any]:
    """Something for everything that must not be left out."""
    properties = tool.schema.get("properties", {})
    kinds = {name: properties.get(name, {}).get("type") for name in tool.schema.get("required", ())}
    return {
        name: {"integer": 1, "number": 1, "boolean": False}.get(str(kind), "simulated") for name, kind in kinds.items()
    }
