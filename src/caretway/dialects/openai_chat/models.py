"""The model list in OpenAI's shape, with context windows, modalities and parameters where they are known."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core.turn import ModelInfo


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
