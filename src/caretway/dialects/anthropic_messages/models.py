"""The model list in Anthropic's shape (one page, capabilities), for clients that send `anthropic-version`."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ...core.turn import ModelInfo


def render_models(models: Sequence[ModelInfo], created: int) -> bytes:
    """One page with all models; there is never a second one."""
    entries = [_entry(model, created) for model in models]
    page = {
        "data": entries,
        "has_more": False,
        "first_id": models[0].id if models else None,
        "last_id": models[-1].id if models else None,
    }
    return msgspec.json.encode(page)


def render_model(model: ModelInfo, created: int) -> bytes:
    return msgspec.json.encode(_entry(model, created))


def _entry(model: ModelInfo, created: int) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "model",
        "id": model.id,
        "display_name": model.name or model.id,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }
    if model.context_window is not None:
        entry["max_input_tokens"] = model.context_window
    if model.images is not None or model.reasoning:
        entry["capabilities"] = {
            "image_input": {"supported": model.images is not False},
            "thinking": {"supported": model.reasoning},
        }
    return entry
