"""Models with their parameters and variants, and results as the SDK takes them."""

from types import SimpleNamespace
from typing import Any

from caretway.backends.cursor_sdk.options import model_infos, tool_answer
from caretway.core.request import Image, Text, ToolResult
from caretway.core.turn import ModelInfo


def model(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"id": "m", "display_name": "M", "parameters": (), "variants": ()} | fields)


def parameter(name: str, *values: str) -> SimpleNamespace:
    return SimpleNamespace(id=name, values=[SimpleNamespace(value=value) for value in values])


def variant(name: str, *, default: bool = False, **params: str) -> SimpleNamespace:
    rows = [SimpleNamespace(id=key, value=value) for key, value in params.items()]
    return SimpleNamespace(display_name=name, is_default=default, params=rows)


def test_a_plain_model() -> None:
    assert model_infos([model(), model(id="n", display_name="")]) == [ModelInfo("m", "M"), ModelInfo("n", "n")]


def test_parameters_and_variants() -> None:
    efforts = parameter("effort", "low", "high")
    variants = (variant("M", default=True, effort="low"), variant("M High", effort="high"), variant("M again"))
    (found,) = model_infos([model(parameters=(efforts,), variants=variants)])
    assert (found.id, found.name, found.reasoning) == ("m", "M", True)
    assert found.parameters == (("effort", ("low", "high")),)
    assert [(one.parameters, one.default) for one in found.variants] == [
        ((("effort", "low"),), True),
        ((("effort", "high"),), False),
        ((), False),
    ]


def test_results_of_tools() -> None:
    result = ToolResult("c", (Text("done"), Image(b"cat", "image/png")), is_error=True)
    assert tool_answer(result, (Text("thanks"),)) == {
        "content": [
            {"type": "text", "text": "done"},
            {"type": "image", "data": "Y2F0", "mimeType": "image/png"},
            {"type": "text", "text": "The user says: thanks"},
        ],
        "isError": True,
    }
    assert tool_answer(ToolResult("c", ()))["content"] == [{"type": "text", "text": ""}]
