"""What real clients sent (tests/data/clients): every body is accepted, and nothing in it is lost."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from caretway.core.request import Image, Role, TurnRequest
from caretway.dialects.openai_chat import OpenAIChat

CAPTURES = sorted((Path(__file__).parents[3] / "data" / "clients").glob("*/*.json"))
ACCEPTED_WITHOUT_EFFECT = {"max_tokens", "max_completion_tokens", "temperature"}


def load(path: Path) -> tuple[dict[str, Any], TurnRequest]:
    captured = msgspec.json.decode(path.read_bytes())
    return captured["body"], OpenAIChat().decode(captured["body"], captured["headers"])


def test_the_captures_are_there() -> None:
    assert {path.parent.name for path in CAPTURES} == {
        "aider",
        "continue",
        "goose",
        "langchain",
        "openai-python",
        "opencode",
        "vercel-ai",
    }


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_accepted(path: Path) -> None:
    body, request = load(path)
    assert request.model == body["model"]
    assert request.stream == body.get("stream", False)
    assert request.include_usage == bool(body.get("stream_options"))
    assert [tool.name for tool in request.tools] == [tool["function"]["name"] for tool in body.get("tools", [])]
    assert [tool.schema for tool in request.tools] == [tool["function"]["parameters"] for tool in body.get("tools", [])]
    assert len(request.messages) == len(body["messages"])
    assert set(request.ignored) <= ACCEPTED_WITHOUT_EFFECT
    assert set(request.ignored) == ACCEPTED_WITHOUT_EFFECT & body.keys()
    for message, raw in zip(request.messages, body["messages"], strict=True):
        content = raw.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        said = (
            message.parts[0].text if message.role is Role.TOOL and hasattr(message.parts[0], "text") else message.text
        )
        assert said == text


def test_the_shapes_worth_a_look() -> None:
    formats = efforts = images = calls = results = single = 0
    for path in CAPTURES:
        _, request = load(path)
        formats += request.output_format is not None and request.output_format.schema is not None
        efforts += request.effort == "low"
        single += not request.tool_choice.parallel
        for message in request.messages:
            images += any(isinstance(part, Image) and part.data.startswith(b"\x89PNG") for part in message.parts)
            calls += message.role is Role.ASSISTANT and not message.text
            results += message.role is Role.TOOL
    assert (formats, efforts, images, single) == (4, 1, 3, 2)
    assert calls == results > 10
