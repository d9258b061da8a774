"""Reads Cursor's three lists of models (AvailableModels, GetUsableModels, REST /v1/models): base models with variants,
flat ids, context windows, names without markup. Bounded; a list that fails is left out.

The base models are what counts; the flat list adds the ids by which older clients know their variants.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError
from msgspec.structs import replace

from ...accounts.models.names import THOUGHT_IDS, window
from ...core.errors import GatewayError
from ...core.turn import ModelInfo, ModelVariant
from ...cursor.transport.ports import UnaryResponse
from ...cursor.wire.messages import ai, pb

log = logging.getLogger(__name__)

REST_PATH: Final = "/v1/models"
NOT_SERVED: Final = 404
"""Not every host has the list of base models. That is no news."""
MAX_MODELS: Final = 2000
MAX_VARIANTS: Final = 512
_TAG: Final = re.compile(r"<[^>]{0,200}>")
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")

BaseSource = Callable[[], Awaitable[Sequence[ModelInfo]]]
ASK_BASES: Final = ai.AvailableModelsRequest(use_model_parameters=True, do_not_use_markdown=True).SerializeToString()


def read_usable(listed: pb.GetUsableModelsResponse) -> list[ModelInfo]:
    return [
        ModelInfo(
            id=model.model_id,
            name=model.display_name or model.model_id,
            aliases=_other_names(model),
            reasoning=model.HasField("thinking_details") or "thinking" in model.model_id,
            variants=(ModelVariant(slug=model.model_id, max_mode=True),) if model.max_mode else (),
            flat=True,
        )
        for model in listed.models[:MAX_MODELS]
        if model.model_id
    ]


def _other_names(model: pb.ModelDetails) -> tuple[str, ...]:
    """The id that Cursor's own menu shows is a name for the model, too, as its aliases are."""
    shown = (model.display_model_id,) if model.display_model_id not in ("", model.model_id) else ()
    return tuple(dict.fromkeys([*model.aliases, *shown]))


async def base_models(call: Callable[[], Awaitable[UnaryResponse]]) -> list[ModelInfo]:
    """AvailableModels; nothing when it is refused or cannot be read: the flat list is there."""
    try:
        response = await call()
        if response.status != 200:
            level = logging.DEBUG if response.status == NOT_SERVED else logging.INFO
            log.log(level, "the base models could not be fetched: HTTP %d", response.status)
            return []
        return read_available(response.body)
    except (GatewayError, DecodeError) as failure:
        log.info("the base models could not be fetched: %s", failure)
        return []


def read_available(body: bytes) -> list[ModelInfo]:
    """The body of AvailableModels. Raises DecodeError."""
    listed = ai.AvailableModelsResponse.FromString(body)
    return [_available(model) for model in listed.models[:MAX_MODELS] if model.name]


def _available(model: ai.AvailableModel) -> ModelInfo:
    variants = tuple(
        ModelVariant(
            tuple((one.id, one.value) for one in variant.parameter_values),
            slug=variant.legacy_slug or _flat_id(variant.variant_string_representation, model.name),
            max_mode=variant.is_max_mode,
            default=variant.is_default_non_max_config or variant.is_default_max_config,
            name=_plain(variant.display_name),
        )
        for variant in model.variants[:MAX_VARIANTS]
    )
    return _described(
        ModelInfo(
            model.name,
            _plain(model.client_display_name) or model.name,
            reasoning=model.supports_thinking,
            context_window=model.context_token_limit if model.context_token_limit > 0 else None,
            max_window=model.context_token_limit_for_max_mode if model.context_token_limit_for_max_mode > 0 else None,
            variants=variants,
            images=model.supports_images,
        )
    )


async def rest_models(get: Callable[[], Awaitable[UnaryResponse]]) -> Sequence[ModelInfo]:
    """Nothing when the list cannot be had: there is another one."""
    try:
        response = await get()
        if response.status != 200:
            log.info("the public list of models could not be fetched: HTTP %d", response.status)
            return []
        return read_rest(msgspec.json.decode(response.body))
    except (GatewayError, msgspec.DecodeError, UnicodeDecodeError) as failure:
        log.info("the public list of models could not be fetched: %s", failure)
        return []


def read_rest(listed: Any) -> list[ModelInfo]:
    found = [_rest(item) for item in _objects(listed, "items")[:MAX_MODELS] if isinstance(item.get("id"), str)]
    return [model for model in found if model.id]


def _rest(item: dict[str, Any]) -> ModelInfo:
    variants = tuple(
        ModelVariant(
            tuple((row["id"], row["value"]) for row in _objects(variant, "params") if _is_pair(row)),
            max_mode=variant.get("isMaxMode") is True,
            default=variant.get("isDefault") is True,
            name=_text(variant.get("displayName")),
        )
        for variant in _objects(item, "variants")[:MAX_VARIANTS]
    )
    rows = [
        (row["id"], tuple(value["value"] for value in _objects(row, "values") if isinstance(value.get("value"), str)))
        for row in _objects(item, "parameters")
        if isinstance(row.get("id"), str)
    ]
    aliases = item.get("aliases")
    return _described(
        ModelInfo(
            item["id"],
            _plain(_text(item.get("displayName"))) or item["id"],
            aliases=tuple(one for one in aliases if isinstance(one, str)) if isinstance(aliases, list) else (),
            parameters=tuple(row for row in rows if row[1]),
            variants=variants,
        )
    )


def _described(model: ModelInfo) -> ModelInfo:
    """With what its variants say about it: whether it can think, and how much it reads."""
    keys = {key for variant in model.variants for key, _ in variant.parameters} | {key for key, _ in model.parameters}
    windows = [(window(dict(v.parameters).get("context", "")), v) for v in model.variants]
    usual = next((size for size, v in windows if size and v.default and not v.max_mode), None)
    usual = usual or min((size for size, v in windows if size and not v.max_mode), default=None)
    largest = max((size for size, _ in windows if size), default=None)
    return replace(
        model,
        reasoning=model.reasoning or bool(keys & THOUGHT_IDS),
        context_window=model.context_window or usual or largest,
        max_window=max(filter(None, (model.max_window, largest)), default=None),
    )


def _flat_id(told: str, model: str) -> str:
    """Some saw the variant's flat id here, others `model[effort=high]`."""
    return told if told != model and _SLUG.fullmatch(told) else ""


def _plain(name: str) -> str:
    """Names may hold markup for a menu."""
    if "<" not in name and "&" not in name:
        return name
    from html import unescape  # few names need it, and its table is large

    return unescape(_TAG.sub("", name)).strip()


def _objects(value: Any, key: str) -> list[dict[str, Any]]:
    rows = value.get(key) if isinstance(value, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _is_pair(row: dict[str, Any]) -> bool:
    return isinstance(row.get("id"), str) and isinstance(row.get("value"), str)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
