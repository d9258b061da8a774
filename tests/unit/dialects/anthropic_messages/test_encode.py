"""Events -> a Messages stream and the whole message; both from the same table, each judged by the other.

The first group of tests is the list of deviations that were seen to break real clients, one test each.
"""

from itertools import pairwise
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
    RunUsage,
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
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.dialects import ResponseMeta
from caretway.dialects.anthropic_messages import AnthropicMessages
from caretway.dialects.anthropic_messages.encode import ERRORS

ANTHROPIC_MESSAGES = AnthropicMessages()

DOCUMENTED = {
    ErrorKind.BAD_REQUEST: (400, "invalid_request_error", "invalid_request"),
    ErrorKind.UNSUPPORTED: (400, "invalid_request_error", "unsupported"),
    ErrorKind.NOT_FOUND: (404, "not_found_error", "not_found"),
    ErrorKind.TOO_LARGE: (413, "request_too_large", "request_too_large"),
    ErrorKind.ACCESS_DENIED: (401, "authentication_error", "invalid_api_key"),
    ErrorKind.SIGNED_OUT: (401, "authentication_error", "not_authenticated"),
    ErrorKind.FORBIDDEN: (403, "permission_error", "forbidden"),
    ErrorKind.REFUSED: (403, "permission_error", "refused_without_reason"),
    ErrorKind.MODEL_UNKNOWN: (400, "invalid_request_error", "model_not_found"),
    ErrorKind.CONTEXT_TOO_LONG: (400, "invalid_request_error", "context_length_exceeded"),
    ErrorKind.QUOTA: (402, "billing_error", "insufficient_quota"),
    ErrorKind.RATE_LIMITED: (429, "rate_limit_error", "rate_limited"),
    ErrorKind.OVERLOADED: (529, "overloaded_error", "overloaded"),
    ErrorKind.UPSTREAM_DOWN: (503, "overloaded_error", "upstream_unavailable"),
    ErrorKind.UPSTREAM_DEPRECATED: (502, "api_error", "upstream_deprecated"),
    ErrorKind.TIMEOUT: (504, "timeout_error", "upstream_timeout"),
    ErrorKind.INTERNAL: (500, "api_error", "server_error"),
}


def test_every_kind_has_a_row() -> None:
    assert set(ERRORS) == set(ErrorKind)


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_body(kind: ErrorKind) -> None:
    status, answer = ANTHROPIC_MESSAGES.error(GatewayError(kind, "What happened.", hint="What to type."))
    body = msgspec.json.decode(answer)
    assert body.keys() == {"type", "error"}
    assert body["type"] == "error"
    assert body["error"].keys() == {"type", "message", "details"}
    assert body["error"]["details"]["should_retry"] is (kind in RETRYABLE)
    assert body["error"]["message"].endswith("What happened. What to type.")
    assert 400 <= status < 600
    if kind in DOCUMENTED:
        assert (status, body["error"]["type"], body["error"]["details"]["error_code"]) == DOCUMENTED[kind]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("The conversation does not fit.", "prompt is too long: The conversation does not fit."),
        ("Prompt is too long.", "Prompt is too long."),
    ],
)
def test_the_words_by_which_claude_code_knows_it(message: str, expected: str) -> None:
    _, answer = ANTHROPIC_MESSAGES.error(GatewayError(ErrorKind.CONTEXT_TOO_LONG, message))
    assert msgspec.json.decode(answer)["error"]["message"] == expected


def test_an_exact_code_and_the_field_are_in_the_details() -> None:
    _, answer = ANTHROPIC_MESSAGES.error(bad_request("No.", param="messages[2].content", code="invalid_value"))
    error = msgspec.json.decode(answer)["error"]
    assert error["details"] == {
        "error_code": "invalid_value",
        "should_retry": False,
        "param": "messages[2].content",
    }


META = ResponseMeta(id="abc", created=1_700_000_000, model='m"1')
PLAIN = TurnRequest("m", (Message(Role.USER, (Text("12345"),)),), echo={"thinking": False})
THINKS = TurnRequest("m", (), echo={"thinking": True})
USAGE = UsageReported(Usage(100, 5, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=2))

TEXT: list[Event] = [TurnStarted(), TextDelta("Hel"), TextDelta('lo\n"\u2028'), USAGE, TurnEnded()]
THINKING: list[Event] = [TurnStarted(), ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("so"), USAGE, TurnEnded()]
ONE_CALL: list[Event] = [
    TurnStarted(),
    TextDelta("let me see"),
    ToolCallStarted("a", "shell"),
    ToolCallDelta("a", '{"command":'),
    ToolCallReady("a", "shell", '{"command": "ls"}'),
    USAGE,
    TurnPaused(),
]
TWO_CALLS: list[Event] = [
    TurnStarted(),
    TextDelta("let me see"),
    ToolCallStarted("a", "shell"),
    ToolCallStarted("b", "read"),
    ToolCallStarted("c", "now"),
    ToolCallDelta("b", "{"),
    ToolCallDelta("a", '{"command":'),
    ToolCallDelta("a", ' "ls"}'),
    ToolCallDelta("b", '"path": "ä"'),
    ToolCallReady("a", "shell", '{"command": "ls"}'),
    ToolCallReady("b", "read", '{"path": "ä"}'),
    ToolCallReady("c", "now", ""),
    USAGE,
    TurnPaused(),
]
TURNS: dict[str, tuple[list[Event], TurnRequest, str]] = {
    "text": (TEXT, PLAIN, "end_turn"),
    "nothing at all": ([TurnStarted(), TurnEnded()], PLAIN, "end_turn"),
    "thinking": (THINKING, THINKS, "end_turn"),
    "thinking nobody asked for": (THINKING, PLAIN, "end_turn"),
    "one call": (ONE_CALL, PLAIN, "tool_use"),
    "calls side by side": (TWO_CALLS, PLAIN, "tool_use"),
    "a call and then the end": ([*ONE_CALL[:-1], TurnEnded()], PLAIN, "tool_use"),
    "length": ([TurnStarted(), TextDelta("a"), TurnEnded(StopReason.LENGTH)], PLAIN, "max_tokens"),
    "refusal": ([TurnStarted(), TurnEnded(StopReason.REFUSAL)], PLAIN, "refusal"),
    "stop sequence": (
        [TurnStarted(), TextDelta("a"), TurnEnded(StopReason.STOP_SEQUENCE, "END")],
        PLAIN,
        "stop_sequence",
    ),
    "notes": ([TurnStarted(), TextDelta("{}"), Note("response_format", "valid"), TurnEnded()], PLAIN, "end_turn"),
    "activity": ([TurnStarted(), AgentActivity("read a"), TextDelta("a"), TurnEnded()], PLAIN, "end_turn"),
    "usage in part": ([TurnStarted(), UsageReported(Usage(output_tokens=3)), TurnEnded()], PLAIN, "end_turn"),
}


def stream(events: list[Event], request: TurnRequest = PLAIN) -> bytes:
    return ANTHROPIC_MESSAGES.encoder(request, META).feed(events)


def frames(raw: bytes) -> list[Any]:
    """The payloads of a stream; each frame has its `event:` line, and it says what the payload says."""
    pieces = raw.decode().split("\n\n")
    assert pieces.pop() == ""
    payloads = []
    for piece in pieces:
        first, second = piece.split("\n")
        payload = msgspec.json.decode(second.removeprefix("data: "))
        assert first == f"event: {payload['type']}"
        payloads.append(payload)
    return payloads


def whole(events: list[Event], request: TurnRequest = PLAIN) -> Any:
    return msgspec.json.decode(ANTHROPIC_MESSAGES.render(fold(events), request, META))


def reassemble(payloads: list[Any]) -> dict[str, Any]:
    """What a client that follows Anthropic's documentation puts together; strict about the order of everything."""
    assert payloads[0]["type"] == "message_start"
    assert [payload["type"] for payload in payloads[-2:]] == ["message_delta", "message_stop"]
    message: dict[str, Any] = payloads[0]["message"]
    open_block: int | None = None
    written = ""
    for payload in payloads[1:-2]:
        match payload["type"]:
            case "content_block_start":
                assert open_block is None
                open_block = payload["index"]
                assert open_block == len(message["content"])
                message["content"].append(payload["content_block"])
                written = ""
            case "content_block_delta":
                assert payload["index"] == open_block
                block, delta = message["content"][-1], payload["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "input_json_delta":
                        written += delta["partial_json"]
                    case other:
                        raise AssertionError(other)
            case "content_block_stop":
                assert payload["index"] == open_block
                open_block = None
                if message["content"][-1]["type"] == "tool_use":
                    message["content"][-1]["input"] = msgspec.json.decode(written)
            case other:
                raise AssertionError(other)
    assert open_block is None
    end = payloads[-2]
    message |= end["delta"]
    message["usage"] |= end["usage"]
    if "caretway" in end:
        message["caretway"] = end["caretway"]
    return message


@pytest.mark.parametrize("name", TURNS)
def test_stream_and_whole_say_the_same(name: str) -> None:
    events, request, stop_reason = TURNS[name]
    order = EventOrder()
    for event in events:
        order.check(event)
    answer = whole(events, request)
    assert reassemble(frames(stream(events, request))) == answer
    assert answer["stop_reason"] == stop_reason
    assert answer["stop_sequence"] == ("END" if name == "stop sequence" else None)
    assert {key: answer[key] for key in ("id", "type", "role", "model")} == {
        "id": "msg_abc",
        "type": "message",
        "role": "assistant",
        "model": 'm"1',
    }


@pytest.mark.parametrize("name", TURNS)
def test_batches_do_not_matter(name: str) -> None:
    events, request, _ = TURNS[name]
    encoder = ANTHROPIC_MESSAGES.encoder(request, META)
    assert b"".join(encoder.feed([event]) for event in events) == stream(events, request)


# What was seen to break clients.


@pytest.mark.parametrize("name", TURNS)
def test_every_block_is_closed_before_the_end(name: str) -> None:
    events, request, _ = TURNS[name]
    kinds = [payload["type"] for payload in frames(stream(events, request))]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop")
    assert kinds.count("message_delta") == kinds.count("message_stop") == kinds.count("message_start") == 1


def test_a_call_s_input_comes_as_deltas_and_never_at_the_start() -> None:
    payloads = frames(
        stream([TurnStarted(), ToolCallStarted("a", "f"), ToolCallReady("a", "f", '{"x":1}'), TurnPaused()])
    )
    assert payloads[1]["content_block"] == {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    assert payloads[2]["delta"] == {"type": "input_json_delta", "partial_json": '{"x":1}'}


def test_a_call_without_arguments_still_has_input() -> None:
    payloads = frames(stream([TurnStarted(), ToolCallStarted("a", "f"), ToolCallReady("a", "f", ""), TurnPaused()]))
    assert payloads[2]["delta"] == {"type": "input_json_delta", "partial_json": "{}"}


def test_both_usages_have_both_totals() -> None:
    """The first ones are estimates, marked where no accumulator keeps the mark; nothing is said to be zero."""
    payloads = frames(stream([TurnStarted(), TurnEnded()]))
    assert payloads[0]["message"]["usage"] == {"input_tokens": 2, "output_tokens": 1}
    assert payloads[0]["caretway"] == {"usage": "estimated"}
    assert {"input_tokens", "output_tokens"} <= payloads[-2]["usage"].keys()


def test_the_first_usage_is_the_context_that_the_turn_knows_of() -> None:
    payloads = frames(stream([TurnStarted(12_345), UsageReported(Usage(12_400, 7)), TurnEnded()]))
    assert payloads[0]["message"]["usage"]["input_tokens"] == 12_345
    assert payloads[-2]["usage"] == {"input_tokens": 12_400, "output_tokens": 7}
    assert frames(stream([TurnStarted(9_000), TurnEnded()]))[-2]["usage"]["input_tokens"] == 9_000


def test_no_signature_is_made_up() -> None:
    raw = stream(THINKING, THINKS)
    assert b"signature_delta" not in raw
    assert [block["signature"] for block in whole(THINKING, THINKS)["content"] if "signature" in block] == [""]


# The rest.


def test_the_order_of_a_plain_answer() -> None:
    assert [payload["type"] for payload in frames(stream(TEXT))] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_start_goes_out_as_soon_as_upstream_works() -> None:
    encoder = ANTHROPIC_MESSAGES.encoder(PLAIN, META)
    assert [payload["type"] for payload in frames(encoder.feed([TurnStarted()]))] == ["message_start"]
    assert encoder.feed([UsageReported(Usage(1, 1))]) == b""


def test_calls_written_at_once_come_one_after_the_other() -> None:
    payloads = frames(stream(TWO_CALLS))
    indices = [payload["index"] for payload in payloads if "index" in payload]
    assert indices == sorted(indices)
    names = [p["content_block"].get("name", "") for p in payloads if p["type"] == "content_block_start"]
    assert names == ["", "shell", "read", "now"]


def test_the_first_call_is_not_held_back_by_a_later_one() -> None:
    encoder = ANTHROPIC_MESSAGES.encoder(PLAIN, META)
    encoder.feed([TurnStarted(), ToolCallStarted("a", "f"), ToolCallStarted("b", "g")])
    assert encoder.feed([ToolCallDelta("b", "{}")]) == b""
    assert frames(encoder.feed([ToolCallDelta("a", "{")]))[0]["delta"]["partial_json"] == "{"
    closing = frames(encoder.feed([ToolCallReady("a", "f", "{}")]))
    assert [(payload["type"], payload["index"]) for payload in closing] == [
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
    ]


def test_a_call_that_is_ready_early_waits_for_its_turn() -> None:
    encoder = ANTHROPIC_MESSAGES.encoder(PLAIN, META)
    encoder.feed([TurnStarted(), ToolCallStarted("a", "f"), ToolCallStarted("b", "g"), ToolCallStarted("c", "h")])
    assert encoder.feed([ToolCallReady("b", "g", "{}")]) == b""
    late = frames(encoder.feed([ToolCallReady("a", "f", "{}")]))
    assert [payload["index"] for payload in late] == [0, 0, 1, 1, 1, 2]
    assert late[-1]["type"] == "content_block_start"


def test_text_while_a_call_is_being_written_waits_for_it() -> None:
    events: list[Event] = [
        TurnStarted(),
        ToolCallStarted("a", "f"),
        TextDelta("mean"),
        TextDelta("while"),
        ToolCallReady("a", "f", "{}"),
        TurnPaused(),
    ]
    content = reassemble(frames(stream(events)))["content"]
    assert [block["type"] for block in content] == ["tool_use", "text"]
    assert content[1]["text"] == "meanwhile"


def test_blocks_alternate_as_they_arrive() -> None:
    events: list[Event] = [TurnStarted()]
    for i in range(3):
        events += [ReasoningDelta(f"t{i}"), TextDelta(f"s{i}"), TextDelta("")]
    content = reassemble(frames(stream([*events, TurnEnded()], THINKS)))["content"]
    assert [block["type"] for block in content] == ["thinking", "text"] * 3


def test_a_failure_is_the_last_event() -> None:
    failed = TurnFailed(GatewayError(ErrorKind.OVERLOADED, "Too much.", hint="Wait."))
    encoder = ANTHROPIC_MESSAGES.encoder(PLAIN, META)
    payloads = frames(encoder.feed([TurnStarted(), TextDelta("par"), failed]))
    assert payloads[-1] == {
        "type": "error",
        "error": {
            "type": "overloaded_error",
            "message": "Too much. Wait.",
            "details": {"error_code": "overloaded", "should_retry": True},
        },
    }
    assert encoder.feed([TextDelta("late"), TurnEnded()]) == b""


def test_keep_alive() -> None:
    assert ANTHROPIC_MESSAGES.encoder(PLAIN, META).keep_alive == b'event: ping\ndata: {"type":"ping"}\n\n'


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(10, 5), {"input_tokens": 10, "output_tokens": 5}),
        (
            Usage(100, 5, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=2),
            {
                "input_tokens": 30,
                "output_tokens": 5,
                "cache_creation_input_tokens": 10,
                "cache_read_input_tokens": 60,
                "output_tokens_details": {"thinking_tokens": 2},
            },
        ),
        (Usage(10, 5, cache_read_tokens=0), {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0}),
        (Usage(10, 5, cache_read_tokens=20), {"input_tokens": 1, "output_tokens": 5, "cache_read_input_tokens": 19}),
        (
            Usage(100, 5, cache_read_tokens=60, cache_write_tokens=40),
            {
                "input_tokens": 1,
                "output_tokens": 5,
                "cache_creation_input_tokens": 39,
                "cache_read_input_tokens": 60,
            },
        ),
        (
            Usage(10, 5, run=RunUsage(300, 40, 200, 0, 3, steps=4, complete=False)),
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "caretway": {
                    "run": {
                        "input_tokens": 300,
                        "output_tokens": 40,
                        "cache_read_tokens": 200,
                        "cache_write_tokens": 0,
                        "reasoning_tokens": 3,
                        "steps": 4,
                        "at_least": True,
                    }
                },
            },
        ),
        (Usage(10, 5, estimated=True), {"input_tokens": 10, "output_tokens": 5, "estimated": True}),
        (Usage(input_tokens=10), {"input_tokens": 10, "output_tokens": 1, "estimated": True}),
        (None, {"input_tokens": 2, "output_tokens": 1, "estimated": True}),
    ],
)
def test_usage(usage: Usage | None, expected: dict[str, object]) -> None:
    """Anthropic counts cached tokens apart; what nobody reported is an estimate, and marked. `input_tokens` is never 0:
    Claude Code takes that for missing, and adds the estimate of `message_start` to the cached tokens."""
    reported: list[Event] = [] if usage is None else [UsageReported(usage)]
    events: list[Event] = [TurnStarted(), TextDelta("abc"), *reported, TurnEnded()]
    assert whole(events)["usage"] == expected
    assert frames(stream(events))[-2]["usage"] == expected


@pytest.mark.parametrize("arguments", ["{", "[]", "3", "x"])
def test_arguments_that_are_no_object_cannot_be_told(arguments: str) -> None:
    events: list[Event] = [TurnStarted(), ToolCallStarted("a", "f"), ToolCallReady("a", "f", arguments), TurnPaused()]
    with pytest.raises(GatewayError) as caught:
        whole(events)
    assert caught.value.kind is ErrorKind.UPSTREAM_PROTOCOL


def test_many_calls_at_once_cost_linear_time() -> None:
    calls = [f"c{i}" for i in range(200)]
    events: list[Event] = [TurnStarted(), *(ToolCallStarted(call, "f") for call in calls)]
    events += [ToolCallDelta(call, " ") for _ in range(50) for call in calls]
    events += [ToolCallReady(call, "f", " " * 50 + "{}") for call in reversed(calls)]
    payloads = frames(stream([*events, TurnPaused()]))
    starts = [payload["index"] for payload in payloads if payload["type"] == "content_block_start"]
    assert all(after == before + 1 for before, after in pairwise(starts))
    assert len([payload for payload in payloads if payload["type"] == "content_block_delta"]) == 200 * 51
