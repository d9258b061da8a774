"""The SDK's list of models, with parameters and variants."""

from typing import Any

from caretway.backends.agent.models import read_rest
from caretway.core.turn import ModelInfo


def listed(*models: dict[str, Any]) -> list[ModelInfo]:
    return read_rest({"items": list(models)})


def test_a_plain_model() -> None:
    assert listed({"id": "m", "displayName": "M"}, {"id": "n"}) == [ModelInfo("m", "M"), ModelInfo("n", "n")]


def test_parameters_and_variants() -> None:
    low, high = {"id": "effort", "value": "low"}, {"id": "effort", "value": "high"}
    (found,) = listed(
        {
            "id": "m",
            "displayName": "M",
            "aliases": ["mm"],
            "parameters": [{"id": "effort", "values": [{"value": "low"}, {"value": "high"}]}],
            "variants": [
                {"params": [low], "displayName": "M", "isDefault": True},
                {"params": [high], "displayName": "M High", "isMaxMode": True},
            ],
        }
    )
    assert (found.id, found.name, found.aliases, found.reasoning) == ("m", "M", ("mm",), True)
    assert found.parameters == (("effort", ("low", "high")),)
    assert [(one.parameters, one.default, one.max_mode) for one in found.variants] == [
        ((("effort", "low"),), True, False),
        ((("effort", "high"),), False, True),
    ]
