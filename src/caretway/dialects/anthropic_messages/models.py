"""The model list in Anthropic's shape (pages by `limit`, `after_id` and `before_id`; capabilities), for clients that
send `anthropic-version`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final

import msgspec

from ...core.turn import ModelInfo
from ..fields import invalid_value

MAX_PAGE: Final = 1000
_READS_PDFS: Final = find_spec("pypdf") is not None


def render_models(models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
    """The page that was asked for. Without `limit` all models are one page: few clients ask for a second one."""
    shown, more = _page(models, query)
    page = {
        "data": [_entry(model, created) for model in shown],
        "has_more": more,
        "first_id": shown[0].id if shown else None,
        "last_id": shown[-1].id if shown else None,
    }
    return msgspec.json.encode(page)


def _page(models: Sequence[ModelInfo], query: Mapping[str, str]) -> tuple[Sequence[ModelInfo], bool]:
    """The models of a page, and whether there are more in its direction."""
    limit = _limit(query.get("limit"))
    if (before := query.get("before_id")) is not None:
        left = models[: _place(models, before, "before_id")]
        return (left, False) if limit is None else (left[-limit:], len(left) > limit)
    if (after := query.get("after_id")) is not None:
        models = models[_place(models, after, "after_id") + 1 :]
    return (models, False) if limit is None else (models[:limit], len(models) > limit)


def _limit(given: str | None) -> int | None:
    if given is None:
        return None
    if (
        not given.isdecimal()
        or not given.isascii()
        or len(given) > len(str(MAX_PAGE))
        or not 1 <= int(given) <= MAX_PAGE
    ):
        raise invalid_value("limit", f"use a number from 1 to {MAX_PAGE}.")
    return int(given)


def _place(models: Sequence[ModelInfo], wanted: str, param: str) -> int:
    for place, model in enumerate(models):
        if model.id == wanted:
            return place
    raise invalid_value(param, "the list has no such model.")


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
        entry["capabilities"] = _capabilities(images=model.images is not False, thinks=model.reasoning)
    return entry


def _capabilities(*, images: bool, thinks: bool) -> dict[str, object]:
    """All of them, as the API demands: one that Cursor does not have is not supported."""
    yes, no, may_think = {"supported": True}, {"supported": False}, {"supported": thinks}
    return {
        "batch": no,
        "citations": no,
        "code_execution": no,
        "context_management": {
            "supported": True,
            "clear_thinking_20251015": yes,
            "clear_tool_uses_20250919": no,
            "compact_20260112": yes,
        },
        "effort": {"supported": thinks, "low": may_think, "medium": may_think, "high": may_think, "max": no},
        "image_input": {"supported": images},
        "pdf_input": {"supported": _READS_PDFS},
        "server_tools": {"supported": False, "code_execution": no, "web_search": no},
        "structured_outputs": yes,
        "thinking": {
            "supported": thinks,
            "types": {"adaptive": may_think, "between_tools": may_think, "disabled": yes, "enabled": may_think},
        },
    }
