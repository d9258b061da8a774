"""Anthropic's Messages dialect: decoder, encoder, table of errors and token count."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final

import msgspec

from ...core.errors import GatewayError
from ...core.fold import Reply
from ...core.request import TurnRequest
from ...core.tally import estimate_input
from ...core.turn import ModelInfo
from .. import DialectRoute, Encoder, Lookup, Operation, ResponseMeta
from ..fields import ToolMemory, invalid_value
from .compaction import COMPACTS, SummaryBlockEncoder, render_compaction
from .decode import decode
from .encode import MessagesEncoder, encode_error, render
from .messages import Tools

# ---- The model list in Anthropic's shape (pages by `limit`, `after_id` and `before_id`; capabilities), for clients
# that send `anthropic-version`.

MAX_PAGE: Final = 1000
_READS_PDFS: Final = find_spec("pypdf") is not None


def render_models(models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
    """The requested page. Without `limit` all models are on one page, because few clients request a second page."""
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
    """All capabilities, as the API demands; those that Cursor lacks are not supported."""
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


class AnthropicMessages:
    name: str = "anthropic_messages"
    routes: tuple[DialectRoute, ...] = (
        DialectRoute(
            "/messages",
            {
                "POST": Operation(
                    "messages",
                    "Anthropic Messages",
                    "The message",
                    body="MessagesRequest",
                    error="AnthropicError",
                    turn=True,
                )
            },
        ),
        DialectRoute(
            "/messages/count_tokens",
            {
                "POST": Operation(
                    "countTokens",
                    "An estimate of a request's size",
                    "The number of tokens",
                    body="MessagesRequest",
                    error="AnthropicError",
                )
            },
        ),
    )
    mark: str = "anthropic-version"
    repeats: int = 1

    def __init__(self) -> None:
        self.lookups: Mapping[str, Lookup] = {"countTokens": self._count_tokens}
        self._tools = ToolMemory[Tools]()

    def _count_tokens(self, params: Mapping[str, str], headers: Mapping[str, str], body: object) -> bytes:
        """Estimate the size of a request, decoded like a request for an answer."""
        return msgspec.json.encode({"input_tokens": estimate_input(self.decode(body, headers))})

    def recalls(self, body: bytes) -> bool:
        return False

    def decode(self, body: object, headers: Mapping[str, str]) -> TurnRequest:
        return decode(body, headers, self._tools)

    def encoder(self, request: TurnRequest, meta: ResponseMeta) -> Encoder:
        return (SummaryBlockEncoder if COMPACTS in request.echo else MessagesEncoder)(request, meta)

    def render(self, reply: Reply, request: TurnRequest, meta: ResponseMeta) -> bytes:
        return (render_compaction if COMPACTS in request.echo else render)(reply, request, meta)

    def error(self, error: GatewayError) -> tuple[int, bytes]:
        return encode_error(error)

    def render_models(self, models: Sequence[ModelInfo], created: int, query: Mapping[str, str]) -> bytes:
        return render_models(models, created, query)

    def render_model(self, model: ModelInfo, created: int) -> bytes:
        return render_model(model, created)
