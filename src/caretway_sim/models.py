"""The simulator's answers to the lists of models: GetUsableModels, AvailableModels, public /v1/models; which models
think, and which report cache writes.

The classic list has three models of our own; the other one is `catalogue`.
"""

from dataclasses import dataclass
from typing import Any, Final

from caretway.cursor.wire.messages import ai, pb

from . import catalogue


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    name: str
    description: str
    efforts: tuple[str, ...] = ()
    """Values of the `effort` parameter; a model that has it thinks."""


MODELS: Final = (
    Model("sim-auto", "Sim Auto", "Simulated: the default"),
    Model("sim-fast", "Sim Fast", "Simulated: answers at once"),
    Model("sim-think", "Sim Think", "Simulated: thinks before it answers", ("low", "medium", "high")),
)
DEFAULT: Final = MODELS[0]
_DEFAULT_EFFORT: Final = "medium"
_SIMULATED: Final = " (simulated)"


def thinks(model_id: str) -> bool:
    base, _, variant = model_id.partition("[")
    return "thinking=true" in variant or any(model.id == base and model.efforts for model in MODELS)


def writes_cache(model_id: str) -> bool:
    """Models of some makers tell what they wrote to their cache, those of others say 0."""
    return thinks(model_id) or "claude" in model_id


def details(model: Model) -> pb.ModelDetails:
    message = pb.ModelDetails(
        model_id=model.id,
        display_model_id=model.id,
        display_name=model.name,
        display_name_short=model.name,
        max_mode=False,
    )
    if model.efforts:
        message.thinking_details.SetInParent()
    return message


def usable(*, cursor_catalogue: bool) -> pb.GetUsableModelsResponse:
    """The flat list. Cursor's own tells of no model that it thinks."""
    if not cursor_catalogue:
        return pb.GetUsableModelsResponse(models=[details(model) for model in MODELS])
    listed = pb.GetUsableModelsResponse()
    for slug, base, variant in catalogue.slugs():
        name = f"{base.name} {' '.join(value for _, value in variant.params)}".strip() + _SIMULATED
        listed.models.add(
            model_id=slug, display_model_id=slug, display_name=name, display_name_short=name, max_mode=variant.max_mode
        )
    return listed


def available() -> ai.AvailableModelsResponse:
    """Base models with their variants."""
    listed = ai.AvailableModelsResponse(model_names=[base.id for base in catalogue.BASES])
    for base in catalogue.BASES:
        default_max = next((variant for variant in base.variants if variant.max_mode), None)
        model = listed.models.add(
            name=base.id,
            supports_images=base.images,
            supports_max_mode=default_max is not None,
            context_token_limit=base.windows[0],
            context_token_limit_for_max_mode=base.windows[1],
            client_display_name=base.name + _SIMULATED,
            server_model_name=base.id,
            supports_non_max_mode=any(not variant.max_mode for variant in base.variants),
        )
        for variant in base.variants:
            model.variants.add(
                parameter_values=[ai.AvailableModel.Parameter(id=key, value=value) for key, value in variant.params],
                display_name=base.name + _SIMULATED,
                is_max_mode=variant.max_mode,
                is_default_max_config=variant is default_max,
                is_default_non_max_config=variant.default,
                variant_string_representation=variant.bracket(base.id),
            )
    return listed


def public(*, cursor_catalogue: bool) -> dict[str, Any]:
    """The answer of the public `/v1/models`."""
    if not cursor_catalogue:
        return {"items": [_public(model) for model in MODELS]}
    return {"items": [_public_base(base) for base in catalogue.BASES]}


def _public_base(base: catalogue.BaseModel) -> dict[str, Any]:
    return {
        "id": base.id,
        "displayName": base.name + _SIMULATED,
        "aliases": [],
        "parameters": [
            {"id": name, "displayName": name.capitalize(), "values": [{"value": value} for value in values]}
            for name, values in base.parameters.items()
        ],
        "variants": [
            {
                "params": [{"id": name, "value": value} for name, value in variant.params],
                "displayName": base.name + _SIMULATED,
                "isDefault": variant.default,
                "isMaxMode": variant.max_mode,
            }
            for variant in base.variants
        ],
    }


def _public(model: Model) -> dict[str, Any]:
    values = [{"value": effort, "displayName": effort.capitalize()} for effort in model.efforts]
    chosen = [{"id": "effort", "value": _DEFAULT_EFFORT}] if values else []
    return {
        "id": model.id,
        "displayName": model.name,
        "description": model.description,
        "parameters": [{"id": "effort", "displayName": "Effort", "values": values}] if values else [],
        "variants": [{"params": chosen, "displayName": model.name, "isDefault": True}],
    }
