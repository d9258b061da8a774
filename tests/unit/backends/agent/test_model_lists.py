"""Cursor's lists of models, read."""

from typing import Any

import pytest

from caretway.backends.agent.model_lists import read_available, read_rest, read_usable, rest_models
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.turn import ModelVariant
from caretway.cursor.transport.ports import UnaryResponse
from caretway.cursor.wire.messages import ai, pb
from caretway_sim import models


def test_base_models_keep_their_variants_verbatim() -> None:
    listed = ai.AvailableModelsResponse()
    model = listed.models.add(name="m", client_display_name="<span>M &amp; N</span>", supports_images=True)
    for context, reasoning in (("272k", "low"), ("1m", "extra-high")):
        variant = model.variants.add(is_max_mode=context == "1m", is_default_non_max_config=context == "272k")
        variant.parameter_values.add(id="context", value=context)
        variant.parameter_values.add(id="reasoning", value=reasoning)
    (found,) = read_available(listed.SerializeToString())
    assert found.name == "M & N"
    assert (found.reasoning, found.images) == (True, True)
    assert (found.context_window, found.max_window) == (272_000, 1_000_000)
    assert found.variants == (
        ModelVariant((("context", "272k"), ("reasoning", "low")), default=True),
        ModelVariant((("context", "1m"), ("reasoning", "extra-high")), max_mode=True),
    )


SLUGS = [("m-low", "m-low"), ("m[effort=low]", ""), ("m", ""), ("M Low", ""), ("", "")]


@pytest.mark.parametrize(("told", "slug"), SLUGS)
def test_the_flat_id_may_stand_where_others_saw_brackets(told: str, slug: str) -> None:
    listed = ai.AvailableModelsResponse()
    listed.models.add(name="m").variants.add(variant_string_representation=told)
    assert read_available(listed.SerializeToString())[0].variants[0].slug == slug


def test_both_lists_of_one_account_say_the_same() -> None:
    rest = {model.id: model for model in read_rest(models.public(cursor_catalogue=True))}
    wire = {model.id: model for model in read_available(models.available().SerializeToString())}
    assert rest.keys() == wire.keys()
    for key, model in wire.items():
        assert [(v.parameters, v.max_mode) for v in rest[key].variants] == [
            (v.parameters, v.max_mode) for v in model.variants
        ]


STRANGE: list[Any] = [
    None,
    [],
    {"items": 1},
    {"items": [1, {"id": 2}, {"id": ""}]},
    {"items": [{"id": "m", "variants": "x", "parameters": [1], "aliases": 3}]},
    {"items": [{"id": "m", "variants": [{"params": [{"id": 1}]}], "parameters": [{"id": "p", "values": [1]}]}]},
]


@pytest.mark.parametrize("listed", STRANGE)
def test_what_is_no_model_is_left_out(listed: Any) -> None:
    assert all(model.id == "m" for model in read_rest(listed))


def test_flat_ids() -> None:
    listed = pb.GetUsableModelsResponse()
    listed.models.add(model_id="a-fast", max_mode=True)
    listed.models.add(model_id="")
    (found,) = read_usable(listed)
    assert (found.id, found.flat, found.variants[0].max_mode) == ("a-fast", True, True)


async def test_the_public_list_may_fail() -> None:
    async def refused() -> UnaryResponse:
        return UnaryResponse(500, {}, b"")

    async def broken() -> UnaryResponse:
        return UnaryResponse(200, {}, b"{")

    async def down() -> UnaryResponse:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, "nobody there")

    for get in (refused, broken, down):
        assert await rest_models(get) == []


@pytest.mark.seed("B08")
def test_the_id_that_menus_show_is_a_name_for_the_model() -> None:
    listed = pb.GetUsableModelsResponse(
        models=[
            pb.ModelDetails(model_id="gpt-x-high", display_model_id="gpt-x", aliases=["x", "gpt-x"]),
            pb.ModelDetails(model_id="same", display_model_id="same"),
        ]
    )
    assert [(model.id, model.aliases) for model in read_usable(listed)] == [
        ("gpt-x-high", ("x", "gpt-x")),
        ("same", ()),
    ]
