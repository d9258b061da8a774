"""The JSON of the response object and its items, for streams and whole answers: ids, usage, `incomplete_details`, error
codes that Codex retries, the text of a custom tool's call.

Ids consist of the response's id and the item's index in the output, so both forms of an answer have equal ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...core.events import StopReason, Usage, WebSearch, WebSource
from .. import ResponseMeta
from ..citations import cited
from ..in_turn import beside
from ..openai_chat.encode import ERRORS, url_citation
from .tools import FREE_TEXT, Declared, RequestEcho

Status = Literal["in_progress", "completed", "incomplete"]

_PREFIX: Final[dict[str, str]] = {
    "message": "msg",
    "reasoning": "rs",
    "function": "fc",
    "custom": "ctc",
    "search": "tsc",
    "web": "ws",
    "compaction": "cmp",
}
INCOMPLETE: Final[dict[StopReason, str]] = {
    StopReason.LENGTH: "max_output_tokens",
    StopReason.REFUSAL: "content_filter",
}
"""Ends of a turn that leave a response `incomplete`, with OpenAI's word for the cause."""
_FAILED_CODES: Final[dict[ErrorKind, str]] = {
    ErrorKind.RATE_LIMITED: "rate_limit_exceeded",
}
"""Codes in a stream, which has no HTTP status: Codex decides by OpenAI's own codes whether to retry."""


def response_id(meta: ResponseMeta) -> str:
    return f"resp_{meta.id}"


def item_id(kind: str, meta: ResponseMeta, index: int) -> str:
    return f"{_PREFIX[kind]}_{meta.id}_{index}"


def text_part(text: str, annotations: Sequence[Mapping[str, object]] = ()) -> dict[str, object]:
    return {"type": "output_text", "annotations": annotations, "logprobs": [], "text": text}


def annotations(text: str, sources: Sequence[WebSource]) -> list[dict[str, object]]:
    return [{"type": "url_citation", **url_citation(one)} for one in cited(text, sources)]


def search_item(name: str, search: WebSearch, *, over: bool = True) -> dict[str, object]:
    """The item of a web search. `over`: the search or its response has ended; without a result it is `incomplete`."""
    action: dict[str, object] = {"type": "search", "query": search.query, "queries": [search.query]}
    status = "in_progress"
    if search.found is not None:
        action["sources"] = [{"type": "url", "url": source.url} for source in search.found]
        status = "failed" if search.failed else "completed"
    elif over:
        status = "incomplete"
    return {"id": name, "type": "web_search_call", "status": status, "action": action}


def summary_part(text: str) -> dict[str, object]:
    return {"type": "summary_text", "text": text}


def message_item(name: str, status: Status, parts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"id": name, "type": "message", "status": status, "role": "assistant", "content": parts}


def reasoning_item(name: str, parts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """A reasoning item without `encrypted_content`: clients might send an invented one elsewhere."""
    return {"id": name, "type": "reasoning", "summary": parts}


def call_item(name: str, status: Status, call_id: str, tool: Declared, arguments: str) -> dict[str, object]:
    """The item of a call. `arguments` has the client's form: JSON text for a function, free text for a custom tool; for
    a search the item has the parsed value."""
    item: dict[str, object] = {"id": name, "call_id": call_id, "status": status}
    if tool.kind == "search":
        return item | {"type": "tool_search_call", "execution": "client", "arguments": _value(arguments)}
    item["name"] = tool.name
    if tool.namespace is not None:
        item["namespace"] = tool.namespace
    if tool.kind == "custom":
        return item | {"type": "custom_tool_call", "input": arguments}
    return item | {"type": "function_call", "arguments": arguments}


def free_text(arguments: str) -> str:
    """The text for a custom tool: the expected single string, otherwise the arguments themselves."""
    value = _value(arguments)
    text = value.get(FREE_TEXT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def _value(arguments: str) -> object:
    """The value that a model wrote; the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return arguments


def response_object(
    meta: ResponseMeta,
    echo: RequestEcho,
    *,
    status: Literal["in_progress", "completed", "incomplete", "failed"],
    output: Sequence[Mapping[str, object]] = (),
    usage: Usage | None = None,
    incomplete: str | None = None,
    error: GatewayError | None = None,
    notes: Iterable[tuple[str, str]] = (),
) -> dict[str, object]:
    response: dict[str, object] = {
        "id": response_id(meta),
        "object": "response",
        "created_at": meta.created,
        "status": status,
        "error": None if error is None else failure(error),
        "incomplete_details": None if incomplete is None else {"reason": incomplete},
        "model": meta.model,
        "output": output,
        "usage": usage_object(usage),
        "temperature": None,
        "top_p": None,
        "top_logprobs": 0,
        "service_tier": None,
        **_ASKED_NOTHING,
        **echo.repeated,
    }
    by_kind = dict(notes)
    if by_kind:
        response["caretway"] = by_kind
    return response


_ASKED_NOTHING: Final[dict[str, object]] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "store": False,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "truncation": "disabled",
    "user": None,
}


def failure(error: GatewayError) -> dict[str, object]:
    wire = ERRORS[error.kind]
    return {
        "code": error.code or _FAILED_CODES.get(error.kind, wire.code),
        "message": str(error),
        "type": wire.type,
        "param": error.param,
        "should_retry": error.may_repeat,
    }


def usage_object(usage: Usage | None) -> Mapping[str, object] | None:
    """The known figures under this API's names. None unless both totals are known, because clients need both. The API
    cannot omit a detail, so an unknown detail is zero."""
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
        **beside(usage),
    }
