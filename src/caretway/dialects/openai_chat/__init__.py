"""OpenAI's Chat Completions dialect: decoder, encoder and table of errors."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from ...core.request import ToolSet, TurnRequest
from ...core.turn import ModelInfo
from .. import DialectRoute, Encoder, Lookup, Operation, ResponseMeta
from ..fields import ToolMemory
from .decode import decode
from .encode import ChatEncoder, encode_error, render

# ---- The model list in OpenAI's shape, with context windows, modalities and parameters where they are known.


def render_models(models: Sequence[ModelInfo], created: int) -> bytes:
    return msgspec.json.encode({"object": "list", "data": [_entry(model, created) for model in models]})


def render_model(model: ModelInfo, created: int) -> bytes:
    return msgspec.json.encode(_entry(model, created))


def _entry(model: ModelInfo, created: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": model.id,
        "name": model.name or model.id,
        "object": "model",
        "created": created,
        "owned_by": "cursor",
    }
    if model.aliases:
        entry["aliases"] = model.aliases
    if model.reasoning:
        entry["reasoning"] = True
    if model.context_window is not None:
        entry["context_window"] = model.context_window
    if model.max_window is not None and model.max_window != model.context_window:
        entry["max_context_window"] = model.max_window
    if model.images is not None:
        entry["input_modalities"] = ["text", "image"] if model.images else ["text"]
    if model.parameters:
        entry["parameters"] = dict(model.parameters)
    if model.stands_for:
        entry["stands_for"] = model.stands_for
    return entry


class OpenAIChat:
    name: str = "openai_chat"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/chat/completions",
            {"POST": Operation("chat", "OpenAI Chat Completions", "The completion", body="ChatRequest", turn=True)},
        ),
    )
    lookups: Mapping[str, Lookup] = MappingProxyType({})
    mark: str = ""
    repeats: int = 1

    def recalls(self, body: bytes) -> bool:
        return False

    def __init__(self) -> None:
        self._tools = ToolMemory[ToolSet]()

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers, self._tools)

    render = staticmethod(render)
    error = staticmethod(encode_error)
    render_model = staticmethod(render_model)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        return ChatEncoder(request, meta)

    def render_models(self, models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
        return render_models(models, created)
