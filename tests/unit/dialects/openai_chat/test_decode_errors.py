"""Requests that are refused: each error names the field at fault. And: any JSON at all gets an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import TurnRequest
from caretway.dialects.openai_chat import OpenAIChat

OPENAI_CHAT = OpenAIChat()

SHELL = {"type": "function", "function": {"name": "shell"}}
DEEP = "[" * 200_000 + "]" * 200_000
BAD, UNSUPPORTED = ErrorKind.BAD_REQUEST, ErrorKind.UNSUPPORTED


def refused(body: object, headers: dict[str, str] | None = None) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        OPENAI_CHAT.decode(body, headers or {})
    return caught.value


def with_fields(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields


def with_message(message: object) -> dict[str, Any]:
    return with_fields(messages=[{"role": "user", "content": "hi"}, message])


def with_part(part: object) -> dict[str, Any]:
    return with_message({"role": "user", "content": [part]})


def with_image(url: object) -> dict[str, Any]:
    return with_part({"type": "image_url", "image_url": {"url": url}})


PART, IMAGE = "messages[1].content[0]", "messages[1].content[0].image_url.url"

CASES: list[tuple[object, ErrorKind, str | None, str]] = [
    # the body itself
    ([], BAD, None, "invalid_type"),
    (None, BAD, None, "invalid_type"),
    ({"messages": [{"role": "user", "content": "hi"}]}, BAD, "model", "missing_model"),
    (with_fields(model=None), BAD, "model", "missing_model"),
    (with_fields(model=""), BAD, "model", "invalid_value"),
    (with_fields(model=5), BAD, "model", "invalid_type"),
    ({"model": "m"}, BAD, "messages", "missing_messages"),
    (with_fields(messages=None), BAD, "messages", "missing_messages"),
    (with_fields(messages=[]), BAD, "messages", "missing_messages"),
    (with_fields(messages="hi"), BAD, "messages", "invalid_type"),
    # messages
    (with_message("hi"), BAD, "messages[1]", "invalid_type"),
    (with_message({"content": "hi"}), BAD, "messages[1].role", "missing_required_parameter"),
    (with_message({"role": "wizard"}), BAD, "messages[1].role", "invalid_value"),
    (with_message({"role": "user", "content": 5}), BAD, "messages[1].content", "invalid_type"),
    (with_message({"role": "user", "content": {}}), BAD, "messages[1].content", "invalid_type"),
    (with_message({"role": "user", "name": 5}), BAD, "messages[1].name", "invalid_type"),
    (with_message({"role": "tool", "content": "x"}), BAD, "messages[1].tool_call_id", "missing_required_parameter"),
    (
        with_message({"role": "tool", "tool_call_id": "", "content": "x"}),
        BAD,
        "messages[1].tool_call_id",
        "missing_required_parameter",
    ),
    (with_message({"role": "tool", "tool_call_id": 7}), BAD, "messages[1].tool_call_id", "invalid_type"),
    (with_message({"role": "function", "name": "f", "content": "x"}), BAD, "messages[1].name", "invalid_value"),
    (
        with_message({"role": "assistant", "reasoning_content": 5}),
        BAD,
        "messages[1].reasoning_content",
        "invalid_type",
    ),
    # parts
    (with_part("hi"), BAD, PART, "invalid_type"),
    (with_part({"text": "hi"}), BAD, f"{PART}.type", "missing_required_parameter"),
    (with_part({"type": 5}), BAD, f"{PART}.type", "invalid_type"),
    (with_part({"type": "hologram"}), BAD, f"{PART}.type", "invalid_value"),
    (with_part({"type": "text"}), BAD, f"{PART}.text", "missing_required_parameter"),
    (with_part({"type": "text", "text": 5}), BAD, f"{PART}.text", "invalid_type"),
    (with_part({"type": "input_audio", "input_audio": {}}), UNSUPPORTED, f"{PART}.type", "input_audio_not_supported"),
    (
        with_part({"type": "file", "file": {"file_id": "f"}}),
        UNSUPPORTED,
        f"{PART}.file.file_id",
        "file_id_not_supported",
    ),
    (with_part({"type": "file"}), BAD, f"{PART}.file", "missing_required_parameter"),
    (with_part({"type": "file", "file": {}}), BAD, f"{PART}.file.file_data", "missing_required_parameter"),
    (
        with_message({"role": "system", "content": [{"type": "image_url", "image_url": "x"}]}),
        BAD,
        f"{PART}.type",
        "invalid_value",
    ),
    # images
    (with_part({"type": "image_url"}), BAD, f"{PART}.image_url", "missing_required_parameter"),
    (with_image(5), BAD, IMAGE, "invalid_type"),
    (with_image("https://example.org/a.png"), UNSUPPORTED, IMAGE, "image_url_not_supported"),
    (with_image("HTTP://example.org/a,b.png"), UNSUPPORTED, IMAGE, "image_url_not_supported"),
    (with_image("file:///etc/passwd"), BAD, IMAGE, "invalid_value"),
    (with_image("iVBORw0KGgo="), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/png;base64"), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/png;base64,"), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/png;base64,AAA"), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/png;base64,AA=A"), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/png;base64,AA AA"), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/png;base64,ÄÖÜß"), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/png,AAAA"), BAD, IMAGE, "invalid_value"),
    (with_image("data:image/svg+xml;base64,AAAA"), BAD, IMAGE, "invalid_value"),
    (with_image("data:;base64,AAAA"), BAD, IMAGE, "invalid_value"),
    # calls in the history
    (
        with_message({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}),
        BAD,
        "messages[1].tool_calls[0].id",
        "missing_required_parameter",
    ),
    (
        with_message({"role": "assistant", "tool_calls": [{"id": "a"}]}),
        BAD,
        "messages[1].tool_calls[0].function",
        "missing_required_parameter",
    ),
    (
        with_message({"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}),
        BAD,
        "messages[1].tool_calls[0].function.name",
        "missing_required_parameter",
    ),
    (
        with_message({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]}),
        BAD,
        "messages[1].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    (
        with_message({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": DEEP}}]}),
        BAD,
        "messages[1].tool_calls[0].function.arguments",
        "invalid_value",
    ),
    (
        with_message({"role": "assistant", "function_call": {"name": "f", "arguments": DEEP}}),
        BAD,
        "messages[1].function_call.arguments",
        "invalid_value",
    ),
    (
        with_message({"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]}),
        UNSUPPORTED,
        "messages[1].tool_calls[0].type",
        "",
    ),
    # tools
    (with_fields(tools={}), BAD, "tools", "invalid_type"),
    (with_fields(tools=["shell"]), BAD, "tools[0]", "invalid_type"),
    (with_fields(tools=[{"function": {"name": "a"}}]), BAD, "tools[0].type", "missing_required_parameter"),
    (with_fields(tools=[{"type": "custom", "custom": {"name": "a"}}]), UNSUPPORTED, "tools[0].type", ""),
    (with_fields(tools=[{"type": "function"}]), BAD, "tools[0].function", "missing_required_parameter"),
    (
        with_fields(tools=[{"type": "function", "function": {}}]),
        BAD,
        "tools[0].function.name",
        "missing_required_parameter",
    ),
    (
        with_fields(tools=[{"type": "function", "function": {"name": "a b"}}]),
        BAD,
        "tools[0].function.name",
        "invalid_value",
    ),
    (
        with_fields(tools=[{"type": "function", "function": {"name": "a" * 129}}]),
        BAD,
        "tools[0].function.name",
        "invalid_value",
    ),
    (with_fields(tools=[SHELL, SHELL]), BAD, "tools[1].function.name", "invalid_value"),
    (
        with_fields(tools=[{"type": "function", "function": {"name": "a", "parameters": []}}]),
        BAD,
        "tools[0].function.parameters",
        "invalid_type",
    ),
    (
        with_fields(tools=[{"type": "function", "function": {"name": "a", "description": 5}}]),
        BAD,
        "tools[0].function.description",
        "invalid_type",
    ),
    (
        with_fields(tools=[{"type": "function", "function": {"name": "a", "strict": "yes"}}]),
        BAD,
        "tools[0].function.strict",
        "invalid_type",
    ),
    (with_fields(tools=[SHELL], functions=[{"name": "f"}]), BAD, "functions", "invalid_value"),
    (with_fields(functions=[{"name": "f"}, {"name": "f"}]), BAD, "functions[1].name", "invalid_value"),
    (with_fields(functions={}), BAD, "functions", "invalid_type"),
    (with_fields(functions=[{}]), BAD, "functions[0].name", "missing_required_parameter"),
    (with_fields(functions=[{"name": "f"}], function_call={"name": "g"}), BAD, "function_call.name", "invalid_value"),
    # tool_choice
    (with_fields(tool_choice="required"), BAD, "tool_choice", "invalid_value"),
    (with_fields(tools=[SHELL], tool_choice="any"), BAD, "tool_choice", "invalid_value"),
    (with_fields(tools=[SHELL], tool_choice=5), BAD, "tool_choice", "invalid_type"),
    (with_fields(tools=[SHELL], tool_choice={}), BAD, "tool_choice.type", "missing_required_parameter"),
    (with_fields(tools=[SHELL], tool_choice={"type": "custom"}), UNSUPPORTED, "tool_choice.type", ""),
    (
        with_fields(tools=[SHELL], tool_choice={"type": "function"}),
        BAD,
        "tool_choice.function",
        "missing_required_parameter",
    ),
    (
        with_fields(tools=[SHELL], tool_choice={"type": "function", "function": {"name": "read"}}),
        BAD,
        "tool_choice.function.name",
        "invalid_value",
    ),
    (
        with_fields(tools=[SHELL], tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [{}]}}),
        BAD,
        "tool_choice.allowed_tools.tools[0].function",
        "missing_required_parameter",
    ),
    (with_fields(parallel_tool_calls="no"), BAD, "parallel_tool_calls", "invalid_type"),
    # the rest
    (with_fields(stop=5), BAD, "stop", "invalid_type"),
    (with_fields(stop=["a", 5]), BAD, "stop[1]", "invalid_type"),
    (with_fields(stop=["a"] * 17), BAD, "stop", "invalid_value"),
    (with_fields(n=2), UNSUPPORTED, "n", ""),
    (with_fields(n=0), UNSUPPORTED, "n", ""),
    (with_fields(n=True), BAD, "n", "invalid_type"),
    (with_fields(n="1"), BAD, "n", "invalid_type"),
    (with_fields(stream="yes"), BAD, "stream", "invalid_type"),
    (with_fields(stream_options=True), BAD, "stream_options", "invalid_type"),
    (with_fields(stream_options={"include_usage": 1}), BAD, "stream_options.include_usage", "invalid_type"),
    (with_fields(modalities=["text", "audio"]), UNSUPPORTED, "modalities[1]", ""),
    (with_fields(modalities="text"), BAD, "modalities", "invalid_type"),
    (with_fields(response_format="json"), BAD, "response_format", "invalid_type"),
    (with_fields(response_format={}), BAD, "response_format.type", "missing_required_parameter"),
    (with_fields(response_format={"type": "xml"}), BAD, "response_format.type", "invalid_value"),
    (
        with_fields(response_format={"type": "json_schema"}),
        BAD,
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    (
        with_fields(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": []}}),
        BAD,
        "response_format.json_schema.schema",
        "invalid_type",
    ),
    (with_fields(reasoning_effort=5), BAD, "reasoning_effort", "invalid_type"),
    (with_fields(reasoning="high"), BAD, "reasoning", "invalid_type"),
    (with_fields(reasoning={"effort": 5}), BAD, "reasoning.effort", "invalid_type"),
    (with_fields(temperature="hot"), BAD, "temperature", "invalid_type"),
    (with_fields(temperature=True), BAD, "temperature", "invalid_type"),
    (with_fields(max_tokens=1.5), BAD, "max_tokens", "invalid_type"),
    (with_fields(logit_bias=[]), BAD, "logit_bias", "invalid_type"),
]


@pytest.mark.seed("B11", "B12", "F16")
@pytest.mark.parametrize(("body", "kind", "param", "code"), CASES)
def test_refused(body: object, kind: ErrorKind, param: str | None, code: str) -> None:
    error = refused(body)
    assert (error.kind, error.param, error.code or "") == (kind, param, code)
    assert OPENAI_CHAT.error(error)[0] == 400


def test_a_tool_message_without_an_id_is_named_by_its_index() -> None:
    assert "messages[1]" in refused(with_message({"role": "tool", "content": "x"})).message


def test_an_image_address_is_refused_with_the_way_out() -> None:
    assert "data:image/png;base64" in str(refused(with_image("https://example.org/a.png")))


def test_unknown_session_mode() -> None:
    error = refused(with_fields(), {"x-caretway-session": "sometimes"})
    assert (error.kind, error.param) == (BAD, "x-caretway-session")
    assert "auto, fresh, required" in error.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "tool",
        "function",
        "system",
        "text",
        "image_url",
        "json_schema",
        "allowed_tools",
        "auto",
        "f",
        "data:image/png;base64,AAAA",
        "refusal",
        "custom",
        "required",
    ]
)
NAMES = st.sampled_from(
    [
        "type",
        "role",
        "content",
        "name",
        "id",
        "function",
        "arguments",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "image_url",
        "url",
        "text",
        "refusal",
        "schema",
        "json_schema",
        "tools",
        "mode",
        "allowed_tools",
        "effort",
    ]
)
NEAR = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)
"""JSON made of the words that lead into the decoder's branches."""
FIELDS = st.sampled_from(
    [
        "tools",
        "functions",
        "tool_choice",
        "function_call",
        "stop",
        "n",
        "stream",
        "stream_options",
        "response_format",
        "reasoning",
        "reasoning_effort",
        "modalities",
        "temperature",
        "logit_bias",
        "parallel_tool_calls",
        "???",
    ]
)
MESSAGE = st.dictionaries(NAMES, NEAR, max_size=5) | NEAR
BODY = st.builds(
    lambda messages, more, model: {"model": model, "messages": messages} | more,
    st.lists(MESSAGE, max_size=3) | NEAR,
    st.dictionaries(FIELDS, NEAR, max_size=4),
    st.just("m") | NEAR,
)


@given(body=JSON | NEAR | BODY, session=st.text(max_size=8) | st.sampled_from(["auto", "fresh"]))
def test_any_json_gives_a_request_or_a_clear_refusal(body: object, session: str) -> None:
    outcome: TurnRequest | GatewayError
    try:
        outcome = OPENAI_CHAT.decode(body, {"x-caretway-session": session})
    except GatewayError as error:
        outcome = error
    if isinstance(outcome, GatewayError):
        assert outcome.kind in (BAD, UNSUPPORTED)
        assert outcome.message
        assert OPENAI_CHAT.error(outcome)[0] == 400


def test_a_large_history_is_read_quickly() -> None:
    calls = [{"id": f"c{i}", "function": {"name": "f", "arguments": "{}"}} for i in range(10)]
    answers = [{"role": "tool", "tool_call_id": f"c{i}", "content": "x" * 1000} for i in range(10)]
    body = with_fields(
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": calls}, *answers] * 500
    )
    assert len(OPENAI_CHAT.decode(body, {}).messages) == 6000
