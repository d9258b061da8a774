"""The same short conversation in each public API: what a test says once, every dialect is asked.

A `Speaker` knows one API's bodies and streams and nothing about what they prove. `Heard` is what its client would have
understood, in words that are the same for all.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(slots=True)
class Heard:
    status: int
    headers: httpx.Headers
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish: str = ""
    """`stop` or `tools`, whatever the API calls it."""
    error: str = ""
    """The API's own word for what went wrong."""
    usage: int | None = None
    told: dict[str, Any] = field(default_factory=dict)
    """The usage object as it came."""
    complete: bool = False
    """The stream came to its proper end."""


class Speaker(Protocol):
    name: str

    def body(self, prompt: str, tools: list[str], stream: bool) -> dict[str, Any]: ...

    def follow_up(self, body: dict[str, Any], heard: Heard, results: dict[str, str]) -> dict[str, Any]: ...

    path: str

    def read(self, response: httpx.Response) -> Heard: ...


async def ask(speaker: Speaker, http: httpx.AsyncClient, body: dict[str, Any]) -> Heard:
    headers = {"anthropic-version": "2023-06-01"} if speaker.path == "/v1/messages" else {}
    return speaker.read(await http.post(speaker.path, json=body, headers=headers))


def events(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event name, data) of an SSE stream; `[DONE]` is the name of OpenAI's end mark."""
    for block in text.split("\n\n"):
        name, data = "", ""
        for line in block.splitlines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data += line.removeprefix("data: ")
        if data == "[DONE]":
            yield "[DONE]", {}
        elif data:
            yield name, json.loads(data)


def schema(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"key": {"type": "string"}}, "title": name}


class Chat:
    name = "chat"
    path = "/v1/chat/completions"

    def body(self, prompt: str, tools: list[str], stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": "sim-auto",
            "stream": stream,
            "messages": [{"role": "user", "content": prompt}],
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if tools:
            body["tools"] = [{"type": "function", "function": {"name": n, "parameters": schema(n)}} for n in tools]
        return body

    def follow_up(self, body: dict[str, Any], heard: Heard, results: dict[str, str]) -> dict[str, Any]:
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in heard.calls
        ]
        answer = {"role": "assistant", "content": heard.text or None, "tool_calls": calls}
        given = [{"role": "tool", "tool_call_id": key, "content": text} for key, text in results.items()]
        return body | {"messages": [*body["messages"], answer, *given]}

    def read(self, response: httpx.Response) -> Heard:
        heard = Heard(response.status_code, response.headers)
        if not response.headers["content-type"].startswith("text/event-stream"):
            body = response.json()
            if "error" in body:
                heard.error = body["error"]["code"]
                return heard
            choice = body["choices"][0]
            self._message(heard, choice["message"], choice["finish_reason"])
            heard.told = body["usage"]
            heard.usage = body["usage"]["total_tokens"]
            heard.complete = True
            return heard
        message: dict[str, Any] = {"content": "", "reasoning_content": ""}
        calls: dict[int, dict[str, Any]] = {}
        finish = ""
        for name, chunk in events(response.text):
            heard.complete = name == "[DONE]"
            heard.error = chunk.get("error", {}).get("code", heard.error)
            heard.told = chunk.get("usage") or heard.told
            heard.usage = heard.told.get("total_tokens", heard.usage)
            for choice in chunk.get("choices", ()):
                finish = choice["finish_reason"] or finish
                for key in ("content", "reasoning_content"):
                    message[key] += choice["delta"].get(key) or ""
                for piece in choice["delta"].get("tool_calls", ()):
                    call = calls.setdefault(
                        piece["index"], {"id": piece.get("id"), "function": {"name": "", "arguments": ""}}
                    )
                    for key, value in piece["function"].items():
                        call["function"][key] += value
        self._message(heard, message | {"tool_calls": list(calls.values())}, finish)
        return heard

    def _message(self, heard: Heard, message: dict[str, Any], finish: str) -> None:
        heard.text = message["content"] or ""
        heard.reasoning = message.get("reasoning_content") or ""
        heard.calls = [
            Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ]
        heard.finish = {"stop": "stop", "tool_calls": "tools"}.get(finish, finish)


class Messages:
    name = "messages"
    path = "/v1/messages"

    def body(self, prompt: str, tools: list[str], stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": "sim-auto",
            "max_tokens": 1000,
            "stream": stream,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [{"role": "user", "content": prompt}],
        }
        return body | ({"tools": [{"name": n, "input_schema": schema(n)} for n in tools]} if tools else {})

    def follow_up(self, body: dict[str, Any], heard: Heard, results: dict[str, str]) -> dict[str, Any]:
        text = [{"type": "text", "text": heard.text}] if heard.text else []
        uses = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in heard.calls]
        given = [{"type": "tool_result", "tool_use_id": key, "content": value} for key, value in results.items()]
        added = [{"role": "assistant", "content": [*text, *uses]}, {"role": "user", "content": given}]
        return body | {"messages": [*body["messages"], *added]}

    def read(self, response: httpx.Response) -> Heard:
        heard = Heard(response.status_code, response.headers)
        if not response.headers["content-type"].startswith("text/event-stream"):
            body = response.json()
            if body["type"] == "error":
                heard.error = body["error"]["type"]
                return heard
            self._message(heard, body["content"], body["stop_reason"], body["usage"])
            heard.complete = True
            return heard
        blocks: dict[int, dict[str, Any]] = {}
        finish, usage = "", {}
        for name, data in events(response.text):
            assert name == data["type"], "the event line names the type"
            match name:
                case "content_block_start":
                    blocks[data["index"]] = data["content_block"] | {"json": ""}
                case "content_block_delta":
                    block, delta = blocks[data["index"]], data["delta"]
                    for key in ("text", "thinking"):
                        if key in delta:
                            block[key] += delta[key]
                    block["json"] += delta.get("partial_json", "")
                case "message_delta":
                    finish, usage = data["delta"]["stop_reason"], data["usage"]
                case "message_stop":
                    heard.complete = True
                case "error":
                    heard.error, heard.complete = data["error"]["type"], True
        for block in blocks.values():
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["json"])
        self._message(heard, list(blocks.values()), finish, usage)
        return heard

    def _message(self, heard: Heard, blocks: list[dict[str, Any]], finish: str, usage: dict[str, Any]) -> None:
        heard.text = "".join(b["text"] for b in blocks if b["type"] == "text")
        heard.reasoning = "".join(b["thinking"] for b in blocks if b["type"] == "thinking")
        heard.calls = [Call(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
        heard.finish = {"end_turn": "stop", "tool_use": "tools"}.get(finish, finish)
        heard.told = usage
        heard.usage = usage.get("output_tokens")


class Responses:
    name = "responses"
    path = "/v1/responses"

    def body(self, prompt: str, tools: list[str], stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": "sim-auto",
            "stream": stream,
            "store": False,
            "reasoning": {"summary": "auto"},
            "input": [{"role": "user", "content": prompt}],
        }
        return body | (
            {"tools": [{"type": "function", "name": n, "parameters": schema(n)} for n in tools]} if tools else {}
        )

    def follow_up(self, body: dict[str, Any], heard: Heard, results: dict[str, str]) -> dict[str, Any]:
        said = [{"role": "assistant", "content": heard.text}] if heard.text else []
        calls = [
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": json.dumps(c.arguments)}
            for c in heard.calls
        ]
        given = [{"type": "function_call_output", "call_id": key, "output": text} for key, text in results.items()]
        return body | {"input": [*body["input"], *said, *calls, *given]}

    def read(self, response: httpx.Response) -> Heard:
        heard = Heard(response.status_code, response.headers)
        if not response.headers["content-type"].startswith("text/event-stream"):
            body = response.json()
            if body.get("error"):
                heard.error = body["error"]["code"]
                return heard
            self._response(heard, body)
            heard.complete = True
            return heard
        numbers = []
        for name, data in events(response.text):
            assert name == data["type"]
            numbers.append(data["sequence_number"])
            match name:
                case "response.output_text.delta":
                    heard.text += data["delta"]
                case "response.completed":
                    spoken = heard.text
                    self._response(heard, data["response"])
                    assert heard.text == spoken, "the final object is what was streamed"
                    heard.complete = True
                case "response.failed":
                    heard.error, heard.complete = data["response"]["error"]["code"], True
        assert numbers == list(range(len(numbers)))
        return heard

    def _response(self, heard: Heard, response: dict[str, Any]) -> None:
        output = response["output"]
        heard.text = "".join(p["text"] for item in output if item["type"] == "message" for p in item["content"])
        heard.reasoning = "".join(p["text"] for item in output if item["type"] == "reasoning" for p in item["summary"])
        heard.calls = [
            Call(item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in output
            if item["type"] == "function_call"
        ]
        heard.finish = "tools" if heard.calls else "stop"
        heard.told = response["usage"] or {}
        heard.usage = heard.told.get("total_tokens")


SPEAKERS: tuple[Speaker, ...] = (Chat(), Messages(), Responses())
