"""Requests that cannot be served: each error names its field. And whatever JSON comes, nothing else is raised."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import TurnRequest
from caretway.dialects.openai_responses import ResponseStore, openai_responses

SHELL = {"type": "function", "name": "shell"}


def part(**fields: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [fields]}]}


CASES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"model": None}, "model", "missing_model"),
    ({"model": 5}, "model", "invalid_type"),
    ({"input": None}, "input", "missing_required_parameter"),
    ({"input": ""}, "input", "invalid_value"),
    ({"input": []}, "input", "invalid_value"),
    ({"input": 5}, "input", "invalid_type"),
    ({"input": [5]}, "input[0]", "invalid_type"),
    ({"input": [{}]}, "input[0].type", "missing_required_parameter"),
    ({"input": [{"type": "web_search_call"}]}, "input", "invalid_value"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", "invalid_value"),
    ({"input": [{"role": "user", "content": 5}]}, "input[0].content", "invalid_type"),
    (part(type="input_text"), "input[0].content[0].text", "missing_required_parameter"),
    (part(type="video"), "input[0].content[0].type", "invalid_value"),
    (part(type="input_file", file_id="f"), "input[0].content[0].file_id", "file_id_not_supported"),
    (part(type="input_audio"), "input[0].content[0].type", "input_audio_not_supported"),
    (part(type="input_image", file_id="f"), "input[0].content[0].file_id", "file_id_not_supported"),
    (part(type="input_image", image_url="https://x/y.png"), "input[0].content[0].image_url", "image_url_not_supported"),
    (part(type="input_image", image_url="data:image/png;base64,*"), "input[0].content[0].image_url", "invalid_value"),
    (
        {"input": [{"role": "system", "content": [{"type": "input_image", "image_url": "data:"}]}]},
        "input[0].content[0].type",
        "invalid_value",
    ),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id", "missing_required_parameter"),
    ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name", "missing_required_parameter"),
    (
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":' * 300}]},
        "input[0].arguments",
        "invalid_value",
    ),
    (
        {"input": [{"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": "[" * 300}]},
        "input[0].arguments",
        "invalid_value",
    ),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output", "missing_required_parameter"),
    ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input[0].id", "item_not_found"),
    ({"previous_response_id": "resp_x"}, "previous_response_id", "previous_response_not_found"),
    ({"instructions": ["x"]}, "instructions", "invalid_type"),
    ({"background": True}, "background", None),
    ({"conversation": "conv_1"}, "conversation", None),
    ({"prompt": {"id": "p"}}, "prompt", None),
    ({"store": "yes"}, "store", "invalid_type"),
    ({"tools": [{"name": "f"}]}, "tools[0].type", "missing_required_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "invalid_value"),
    ({"tools": [SHELL, SHELL]}, "tools[1].name", "invalid_value"),
    (
        {"tools": [{"type": "namespace", "name": "n", "tools": [{}]}]},
        "tools[0].tools[0].type",
        "missing_required_parameter",
    ),
    ({"tools": [{"type": "custom", "name": "c", "format": {"type": "x"}}]}, "tools[0].format.type", "invalid_value"),
    ({"input": [{"type": "additional_tools"}]}, "input[0].tools", "invalid_type"),
    ({"input": [{"type": "additional_tools", "tools": []}]}, "input", "invalid_value"),
    ({"input": [{"type": "additional_tools", "role": "user", "tools": []}]}, "input[0].role", "invalid_value"),
    ({"input": [{"type": "additional_tools", "role": 5, "tools": []}]}, "input[0].role", "invalid_type"),
    (
        {"input": [{"type": "additional_tools", "tools": [{"type": "namespace", "name": "n", "tools": [5]}]}]},
        "input[0].tools[0].tools[0]",
        "invalid_type",
    ),
    (
        {"input": [{"type": "tool_search_output", "call_id": "c", "tools": [{"type": "function", "name": "a b"}]}]},
        "input[0].tools[0].name",
        "invalid_value",
    ),
    (
        {"input": [{"type": "tool_search_output", "call_id": 5, "tools": []}]},
        "input[0].call_id",
        "invalid_type",
    ),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "function", "name": "f"}, "tools": [SHELL]}, "tool_choice.name", "invalid_value"),
    ({"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}, "tool_choice.type", None),
    ({"tool_choice": "sometimes"}, "tool_choice", "invalid_value"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "schema": 1}}}, "text.format.schema", "invalid_type"),
    ({"reasoning": "high"}, "reasoning", "invalid_type"),
    ({"metadata": [1]}, "metadata", "invalid_type"),
    ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
    ({"max_output_tokens": "5"}, "max_output_tokens", "invalid_type"),
    ({"user": 5}, "user", "invalid_type"),
    ({"safety_identifier": ["a"]}, "safety_identifier", "invalid_type"),
    ({"input": [{"type": "spell"}]}, "input", "invalid_value"),
    ({"include": [1]}, "include[0]", "invalid_type"),
]


@pytest.mark.parametrize(("fields", "param", "code"), CASES, ids=lambda value: str(value)[:60])
def test_the_field_is_named(fields: dict[str, Any], param: str, code: str | None) -> None:
    dialect = openai_responses(ResponseStore())
    with pytest.raises(GatewayError) as caught:
        dialect.decode({"model": "m", "input": "hi", **fields}, {})
    error = caught.value
    assert (error.param, error.code) == (param, code)
    assert error.kind in (ErrorKind.BAD_REQUEST, ErrorKind.UNSUPPORTED)
    status, body = dialect.error(error)
    assert status == 400
    assert msgspec.json.decode(body)["error"]["param"] == param


MEANINGFUL = """
    model input instructions tools tool_choice text format reasoning effort summary include store stream metadata
    message user assistant developer role content type id call_id name arguments output function function_call
    function_call_output custom_tool_call custom input_text output_text input_image image_url reasoning item_reference
    namespace local_shell_call shell_call_output action grammar syntax definition allowed_tools auto required mode
    encrypted_content resp_1 msg_1_0 additional_tools tool_search tool_search_call tool_search_output execution client
"""
WORDS = st.sampled_from(MEANINGFUL.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=6),
    max_leaves=24,
)


@given(
    body=JSON | st.fixed_dictionaries({"model": st.just("m"), "input": JSON}, optional={"tools": JSON, "text": JSON})
)
def test_any_json_is_a_request_or_a_named_error(body: object) -> None:
    assert outcome(body) in (TurnRequest, ErrorKind.BAD_REQUEST, ErrorKind.UNSUPPORTED)


def outcome(body: object) -> object:
    try:
        return type(openai_responses(ResponseStore()).decode(body, {}))
    except GatewayError as error:
        return error.kind
