"""The tools of real clients, and short ways to make execs and read their answers."""

from pathlib import Path
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from caretway.backends.builtin_tools.execs import Redirect
from caretway.backends.builtin_tools.redirector import Redirector
from caretway.core.request import Image, Text, ToolResult, ToolSpec
from caretway.cursor.wire.messages import pb

DATA = Path(__file__).parents[3] / "data"

CHAT_BODIES = {
    "opencode": "opencode/text-002-POST-v1_chat_completions.json",
    "goose": "goose/text-002-POST-v1_chat_completions.json",
    "continue": "continue/text-001-POST-v1_chat_completions.json",
    "openai-python": "openai-python/tool-001-POST-v1_chat_completions.json",
    "vercel-ai": "vercel-ai/tool-001-POST-v1_chat_completions.json",
    "langchain": "langchain/tool-001-POST-v1_chat_completions.json",
}
TOOL_LISTS = ("claude-code", "codex", "goose-responses", "anthropic-python", "cline", "kilo")
CLIENTS = (*CHAT_BODIES, *TOOL_LISTS)
MADE_LISTS = ("pydantic", "zod")


def tools_of(client: str) -> list[ToolSpec]:
    if client in CHAT_BODIES:
        body = msgspec.json.decode((DATA / "clients" / CHAT_BODIES[client]).read_bytes())["body"]
        functions = [tool["function"] for tool in body["tools"]]
        return [ToolSpec(f["name"], f.get("description", ""), f["parameters"]) for f in functions]
    declared = msgspec.json.decode((DATA / "client_tools" / f"{client}.json").read_bytes())
    return [ToolSpec(tool["name"], tool["description"], tool["schema"]) for tool in declared]


def tool(name: str, properties: dict[str, Any] | None = None, **more: Any) -> ToolSpec:
    """A tool whose properties are given as name -> type, or name -> schema; all required unless said otherwise."""
    declared = {
        key: of if isinstance(of, dict) else {"type": of} for key, of in (properties or {"path": "string"}).items()
    }
    schema: dict[str, Any] = {"type": "object", "properties": declared, "required": list(declared)}
    return ToolSpec(name, schema={**schema, **more})


def exec_(kind: str, **fields: Any) -> pb.ExecServerMessage:
    message = pb.ExecServerMessage(id=7)
    inner = getattr(message, f"{kind}_args")
    inner.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(inner, name).extend(value)
        else:
            setattr(inner, name, value)
    return message


def translate(tools: list[ToolSpec], kind: str, **fields: Any) -> Redirect | None:
    """The redirect of an exec; its arguments are valid for the tool that is called."""
    redirect = Redirector(tools).translate(exec_(kind, **fields))
    if redirect is not None:
        called = next(t for t in tools if t.name == redirect.name)
        schema = dict(called.schema)
        validator_for(schema, default=Draft202012Validator)(schema).validate(msgspec.json.decode(redirect.arguments))
    return redirect


def call(tools: list[ToolSpec], kind: str, **fields: Any) -> tuple[str, Any] | None:
    """(tool, arguments)."""
    redirect = translate(tools, kind, **fields)
    return None if redirect is None else (redirect.name, msgspec.json.decode(redirect.arguments))


def replies(redirect: Redirect | None, text: str | ToolResult, *, failed: bool = False) -> list[pb.ExecClientMessage]:
    """The typed answers to a result; every one has the exec's id and the exec is closed at the end."""
    assert redirect is not None
    result = text if isinstance(text, ToolResult) else ToolResult("c", (Text(text),), failed)
    messages = [pb.AgentClientMessage.FromString(data) for data in redirect.convert(9, result)]
    assert messages[-1].exec_client_control_message.stream_close.id == 9
    answers = [message.exec_client_message for message in messages[:-1]]
    assert answers and all(answer.id == 9 for answer in answers)
    return answers


def reply(redirect: Redirect | None, text: str | ToolResult, *, failed: bool = False) -> pb.ExecClientMessage:
    (only,) = replies(redirect, text, failed=failed)
    return only


def picture(data: bytes) -> ToolResult:
    return ToolResult("c", (Text("Image read"), Image(data, "image/png")))
