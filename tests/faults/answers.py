"""What a client understands of an answer, in three dialects, streamed or whole. Pure, and strict.

What a real client could not read is `Malformed`, a stream that stops without its proper end is not complete, and a call
that was not finished is no call.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from contract import speakers
from faults.http import Got
from faults.scenes import PROPERTIES


class Malformed(Exception):
    """Bytes that no client of this API could read."""


@dataclass(slots=True)
class Answer:
    text: str = ""
    thought: str = ""
    calls: list[speakers.Call] = field(default_factory=list)
    error: str = ""
    """The code of what went wrong."""
    complete: bool = False
    """It came to its proper end, well or not."""


def read(dialect: str, got: Got) -> Answer:
    """The body of a response that arrived whole."""
    try:
        if got.headers.get("content-type", "").startswith("text/event-stream"):
            return _STREAMS[dialect](list(_events(got.body)))
        body = json.loads(got.body)
        if got.status != 200:
            return Answer(error=_code(body["error"]), complete=True)
        return _WHOLE[dialect](body)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as broken:
        raise Malformed(f"{type(broken).__name__}: {broken}") from broken


def _code(error: dict[str, Any]) -> str:
    """OpenAI's word, or Anthropic's more exact one."""
    return str(error.get("code") or error.get("details", {}).get("error_code") or error["type"])


def _events(body: bytes) -> Iterator[tuple[str, Any]]:
    """(event name, data) of an SSE stream; `[DONE]` is the name of OpenAI's end mark."""
    blocks = body.decode().split("\n\n")
    if blocks.pop():
        raise Malformed("the stream ends in the middle of an event")
    for block in blocks:
        name, data = "", ""
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data += line.removeprefix("data: ")
            elif not line.startswith(":"):
                raise Malformed(f"a line that is not SSE: {line[:60]!r}")
        if data == "[DONE]":
            yield "[DONE]", {}
        elif data:
            yield name, json.loads(data)


# ---------------------------------------------------------------------------------------------- chat


def _chat_whole(body: Any) -> Answer:
    message = body["choices"][0]["message"]
    return Answer(
        message["content"] or "",
        message.get("reasoning_content") or "",
        [_chat_call(call) for call in message.get("tool_calls") or ()],
        complete=body["choices"][0]["finish_reason"] in ("stop", "tool_calls"),
    )


def _chat_call(call: Any) -> speakers.Call:
    return speakers.Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))


def _chat_stream(events: list[tuple[str, Any]]) -> Answer:
    answer, calls, finish = Answer(), dict[int, Any](), ""
    for _, chunk in events[:-1]:
        if "error" in chunk:
            answer.error = _code(chunk["error"])
        for choice in chunk.get("choices", ()):
            finish = choice["finish_reason"] or finish
            answer.text += choice["delta"].get("content") or ""
            answer.thought += choice["delta"].get("reasoning_content") or ""
            for piece in choice["delta"].get("tool_calls", ()):
                call = calls.setdefault(
                    piece["index"], {"id": piece.get("id"), "function": {"name": "", "arguments": ""}}
                )
                for key, value in piece["function"].items():
                    call["function"][key] += value
    ended = bool(events) and events[-1][0] == "[DONE]"
    answer.complete = ended and (bool(answer.error) or finish in ("stop", "tool_calls"))
    if answer.complete and not answer.error:
        answer.calls = [_chat_call(call) for call in calls.values()]
    return answer


# ---------------------------------------------------------------------------------------------- messages


def _messages_whole(body: Any) -> Answer:
    answer = _blocks(body["content"])
    answer.complete = body["stop_reason"] in ("end_turn", "tool_use")
    return answer


def _blocks(blocks: list[Any]) -> Answer:
    return Answer(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        [speakers.Call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
    )


def _messages_stream(events: list[tuple[str, Any]]) -> Answer:
    blocks, finish, error, stopped = dict[int, Any](), "", "", False
    for name, data in events:
        if name != data["type"]:
            raise Malformed("the event line and the type differ")
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
                finish = data["delta"]["stop_reason"]
            case "message_stop":
                stopped = True
            case "error":
                error = _code(data["error"])
    complete = stopped and finish in ("end_turn", "tool_use") and not error
    for block in blocks.values():
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["json"] or "{}") if complete else {}
    answer = _blocks(list(blocks.values()))
    answer.error, answer.complete = error, complete or bool(error)
    if error:
        answer.calls = []
    return answer


# ---------------------------------------------------------------------------------------------- responses


def _responses_whole(body: Any) -> Answer:
    output = body["output"]
    answer = Answer(
        "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"]),
        "".join(part["text"] for item in output if item["type"] == "reasoning" for part in item["summary"]),
        [
            speakers.Call(item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in output
            if item["type"] == "function_call"
        ],
        complete=body["status"] in ("completed", "failed"),
    )
    if body.get("error"):
        answer.error, answer.calls = _code(body["error"]), []
    return answer


def _responses_stream(events: list[tuple[str, Any]]) -> Answer:
    said, thought, last = "", "", Answer()
    for number, (name, data) in enumerate(events):
        if name != data["type"] or number != data["sequence_number"]:
            raise Malformed("an event out of its place")
        match name:
            case "response.output_text.delta":
                said += data["delta"]
            case "response.reasoning_summary_text.delta":
                thought += data["delta"]
            case "response.completed":
                last = _responses_whole(data["response"])
                if last.text != said:
                    raise Malformed("the final object is not what was streamed")
            case "response.failed":
                last = Answer(error=_code(data["response"]["error"]), complete=True)
    last.text, last.thought = said, thought
    return last


_WHOLE = {"chat": _chat_whole, "messages": _messages_whole, "responses": _responses_whole}
_STREAMS = {"chat": _chat_stream, "messages": _messages_stream, "responses": _responses_stream}


# ---------------------------------------------------------------------------------------------- requests

SPEAKERS = {speaker.name: speaker for speaker in speakers.SPEAKERS}


def first_request(dialect: str, prompt: str, stream: bool) -> dict[str, Any]:
    body = SPEAKERS[dialect].body(prompt, list(PROPERTIES), stream)
    for tool in body["tools"]:
        told = tool.get("function", tool)
        name, schema = told["name"], told.get("parameters") or told.get("input_schema")
        schema["properties"] = {PROPERTIES[name]: {"type": "string"}}
        schema["required"] = [PROPERTIES[name]]
    return body


def with_results(dialect: str, body: dict[str, Any], answer: Answer, results: dict[str, str]) -> dict[str, Any]:
    return SPEAKERS[dialect].follow_up(body, _heard(answer), results)


def with_prompt(dialect: str, body: dict[str, Any], answer: Answer, prompt: str) -> dict[str, Any]:
    """The next user turn of the same conversation."""
    said = [{"role": "assistant", "content": answer.text}, {"role": "user", "content": prompt}]
    kept = "input" if dialect == "responses" else "messages"
    return body | {kept: [*body[kept], *said]}


def _heard(answer: Answer) -> speakers.Heard:
    return speakers.Heard(200, _NO_HEADERS, answer.text, answer.thought, answer.calls)


_NO_HEADERS = httpx.Headers()
