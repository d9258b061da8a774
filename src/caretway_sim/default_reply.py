"""The simulated model's reply to a prompt without a script: says what it received, or calls a suitable tool if the text
asks to run a command or read a file. Pure.

Returns the same steps that a script would give.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from .model_input import InputMessage, Picture, Tool
from .script import Result, Say, ScriptCall, Step, Think, ToolUse

_NAMES_SHOWN: Final = 6
_OPENING_CHARS: Final = 80

_RUN_TICKED: Final = re.compile(r"\b(?:run|execute|try|start)\b[^`\n]{0,60}`([^`\n]+)`", re.IGNORECASE)
_RUN_BARE: Final = re.compile(
    r"^\W*(?:please\s+|can you\s+|could you\s+)?(?:run|execute)\s+(?:the\s+command\s+)?"
    r"(?!(?:the|a|an|my|your|our|this|that|these|those|all|some|any|it|them)\b)([^`\n]+?)[.?!]*\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_FILE: Final = r"`?([\w~./\\-]*[\w-]\.[A-Za-z0-9]{1,8}|(?:\.{0,2}/)[\w./-]+|README|Makefile|Dockerfile|LICENSE)`?"
_READ: Final = re.compile(
    r"\b(?:read|open|show|cat|print|look at|summari[sz]e|explain)\b(?:\s+(?:me|the|file|contents?|of|please))*\s+"
    + _FILE,
    re.IGNORECASE,
)

_ASIDE: Final = re.compile(r"<([\w-]*(?:reminder|context|environment|instructions)[\w-]*)>.*?</\1>", re.DOTALL)
"""Blocks that clients put around the user's words; they ask for nothing."""

_SHELL_TOOLS: Final = re.compile(r"bash|shell|terminal|exec|run_?command|command", re.IGNORECASE)
_READ_TOOLS: Final = re.compile(r"^(?:read|view|cat|open)|read_?file|file_?read|view_?file", re.IGNORECASE)
_COMMAND_KEYS: Final = ("command", "cmd", "script", "commands", "input")
_PATH_KEYS: Final = ("path", "file_path", "filePath", "filepath", "absolute_path", "target_file", "filename", "file")


def answer(history: Sequence[InputMessage], tools: Sequence[Tool], *, thinks: bool) -> tuple[Step, ...]:
    """The steps for a conversation whose last message is the user's question."""
    question = history[-1] if history else InputMessage("user", ())
    thought: tuple[Step, ...] = (Think("This is a simulated model, so there is little to weigh."),) if thinks else ()
    use = wish(question.text, tools)
    if use is not None:
        return (
            *thought,
            ScriptCall((use,)),
            Say(f"This is the simulator. It called {use.name}, which answered:"),
            Result(),
        )
    return (*thought, Say(_summary(history, question, tools)))


def _summary(history: Sequence[InputMessage], question: InputMessage, tools: Sequence[Tool]) -> str:
    count = sum(message.role != "system" for message in history)
    pictures = sum(isinstance(part, Picture) for message in history for part in message.parts)
    received = [f"{count} message{'s' * (count != 1)}"]
    if pictures:
        received.append(f"{pictures} image{'s' * (pictures != 1)}")
    if tools:
        names = ", ".join(tool.shown for tool in tools[:_NAMES_SHOWN])
        more = f" and {len(tools) - _NAMES_SHOWN} more" if len(tools) > _NAMES_SHOWN else ""
        received.append(f"{len(tools)} tool{'s' * (len(tools) != 1)} ({names}{more})")
    else:
        received.append("no tools")
    opening = " ".join(question.text.split())
    shown = opening[:_OPENING_CHARS] + ("..." if len(opening) > _OPENING_CHARS else "")
    return (
        f"This is a simulated answer: no real model is behind it. It received {_listed(received)}. "
        + (f'The last message reads "{shown}". ' if shown else "")
        + "Lines that begin with `sim:` tell the simulator what to do, for example `sim: say hello`."
    )


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def wish(text: str, tools: Sequence[Tool]) -> ToolUse | None:
    """The tool call that a text explicitly asks for; None if it asks for none or no tool is suitable."""
    if not tools:
        return None
    text = _ASIDE.sub("", text)
    if found := _RUN_TICKED.search(text) or _RUN_BARE.search(text):
        return _fit(tools, _SHELL_TOOLS, _COMMAND_KEYS, found[1].strip())
    if found := _READ.search(text):
        return _fit(tools, _READ_TOOLS, _PATH_KEYS, found[1].strip())
    return None


def _fit(tools: Sequence[Tool], named: re.Pattern[str], keys: Sequence[str], value: str) -> ToolUse | None:
    for tool in tools:
        if not named.search(tool.shown):
            continue
        properties = tool.schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        key = next((key for key in keys if key in properties), None if properties else keys[0])
        if key is None:
            continue
        is_list = _kind(properties.get(key)) == "array"
        args: dict[str, Any] = {key: ["bash", "-lc", value] if is_list else value}
        required = tool.schema.get("required")
        for name in required if isinstance(required, list) else []:
            if name not in args:
                args[name] = _placeholder(properties.get(name), value)
        return ToolUse(tool.shown, args)
    return None


def _kind(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), None)
    return kind if isinstance(kind, str) else "string"


def _placeholder(schema: Any, value: str) -> Any:
    """A plausible value for a required argument that the text does not mention."""
    if isinstance(schema, dict):
        if "default" in schema:
            return schema["default"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return schema["enum"][0]
    return _PLACEHOLDERS.get(_kind(schema), f"simulated call: {value}"[:_OPENING_CHARS])


_PLACEHOLDERS: Final[dict[str, Any]] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}
