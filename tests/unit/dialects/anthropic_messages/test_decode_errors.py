"""Requests that are refused: each names the field at fault. And any JSON at all gives a request or a refusal."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import TurnRequest
from caretway.dialects.anthropic_messages import AnthropicMessages

ANTHROPIC_MESSAGES = AnthropicMessages()

BAD, UNSUPPORTED = ErrorKind.BAD_REQUEST, ErrorKind.UNSUPPORTED
TOOL = {"name": "bash", "input_schema": {}}
PDF = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF-1.7").decode()}


def refusal(body: object, headers: dict[str, str] | None = None) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        ANTHROPIC_MESSAGES.decode(body, headers or {})
    return caught.value


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields


def said(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return body(messages=[{"role": role, "content": list(blocks)}])


BLOCK = "messages[0].content[0]"


@pytest.mark.parametrize(
    ("request_body", "param"),
    [
        ([], None),
        ({"messages": []}, "model"),
        (body(model=""), "model"),
        (body(model=3), "model"),
        ({"model": "m"}, "messages"),
        (body(messages=[]), "messages"),
        (body(messages="hi"), "messages"),
        (body(messages=["hi"]), "messages[0]"),
        (body(messages=[{"content": "hi"}]), "messages[0].role"),
        (body(messages=[{"role": "tool", "content": "hi"}]), "messages[0].role"),
        (body(messages=[{"role": "user"}]), "messages[0].content"),
        (body(messages=[{"role": "assistant", "content": None}]), "messages[0].content"),
        (body(messages=[{"role": "user", "content": 3}]), "messages[0].content"),
        (said("hi"), BLOCK),
        (said({"text": "hi"}), f"{BLOCK}.type"),
        (said({"type": "text"}), f"{BLOCK}.text"),
        (said({"type": "text", "text": 3}), f"{BLOCK}.text"),
        (said({"type": "tool_use", "id": "a", "name": "b"}), f"{BLOCK}.type"),
        (said({"type": "tool_result", "tool_use_id": "a"}, role="assistant"), f"{BLOCK}.type"),
        (said({"type": "image"}, role="system"), f"{BLOCK}.type"),
        (said({"type": "tool_use", "name": "b"}, role="assistant"), f"{BLOCK}.id"),
        (said({"type": "tool_use", "id": "a"}, role="assistant"), f"{BLOCK}.name"),
        (said({"type": "tool_use", "id": "a", "name": "b", "input": "x"}, role="assistant"), f"{BLOCK}.input"),
        (said({"type": "tool_result"}), f"{BLOCK}.tool_use_id"),
        (said({"type": "tool_result", "tool_use_id": "a", "content": 3}), f"{BLOCK}.content"),
        (said({"type": "tool_result", "tool_use_id": "a", "is_error": "yes"}), f"{BLOCK}.is_error"),
        (said({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text"}]}), f"{BLOCK}.content[0].text"),
        (said({"type": "image"}), f"{BLOCK}.source"),
        (
            said({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ""}}),
            f"{BLOCK}.source.media_type",
        ),
        (
            said({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "*"}}),
            f"{BLOCK}.source.data",
        ),
        (said({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}), f"{BLOCK}.source.data"),
        (said({"type": "image", "source": {"type": "magic"}}), f"{BLOCK}.source.type"),
        (said({"type": "document"}), f"{BLOCK}.source"),
        (said({"type": "document", "source": {"type": "magic"}}), f"{BLOCK}.source.type"),
        (said({"type": "document", "source": {"type": "content"}}), f"{BLOCK}.source.content"),
        (
            said({"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "/w=="}}),
            f"{BLOCK}.source.data",
        ),
        (said({"type": "document", "source": PDF | {"data": "UEsDBA=="}}), f"{BLOCK}.source.data"),
        (body(system=3), "system"),
        (body(system=[{"type": "image"}]), "system[0].type"),
        (body(max_tokens="many"), "max_tokens"),
        (body(max_tokens=True), "max_tokens"),
        (body(stream="yes"), "stream"),
        (body(temperature="hot"), "temperature"),
        (body(top_k=True), "top_k"),
        (body(container=3), "container"),
        (body(tools={}), "tools"),
        (body(tools=[{}]), "tools[0].name"),
        (body(tools=[{"name": "two words"}]), "tools[0].name"),
        (body(tools=[{"name": "a", "input_schema": []}]), "tools[0].input_schema"),
        (body(tools=[TOOL, TOOL]), "tools[1].name"),
        (body(tool_choice="auto"), "tool_choice"),
        (body(tool_choice={"type": "must"}), "tool_choice.type"),
        (body(tool_choice={"type": "any"}), "tool_choice"),
        (body(tools=[TOOL], tool_choice={"type": "tool"}), "tool_choice.name"),
        (body(tools=[TOOL], tool_choice={"type": "tool", "name": "sh"}), "tool_choice.name"),
        (body(stop_sequences="END"), "stop_sequences"),
        (body(stop_sequences=[1]), "stop_sequences[0]"),
        (body(stop_sequences=["x"] * 65), "stop_sequences"),
        (body(thinking="yes"), "thinking"),
        (body(thinking={}), "thinking.type"),
        (body(thinking={"type": "enabled", "budget_tokens": "all"}), "thinking.budget_tokens"),
        (body(output_config=[]), "output_config"),
        (body(output_config={"effort": 3}), "output_config.effort"),
        (body(output_config={"format": {"type": "xml"}}), "output_config.format.type"),
        (body(output_format={"type": "json_schema"}), "output_format.schema"),
    ],
)
def test_the_field_at_fault(request_body: object, param: str | None) -> None:
    error = refusal(request_body)
    assert (error.kind, error.param) == (BAD, param)
    assert error.code


@pytest.mark.parametrize(
    ("block", "code", "words"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            "image_url_not_supported",
            "not fetched",
        ),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "image_url_not_supported", "file store"),
        ({"type": "document", "source": PDF}, "document_not_supported", "PDF"),
        ({"type": "document", "source": PDF | {"media_type": "a/b"}}, "document_not_supported", "a/b"),
        ({"type": "document", "source": {"type": "url", "url": "https://x"}}, "document_not_supported", "not fetched"),
    ],
)
def test_what_cannot_be_sent_to_cursor(block: dict[str, Any], code: str, words: str) -> None:
    for wrapped in (block, {"type": "tool_result", "tool_use_id": "a", "content": [block]}):
        error = refusal(said(wrapped))
        assert (error.kind, error.code) == (UNSUPPORTED, code)
        assert words in error.message
        assert error.hint


def test_a_wrong_session_mode() -> None:
    assert refusal(body(), {"x-caretway-session": "sometimes"}).param == "x-caretway-session"


def test_threads() -> None:
    for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}):
        assert refusal(body(thread=thread)).code == "thread_unsupported_request"
    assert ANTHROPIC_MESSAGES.decode(body(thread=None), {}).ignored == ()


WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "text",
        "image",
        "document",
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "search_result",
        "compaction",
        "tool_reference",
        "server_tool_use",
        "base64",
        "url",
        "content",
        "custom",
        "auto",
        "any",
        "tool",
        "none",
        "enabled",
        "adaptive",
        "json_schema",
        "a",
    ]
)
NAMES = st.sampled_from(
    [
        "type",
        "role",
        "content",
        "text",
        "source",
        "data",
        "media_type",
        "id",
        "name",
        "input",
        "tool_use_id",
        "is_error",
        "thinking",
        "signature",
        "title",
        "context",
        "input_schema",
        "description",
        "cache_control",
        "disable_parallel_tool_use",
        "budget_tokens",
        "display",
        "effort",
        "format",
        "schema",
    ]
)
FIELDS = st.sampled_from(
    [
        "system",
        "tools",
        "tool_choice",
        "stop_sequences",
        "stream",
        "thinking",
        "output_config",
        "output_format",
        "temperature",
        "container",
        "context_management",
        "max_tokens",
        "thread",
        "???",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NEAR = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)
"""JSON made of the words that lead into the decoder's branches."""
BLOCK_LIKE = st.builds(lambda kind, more: more | {"type": kind}, WORDS, st.dictionaries(NAMES, NEAR, max_size=4))
MESSAGE = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "system"]) | NEAR,
    st.lists(BLOCK_LIKE, max_size=3) | NEAR,
)
BODY = st.builds(
    lambda messages, more, model: {"model": model, "messages": messages} | more,
    st.lists(MESSAGE, min_size=1, max_size=3) | NEAR,
    st.dictionaries(FIELDS, NEAR | st.lists(BLOCK_LIKE, max_size=2), max_size=4),
    st.just("m") | NEAR,
)


@given(value=JSON | NEAR | BODY, session=st.text(max_size=8) | st.sampled_from(["auto", "fresh"]))
def test_any_json_gives_a_request_or_a_clear_refusal(value: object, session: str) -> None:
    outcome: TurnRequest | GatewayError
    try:
        outcome = ANTHROPIC_MESSAGES.decode(value, {"x-caretway-session": session})
    except GatewayError as error:
        outcome = error
    if isinstance(outcome, GatewayError):
        assert outcome.kind in (BAD, UNSUPPORTED)
        assert outcome.message
        assert ANTHROPIC_MESSAGES.error(outcome)[0] == 400
    else:
        assert ANTHROPIC_MESSAGES.lookups["countTokens"]({}, {}, value)
        assert len(outcome.ignored) <= 33


def test_a_large_history_is_read_quickly() -> None:
    calls = [{"type": "tool_use", "id": f"c{i}", "name": "f", "input": {"x": 1}} for i in range(10)]
    answers = [{"type": "tool_result", "tool_use_id": f"c{i}", "content": "x" * 1000} for i in range(10)]
    turn = [{"role": "assistant", "content": calls}, {"role": "user", "content": answers}]
    assert len(ANTHROPIC_MESSAGES.decode(body(messages=turn * 500), {}).messages) == 5500
