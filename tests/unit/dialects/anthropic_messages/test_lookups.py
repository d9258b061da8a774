"""What needs no turn: token counts, and the list of models in Anthropic's shape."""

import base64
from typing import Any

import msgspec
import pytest
from anthropic.types import MessageTokensCount, ModelInfo

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.turn import ModelInfo as Model
from caretway.dialects.anthropic_messages import AnthropicMessages, render_model, render_models

ANTHROPIC_MESSAGES = AnthropicMessages()

PICTURE = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"x").decode()}


def count(**fields: Any) -> int:
    body = {"model": "m", "messages": [{"role": "user", "content": ""}]} | fields
    answer = ANTHROPIC_MESSAGES.lookups["countTokens"]({}, {}, body)
    return MessageTokensCount.model_validate_json(answer, strict=True).input_tokens


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 0),
        ({"messages": [{"role": "user", "content": "1234"}]}, 1),
        ({"messages": [{"role": "user", "content": "12345"}]}, 2),
        ({"system": "12345678"}, 2),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": PICTURE}]}]}, 1600),
        ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "1234"}]}]}, 0),
        ({"tools": [{"name": "abcd", "description": "1234", "input_schema": {"a": 1}}]}, 4),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "ab", "input": {}}]},
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "x", "content": "1234"},
                            {
                                "type": "tool_result",
                                "tool_use_id": "y",
                                "content": [{"type": "image", "source": PICTURE}],
                            },
                        ],
                    },
                ]
            },
            1602,
        ),
    ],
)
def test_count_tokens(fields: dict[str, Any], tokens: int) -> None:
    assert count(**fields) == tokens


@pytest.mark.parametrize("body", [None, [], 1, {}, {"model": "m"}])
def test_a_bad_body_is_refused(body: object) -> None:
    with pytest.raises(GatewayError) as caught:
        ANTHROPIC_MESSAGES.lookups["countTokens"]({}, {}, body)
    assert caught.value.kind is ErrorKind.BAD_REQUEST


MODELS = [Model("sim-auto", "Auto", context_window=200_000), Model("sim-fast")]


def test_models() -> None:
    page = msgspec.json.decode(render_models(MODELS, 1_700_000_000, {}))
    assert {key: page[key] for key in ("has_more", "first_id", "last_id")} == {
        "has_more": False,
        "first_id": "sim-auto",
        "last_id": "sim-fast",
    }
    entries = [ModelInfo.model_validate(entry) for entry in page["data"]]
    assert [(entry.type, entry.id, entry.display_name) for entry in entries] == [
        ("model", "sim-auto", "Auto"),
        ("model", "sim-fast", "sim-fast"),
    ]
    assert entries[0].created_at.isoformat() == "2023-11-14T22:13:20+00:00"
    assert [entry.max_input_tokens for entry in entries] == [200_000, None]


MANY = [Model(f"m{i}") for i in range(5)]


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ({}, "m0 m1 m2 m3 m4", False),
        ({"limit": "2"}, "m0 m1", True),
        ({"limit": "5"}, "m0 m1 m2 m3 m4", False),
        ({"limit": "1000"}, "m0 m1 m2 m3 m4", False),
        ({"limit": "2", "after_id": "m1"}, "m2 m3", True),
        ({"limit": "2", "after_id": "m3"}, "m4", False),
        ({"after_id": "m4"}, "", False),
        ({"limit": "2", "before_id": "m3"}, "m1 m2", True),
        ({"before_id": "m2"}, "m0 m1", False),
    ],
)
def test_pages(query: dict[str, str], ids: str, more: bool) -> None:
    page = msgspec.json.decode(render_models(MANY, 0, query))
    assert ([entry["id"] for entry in page["data"]], page["has_more"]) == (ids.split(), more)
    assert (page["first_id"], page["last_id"]) == ((ids.split()[0], ids.split()[-1]) if ids else (None, None))


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "x"}, {"limit": "1001"}, {"limit": "²"}, {"after_id": "z"}]
)
def test_a_page_that_is_not_there(query: dict[str, str]) -> None:
    with pytest.raises(GatewayError) as caught:
        render_models(MANY, 0, query)
    assert caught.value.kind is ErrorKind.BAD_REQUEST


def test_no_models() -> None:
    assert msgspec.json.decode(render_models([], 0, {})) == {
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


def test_one_model() -> None:
    assert msgspec.json.decode(render_model(MODELS[1], 0)) == {
        "type": "model",
        "id": "sim-fast",
        "display_name": "sim-fast",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }
