"""The simulated models, in the forms in which Cursor lists models: flat, with variants, and the public list.

The three models of our own are always there. With Cursor's catalogue the models of `model_catalogue` follow them.
"""

from dataclasses import dataclass
from typing import Any, Final

from ..wire.messages import ai, pb
from . import model_catalogue
from .model_catalogue import BaseModel, Variant


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


def thinks(model_id: str) -> bool:
    return any(model.id == model_id and model.efforts for model in MODELS)


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


def usable(own: str = "", *, cursor: bool = False) -> pb.GetUsableModelsResponse:
    """The flat list. `own`: one more. `cursor`: with Cursor's own, which says nothing about thinking."""
    listed = [details(model) for model in MODELS]
    if cursor:
        for row in listed:
            row.ClearField("thinking_details")
        listed += model_catalogue.usable()
    if own:
        listed.append(details(Model(own, own, "")))
    return pb.GetUsableModelsResponse(models=listed)


def available(own: str = "", *, cursor: bool = False) -> ai.AvailableModelsResponse:
    """The base models, with the variants that may be asked for."""
    bases = [*_bases(cursor), *([base(Model(own, own, ""))] if own else ())]
    return ai.AvailableModelsResponse(models=[model_catalogue.available(model) for model in bases])


def public(*, cursor: bool = False) -> dict[str, Any]:
    """The answer of the public `/v1/models`."""
    descriptions = {model.id: model.description for model in MODELS}
    return {"items": [_public(model, descriptions.get(model.id, "")) for model in _bases(cursor)]}


def base(model: Model) -> BaseModel:
    variants = [Variant((("effort", effort),), "", default=effort == _DEFAULT_EFFORT) for effort in model.efforts]
    return BaseModel(model.id, model.name, tuple(variants) or (Variant((), model.id, default=True),))


def _bases(cursor: bool) -> list[BaseModel]:
    return [*map(base, MODELS), *(model_catalogue.BASES if cursor else ())]


def _public(model: BaseModel, description: str) -> dict[str, Any]:
    values: dict[str, dict[str, None]] = {}
    for variant in model.variants:
        for key, value in variant.parameters:
            values.setdefault(key, {})[value] = None
    return {
        "id": model.id,
        "displayName": model.name,
        "description": description,
        "aliases": [],
        "parameters": [
            {
                "id": key,
                "displayName": key.capitalize(),
                "values": [{"value": value, "displayName": value.capitalize()} for value in of_key],
            }
            for key, of_key in values.items()
        ],
        "variants": [
            {
                "params": [{"id": key, "value": value} for key, value in variant.parameters],
                "displayName": model.name,
                "isDefault": variant.default,
                "isMaxMode": variant.max_mode,
            }
            for variant in model.variants
        ],
    }
