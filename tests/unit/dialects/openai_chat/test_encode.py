"""Events -> chat.completion.chunk frames and the whole answer; both from the same table, each judged by the other.

The first group of tests is the list of deviations that were seen to break real clients, one test each.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from caretway.core.errors import RETRYABLE, ErrorKind, GatewayError, bad_request
from caretway.core.events import (
    AgentActivity,
    Event,
    EventOrder,
    Note,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.fold import fold
from caretway.core.request import TurnRequest
from caretway.dialects import ResponseMeta, in_turn
from caretway.dialects.openai_chat import OpenAIChat
from caretway.dialects.openai_chat.encode import ERRORS
from caretway.dialects.registry import dialects

OPENAI_CHAT = OpenAIChat()

DOCUMENTED = {
    ErrorKind.BAD_REQUEST: (400, "invalid_request_error", "invalid_request"),
    ErrorKind.REFUSED: (403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: (400, "invalid_request_error", "model_not_found"),
    ErrorKind.CONTEXT_TOO_LONG: (400, "invalid_request_error", "context_length_exceeded"),
    ErrorKind.SIGNED_OUT: (401, "authentication_error", "not_authenticated"),
    ErrorKind.ACCESS_DENIED: (401, "authentication_error", "invalid_api_key"),
    ErrorKind.QUOTA: (402, "insufficient_quota", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: (429, "rate_limit_error", "rate_limited"),
    ErrorKind.UPSTREAM_DOWN: (503, "api_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_DEPRECATED: (502, "api_error", "upstream_deprecated"),
    ErrorKind.TIMEOUT: (504, "api_error", "upstream_timeout"),
    ErrorKind.TOOL_LOOP: (502, "api_error", "tool_loop_detected"),
    ErrorKind.INTERNAL: (500, "internal_error", "server_error"),
}


def test_every_kind_has_a_row() -> None:
    assert set(ERRORS) == set(ErrorKind)


@pytest.mark.seed("C01")
@pytest.mark.parametrize("kind", list(ErrorKind))
def test_body(kind: ErrorKind) -> None:
    status, body = OPENAI_CHAT.error(GatewayError(kind, "What happened.", hint="What to type."))
    error = msgspec.json.decode(body)["error"]
    assert set(error) == {"message", "type", "code", "param", "status", "should_retry"}
    assert error["message"] == "What happened. What to type."
    assert error["status"] == status
    assert error["should_retry"] is (kind in RETRYABLE)
    assert 400 <= status < 600
    if kind in DOCUMENTED:
        assert (status, error["type"], error["code"]) == DOCUMENTED[kind]


def test_an_exact_code_and_the_field_win() -> None:
    status, body = OPENAI_CHAT.error(bad_request("No.", param="messages[2].content[0].type", code="invalid_value"))
    error = msgspec.json.decode(body)["error"]
    assert (status, error["code"], error["param"]) == (400, "invalid_value", "messages[2].content[0].type")


META = ResponseMeta(id="abc", created=1_700_000_000, model='m"1')
ASKS_USAGE = TurnRequest("m", (), include_usage=True)
PLAIN = TurnRequest("m", ())
LEGACY = OPENAI_CHAT.decode(
    {"model": "m", "messages": [{"role": "user", "content": "hi"}], "functions": [{"name": "f"}]}, {}
)


def stream(events: list[Event], request: TurnRequest = ASKS_USAGE) -> bytes:
    return OPENAI_CHAT.encoder(request, META).feed(events)


def frames(raw: bytes) -> list[Any]:
    """The payloads of a stream that ends properly."""
    pieces = raw.decode().split("\n\n")
    assert pieces.pop() == ""
    assert all(piece.startswith("data: ") and "\n" not in piece for piece in pieces)
    assert pieces.pop() == "data: [DONE]"
    return [msgspec.json.decode(piece.removeprefix("data: ")) for piece in pieces]


def whole(events: list[Event], request: TurnRequest = ASKS_USAGE) -> Any:
    return msgspec.json.decode(OPENAI_CHAT.render(fold(events), request, META))


def reassemble(chunks: list[Any]) -> dict[str, Any]:
    """What a client that follows OpenAI's documentation puts together."""
    message: dict[str, Any] = {"role": None, "content": "", "refusal": None}
    calls: dict[int, dict[str, Any]] = {}
    finish: str | None = None
    extras: dict[str, Any] = {}
    for chunk in chunks:
        extras |= {key: chunk[key] for key in ("usage", "caretway") if key in chunk}
        for choice in chunk["choices"]:
            finish = choice["finish_reason"] or finish
            delta = choice["delta"]
            message["role"] = delta.get("role", message["role"])
            message["content"] += delta.get("content", "")
            if "reasoning_content" in delta:
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    assert call["index"] not in calls
                    calls[call["index"]] = {key: call[key] for key in ("id", "type", "function")}
                else:
                    calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            if "function_call" in delta:
                known = message.setdefault("function_call", {"name": "", "arguments": ""})
                for key, value in delta["function_call"].items():
                    known[key] += value
    if calls:
        message["tool_calls"] = list(calls.values())
    if (calls or "function_call" in message) and not message["content"]:
        message["content"] = None
    answer = {"id": chunks[0]["id"], "object": "chat.completion", "created": chunks[0]["created"]}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return answer | {"model": chunks[0]["model"], "choices": [choice]} | extras


@dataclass(frozen=True)
class Case:
    name: str
    events: list[Event]
    finish: str
    request: TurnRequest = ASKS_USAGE


TWO_CALLS: list[Event] = [
    TurnStarted(),
    TextDelta("let me see"),
    ToolCallStarted("a", "shell"),
    ToolCallStarted("b", "read"),
    ToolCallDelta("a", '{"command":'),
    ToolCallDelta("b", "{"),
    ToolCallDelta("a", ' "ls"}'),
    ToolCallReady("a", "shell", '{"command": "ls"}'),
    ToolCallDelta("b", '"path": "ä"'),
    ToolCallReady("b", "read", '{"path": "ä"}'),
    UsageReported(Usage(10, 5, cache_read_tokens=4)),
    TurnPaused(),
]
CASES = [
    Case("text", [TurnStarted(), TextDelta("Hel"), TextDelta('lo\n"\u2028'), TurnEnded()], "stop"),
    Case("nothing at all", [TurnStarted(), TurnEnded()], "stop"),
    Case("reasoning", [TurnStarted(), ReasoningDelta("hm"), ReasoningDelta("m"), TextDelta("a"), TurnEnded()], "stop"),
    Case("calls interleave", TWO_CALLS, "tool_calls"),
    Case(
        "a call in one piece",
        [TurnStarted(), ToolCallStarted("a", "f"), ToolCallReady("a", "f", "{}"), TurnPaused()],
        "tool_calls",
    ),
    Case(
        "a turn that ends with a call",
        [TurnStarted(), ToolCallStarted("a", "f"), ToolCallReady("a", "f", "{}"), TurnEnded()],
        "tool_calls",
    ),
    Case("stop sequence", [TurnStarted(), TextDelta("a"), TurnEnded(StopReason.STOP_SEQUENCE, "END")], "stop"),
    Case("length", [TurnStarted(), TextDelta("a"), TurnEnded(StopReason.LENGTH)], "length"),
    Case("refusal", [TurnStarted(), TextDelta("no"), TurnEnded(StopReason.REFUSAL)], "content_filter"),
    Case("own activity", [TurnStarted(), AgentActivity("ls\n\nx"), TextDelta("a"), TurnEnded()], "stop"),
    Case("notes", [TurnStarted(), TextDelta("a"), Note("response_format", "valid"), TurnEnded()], "stop"),
    Case(
        "all of usage",
        [TurnStarted(), TextDelta("a"), UsageReported(Usage(7, 3, 2, 1, 1, estimated=True)), TurnEnded()],
        "stop",
    ),
    Case("half of usage", [TurnStarted(), UsageReported(Usage(output_tokens=3)), TurnEnded()], "stop"),
    Case("no usage", [TurnStarted(), UsageReported(Usage()), TurnEnded()], "stop"),
    Case(
        "legacy function call",
        [
            TurnStarted(),
            ToolCallStarted("a", "f"),
            ToolCallDelta("a", "{"),
            ToolCallReady("a", "f", "{}"),
            TurnPaused(),
        ],
        "function_call",
        LEGACY,
    ),
]
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.seed("B25")
@by_name
def test_whole_equals_streamed(case: Case) -> None:
    order = EventOrder()
    for event in case.events:
        order.check(event)
    assert whole(case.events, case.request) == reassemble(frames(stream(case.events, case.request)))


@by_name
def test_batches_do_not_matter(case: Case) -> None:
    encoder = OPENAI_CHAT.encoder(case.request, META)
    assert b"".join([encoder.feed([event]) for event in case.events]) == stream(case.events, case.request)


@pytest.mark.seed("B18", "B19")
@by_name
def test_every_chunk_is_complete(case: Case) -> None:
    """Missing id, created, object, index or finish_reason: openai-python, opencode, vercel and others fail."""
    for chunk in frames(stream(case.events, case.request)):
        assert chunk["id"] == "chatcmpl-abc"
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["created"] == META.created
        assert chunk["model"] == META.model
        assert all(choice["index"] == 0 and "finish_reason" in choice for choice in chunk["choices"])


@pytest.mark.seed("B20")
@by_name
def test_role_first_and_once(case: Case) -> None:
    """No role in the first delta: OpenAI's stream helper for Node throws."""
    first, *others = [
        choice["delta"] for chunk in frames(stream(case.events, case.request)) for choice in chunk["choices"]
    ]
    assert first == {"role": "assistant", "content": ""}
    assert not any("role" in delta for delta in others)


@pytest.mark.seed("B24")
@by_name
def test_one_finish_reason_at_the_end(case: Case) -> None:
    """No finish_reason: opencode retries without end."""
    choices = [choice for chunk in frames(stream(case.events, case.request)) for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [case.finish]
    assert choices[-1]["delta"] == {}
    assert whole(case.events, case.request)["choices"][0]["finish_reason"] == case.finish


@pytest.mark.seed("B23")
def test_call_deltas_have_index_and_name_id_and_type_exactly_once() -> None:
    """Without index or type calls are lost; a repeated name is concatenated by some clients."""
    deltas = [
        call
        for chunk in frames(stream(TWO_CALLS))
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert deltas == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "shell", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"command":'}},
        {"index": 0, "function": {"arguments": ' "ls"}'}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "read", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{"}},
        {"index": 1, "function": {"arguments": '"path": "ä"'}},
        {"index": 1, "function": {"arguments": "}"}},
    ]


@pytest.mark.seed("B26")
def test_whole_answer_with_calls() -> None:
    answer = whole(TWO_CALLS[:1] + TWO_CALLS[2:])
    assert answer == {
        "id": "chatcmpl-abc",
        "object": "chat.completion",
        "created": META.created,
        "model": META.model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "tool_calls": [
                        {
                            "id": "a",
                            "type": "function",
                            "function": {"name": "shell", "arguments": '{"command": "ls"}'},
                        },
                        {"id": "b", "type": "function", "function": {"name": "read", "arguments": '{"path": "ä"}'}},
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


@pytest.mark.seed("B17")
def test_bytes_of_a_small_stream() -> None:
    head = b'data: {"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1700000000,"model":"m\\"1",'
    assert stream([TurnStarted(), TextDelta("a\nb"), UsageReported(Usage(1, 2)), TurnEnded()]) == b"".join(
        [
            head + b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
            head + b'"choices":[{"index":0,"delta":{"content":"a\\nb"},"finish_reason":null}]}\n\n',
            head + b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
            head + b'"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}\n\n',
            b"data: [DONE]\n\n",
        ]
    )


def test_usage_only_when_asked_for_and_known() -> None:
    known: list[Event] = [TurnStarted(), UsageReported(Usage(1, 2)), TurnEnded()]
    assert b"usage" in stream(known)
    assert b"usage" not in stream(known, PLAIN)
    assert b"usage" not in stream([TurnStarted(), TurnEnded()])
    assert b"usage" not in stream([TurnStarted(), UsageReported(Usage()), TurnEnded()])
    assert whole(known, PLAIN)["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert "usage" not in whole([TurnStarted(), TurnEnded()])


@pytest.mark.seed("B27")
def test_usage_never_invents_a_number() -> None:
    usage = whole([TurnStarted(), UsageReported(Usage(output_tokens=3)), TurnEnded()])["usage"]
    assert usage == {"completion_tokens": 3}
    usage = whole([TurnStarted(), UsageReported(Usage(7, 3, 2, 1, 1, estimated=True)), TurnEnded()])["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 1}
    assert usage["estimated"] is True


def test_failure_before_and_after_text() -> None:
    failed = TurnFailed(GatewayError(ErrorKind.QUOTA, "Spent.", hint="Wait."))
    (error,) = frames(stream([failed]))
    assert error == {
        "error": {
            "message": "Spent. Wait.",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
            "param": None,
            "status": 402,
            "should_retry": False,
        }
    }
    _, text, last = frames(stream([TurnStarted(), TextDelta("PART"), failed]))
    assert text["choices"][0]["delta"] == {"content": "PART"}
    assert last == error


def test_nothing_after_the_end() -> None:
    encoder = OPENAI_CHAT.encoder(PLAIN, META)
    encoder.feed([TurnStarted(), TurnEnded()])
    assert encoder.feed([TextDelta("late"), TurnEnded()]) == b""


def test_legacy_clients_get_one_function_call() -> None:
    events: list[Event] = [TurnStarted()]
    for call in ("a", "b"):
        events += [ToolCallStarted(call, "f"), ToolCallDelta(call, '{"x":1}'), ToolCallReady(call, "f", '{"x":1}')]
    answer = whole([*events, TurnPaused()], LEGACY)
    assert answer["choices"][0]["message"]["function_call"] == {"name": "f", "arguments": '{"x":1}'}
    assert answer == reassemble(frames(stream([*events, TurnPaused()], LEGACY)))


def test_frames() -> None:
    assert in_turn.data(b"{}") == b"data: {}\n\n"
    assert in_turn.event("ping", b"{}") == b"event: ping\ndata: {}\n\n"
    assert in_turn.comment("hi") == b": hi\n\n"
    assert OPENAI_CHAT.encoder(PLAIN, META).keep_alive == b": keep-alive\n\n"


def test_registered() -> None:
    assert any(type(dialect) is OpenAIChat for dialect in dialects())
    assert [route.path for route in OPENAI_CHAT.routes] == ["/chat/completions"]
    paths = [route.path for dialect in dialects() for route in dialect.routes]
    assert len(set(paths)) == len(paths)
