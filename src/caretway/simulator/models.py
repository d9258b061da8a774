"""The simulated models, in the three forms in which Cursor lists models."""

from dataclasses import dataclass
from typing import Any, Final

from ..wire.messages import pb


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


def usable() -> pb.GetUsableModelsResponse:
    return pb.GetUsableModelsResponse(models=[details(model) for model in MODELS])


def public() -> dict[str, Any]:
    """The answer of the public `/v1/models`."""
    return {"items": [_public(model) for model in MODELS]}


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
