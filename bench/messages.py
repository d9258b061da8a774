"""A chat completion's body as a body of the Anthropic Messages API, for the peers that are asked there. Pure.

It knows what the measures send: text, tools, calls of them and their results.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

PATH: Final = "/v1/messages"
MAX_TOKENS: Final = 8192
"""Messages must say it; no answer here is told to end by it."""


@lru_cache(maxsize=64)
def as_messages(body: bytes, model: str) -> bytes:
    """Kept, because a round asks the same thing over and over: the client must stay cheaper than what it measures."""
    chat: dict[str, Any] = msgspec.json.decode(body)
    talk = chat["messages"]
    asked: dict[str, Any] = {
        "model": model,
        "max_tokens": MAX_TOKENS,
        "messages": [_turn(message) for message in talk if message["role"] != "system"],
        "stream": chat["stream"],
    }
    if system := "\n".join(message["content"] for message in talk if message["role"] == "system"):
        asked["system"] = system
    if "tools" in chat:
        asked["tools"] = [_tool(tool["function"]) for tool in chat["tools"]]
    return msgspec.json.encode(asked)


def _turn(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [result]}
    said = message.get("content") or ""
    calls = [_call(call) for call in message.get("tool_calls", ())]
    if not calls:
        return {"role": message["role"], "content": said}
    return {"role": message["role"], "content": [*([{"type": "text", "text": said}] if said else []), *calls]}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    given = msgspec.json.decode(function["arguments"])
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    described = {"description": function["description"]} if "description" in function else {}
    return {"name": function["name"], **described, "input_schema": function["parameters"]}
