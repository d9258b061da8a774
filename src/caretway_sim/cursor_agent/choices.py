"""What can be chosen in a session of the cursor-agent stand-in: mode, model and the model's options. Base models with
options for a client that knows them (`parameterizedModelPicker`), one fixed variant of each model for any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .words import MODELS

MODES: Final = ("agent", "plan", "ask")
SWITCH: Final = ("true", "false")
OPTIONS: Final[Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]]] = {
    "sim-composer": {
        "effort": ("thought_level", ("low", "medium", "high")),
        "fast": ("model_config", SWITCH),
    },
}
"""By base: each option's category and values. The middle of three is the default, and the first of two."""
BASES: Final = tuple(model for model in MODELS if not model.startswith(tuple(f"{base}-" for base in OPTIONS)))


class Unknown(Exception):
    """There is no such option, or it has no such value."""


@dataclass(slots=True)
class Choices:
    picker: bool
    mode: str = "agent"
    model: str = "auto"
    options: dict[str, str] = field(default_factory=dict)

    def start(self, model: str) -> "Choices":
        """The flat id that the program was started with says no more than its base here."""
        base = next((one for one in OPTIONS if model.startswith(f"{one}-")), model)
        self._take(base)
        return self

    def _take(self, base: str) -> None:
        self.model = base
        self.options = _defaults(base)

    def _offered(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        return OPTIONS.get(self.model, {})

    @property
    def told(self) -> str:
        return " ".join([self.model, *(f"{key}={value}" for key, value in self.options.items())])

    def about(self) -> dict[str, Any]:
        modes = {"currentModeId": self.mode, "availableModes": [{"id": mode, "name": mode} for mode in MODES]}
        if self.picker:
            return {"modes": modes, "configOptions": self.config()}
        listed = [{"modelId": _fixed(model), "name": MODELS[model]} for model in BASES]
        models = {"currentModelId": _fixed(self.model), "availableModels": listed}
        return {"modes": modes, "models": models, "configOptions": self.config()}

    def config(self) -> list[dict[str, Any]]:
        model, models = (self.model, BASES) if self.picker else (_fixed(self.model), tuple(map(_fixed, BASES)))
        rows = [_select("mode", "mode", self.mode, MODES), _select("model", "model", model, models)]
        if self.picker:
            offered = self._offered().items()
            rows += [_select(key, category, self.options[key], values) for key, (category, values) in offered]
        return rows

    def choose(self, key: str, value: str) -> None:
        row = next((row for row in self.config() if row["id"] == key), None)
        if row is None or value not in [one["value"] for one in row["options"]]:
            raise Unknown(f"Invalid params: {key} cannot be {value}")
        if key == "mode":
            self.mode = value
        elif key == "model":
            self._take(value.partition("[")[0])
        else:
            self.options[key] = value


def _defaults(model: str) -> dict[str, str]:
    return {key: values[len(values) // 3] for key, (_, values) in OPTIONS.get(model, {}).items()}


def _fixed(model: str) -> str:
    return f"{model}[{','.join(f'{key}={value}' for key, value in _defaults(model).items())}]"


def _select(key: str, category: str, current: str, values: tuple[str, ...]) -> dict[str, Any]:
    options = [{"value": value, "name": value} for value in values]
    named = {"id": key, "name": key.capitalize(), "category": category}
    return {**named, "type": "select", "currentValue": current, "options": options}
