"""Names a model in a run request (base with variant, or flat id), chooses the next way to name it after a refusal, and
remembers for an account which way worked and which models need simple schemas.

The ways: the base id with all parameters of one variant (`BASE`, as in the official clients), the flat id in
`model_details` (`DETAILS`), the flat id in both fields (`BOTH`), or the flat id in `requested_model` only (`REQUESTED`,
which no known client uses). Pure except for `AccountMemory`.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError
from msgspec.structs import replace

from ...accounts.names import THOUGHT_IDS, window
from ...core.errors import GatewayError
from ...core.request import ModelChoice, TurnRequest
from ...core.turn import ModelInfo, ModelVariant
from ...cursor.transport.ports import UnaryResponse
from ...cursor.transport.refusals import says_nothing
from ...cursor.wire.embedding import embed, tag
from ...cursor.wire.envelope import ConnectError
from ...cursor.wire.messages import ai, pb

# ---- Reads Cursor's three lists of models (AvailableModels, GetUsableModels, REST /v1/models): base models with
# variants, flat ids, context windows, names without markup. Bounded; a list that fails is left out.
#
# The list of base models is the main list; the flat list adds the ids that older clients use for variants.

log = logging.getLogger(__name__)

REST_PATH: Final = "/v1/models"
NOT_SERVED: Final = 404
"""The status of a host without the list of base models; logged only at DEBUG."""
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
    """The model's aliases and the id that Cursor's own menu shows."""
    shown = (model.display_model_id,) if model.display_model_id not in ("", model.model_id) else ()
    return tuple(dict.fromkeys([*model.aliases, *shown]))


async def base_models(call: Callable[[], Awaitable[UnaryResponse]]) -> list[ModelInfo]:
    """Models of AvailableModels; empty if the call fails or cannot be read, because there is the flat list."""
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
    """Models of the public list; empty if it cannot be read, because there is another list."""
    try:
        response = await get()
        if response.status != 200:
            log.info("the public list of models could not be fetched: HTTP %d", response.status)
            return []
        return read_rest(msgspec.json.decode(response.body))
    except (GatewayError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
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
    """The model, completed from its variants: whether it thinks, and its context windows."""
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


def _flat_id(listed: str, model: str) -> str:
    """The variant's flat id; empty if the field holds another form, such as `model[effort=high]`."""
    return listed if listed != model and _SLUG.fullmatch(listed) else ""


def _plain(name: str) -> str:
    """The name without a menu's markup."""
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


_DETAILS: Final = tag(pb.AgentRunRequest, "model_details")
_REQUESTED: Final = tag(pb.AgentRunRequest, "requested_model")
MAX_REMEMBERED: Final = 256


class ModelShape(Enum):
    """A way to name a model. The value is the word in the settings."""

    BASE = "base"
    DETAILS = "details"
    BOTH = "both"
    REQUESTED = "requested"


_ONLY_BASE: Final = (ModelShape.BASE,)
_LISTED: Final = (ModelShape.BASE, ModelShape.DETAILS)
_UNLISTED: Final = (ModelShape.DETAILS, ModelShape.BOTH)


def shapes_for(request: TurnRequest, known: ModelShape | None = None) -> tuple[ModelShape, ...]:
    """The ways to name the model, in the order of trial. `known`: the way that worked before."""
    choice = request.choice
    if not choice.slug:
        return _ONLY_BASE  # the model has no other name
    usual = _LISTED if choice.listed else _UNLISTED
    if known is ModelShape.BASE and not choice.listed:
        known = None  # it worked for a model with a base id, which this model lacks
    return usual if known is None or known is usual[0] else (known, usual[0])


@lru_cache(maxsize=MAX_REMEMBERED)
def model_fields(
    model: str, parameters: tuple[tuple[str, str], ...], choice: ModelChoice, shapes: tuple[ModelShape, ...]
) -> tuple[tuple[bytes, bytes], ...]:
    """(`model_details`, `requested_model`) of an AgentRunRequest for each shape; a field may be empty."""
    return tuple(_fields(model, parameters, choice, shape) for shape in shapes)


def _fields(
    model: str, parameters: tuple[tuple[str, str], ...], choice: ModelChoice, shape: ModelShape
) -> tuple[bytes, bytes]:
    if shape is ModelShape.BASE:
        return b"", _requested(model, parameters, max_mode=choice.max_mode)
    slug = choice.slug or model
    details = requested = b""
    if shape is not ModelShape.REQUESTED:
        named = pb.ModelDetails(model_id=slug, display_model_id=slug, display_name=slug, display_name_short=slug)
        if choice.max_mode:
            named.max_mode = True
        details = embed(_DETAILS, named.SerializeToString())
    if shape is not ModelShape.DETAILS:
        requested = _requested(slug, (), max_mode=choice.max_mode)
    return details, requested


def _requested(model: str, parameters: tuple[tuple[str, str], ...], *, max_mode: bool) -> bytes:
    asked = pb.RequestedModel(model_id=model, max_mode=max_mode)
    for name, value in parameters:
        asked.parameters.add(id=name, value=value)
    return embed(_REQUESTED, asked.SerializeToString())


def may_be_shape(error: ConnectError) -> str:
    """Why a refusal before any output may be about the way the model was named; empty if it cannot be."""
    if error.code == "not_found" or error.name == "BAD_MODEL_NAME":
        return "Cursor does not know the model under this name"
    if is_bare(error):
        return "Cursor refuses without a reason"
    return ""


def is_bare(error: ConnectError) -> bool:
    """Whether the error is `resource_exhausted` without details, which has many reasons besides a spent quota."""
    return error.code == "resource_exhausted" and says_nothing(error)


class AccountMemory:
    """The shapes that worked for one account: one for each model, and the last one for unknown models. Also the models
    that answered only after their schemas were simplified."""

    def __init__(self) -> None:
        self._account = ""
        self._models: dict[str, ModelShape] = {}
        self._last: ModelShape | None = None
        self._strict: dict[str, None] = {}

    def belongs_to(self, account: str) -> None:
        """Clear the memory if `account` is another account."""
        if account != self._account:
            self._account = account
            self._models.clear()
            self._last = None
            self._strict.clear()

    def known(self, model: str) -> ModelShape | None:
        return self._models.get(model, self._last)

    def worked(self, model: str, shape: ModelShape) -> None:
        self._models[model] = self._last = shape
        if len(self._models) > MAX_REMEMBERED:
            del self._models[next(iter(self._models))]

    def is_strict(self, model: str) -> bool:
        return model in self._strict

    def took_simplest(self, model: str) -> None:
        self._strict[model] = None
        if len(self._strict) > MAX_REMEMBERED:
            del self._strict[next(iter(self._strict))]
