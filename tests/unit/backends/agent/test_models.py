"""How a run names its model, and what is learned about it."""

from typing import Any

import pytest

from caretway.backends.agent.models import (
    MAX_REMEMBERED,
    AccountMemory,
    ModelShape,
    is_bare,
    may_be_shape,
    model_fields,
    read_available,
    read_rest,
    read_usable,
    rest_models,
    shapes_for,
)
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import Message, ModelChoice, Role, Text, TurnRequest
from caretway.core.turn import ModelVariant
from caretway.cursor.transport.ports import UnaryResponse
from caretway.cursor.wire.envelope import ConnectError
from caretway.cursor.wire.messages import ai, pb
from caretway_sim import catalogue


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
    rest = {model.id: model for model in read_rest(catalogue.public(cursor_catalogue=True))}
    wire = {model.id: model for model in read_available(catalogue.available().SerializeToString())}
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

    async def nested() -> UnaryResponse:
        return UnaryResponse(200, {}, b"[" * 5000)

    async def down() -> UnaryResponse:
        raise GatewayError(ErrorKind.UPSTREAM_DOWN, "nobody there")

    for get in (refused, broken, nested, down):
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


BASE, DETAILS, BOTH, REQUESTED = ModelShape
LISTED = ModelChoice(slug="m-high-fast", max_mode=True)


def request(choice: ModelChoice) -> TurnRequest:
    return TurnRequest("m", (Message(Role.USER, (Text("hi"),)),), choice=choice)


LADDERS = [
    (LISTED, None, (BASE, DETAILS)),
    (LISTED, BASE, (BASE, DETAILS)),
    (LISTED, DETAILS, (DETAILS, BASE)),
    (ModelChoice(), None, (BASE,)),
    (ModelChoice(), DETAILS, (BASE,)),
    (ModelChoice(slug="m", listed=False), None, (DETAILS, BOTH)),
    (ModelChoice(slug="m", listed=False), BOTH, (BOTH, DETAILS)),
    (ModelChoice(slug="m", listed=False), BASE, (DETAILS, BOTH)),
]


@pytest.mark.parametrize(("choice", "known", "shapes"), LADDERS)
def test_ladder(choice: ModelChoice, known: ModelShape | None, shapes: tuple[ModelShape, ...]) -> None:
    assert shapes_for(request(choice), known) == shapes


def sent(shape: ModelShape) -> pb.AgentRunRequest:
    fields = model_fields("m", (("effort", "high"), ("fast", "true")), LISTED, (shape,))[0]
    return pb.AgentRunRequest.FromString(b"".join(fields))


def test_base() -> None:
    run = sent(BASE)
    assert not run.HasField("model_details")
    assert (run.requested_model.model_id, run.requested_model.max_mode) == ("m", True)
    assert [(one.id, one.value) for one in run.requested_model.parameters] == [("effort", "high"), ("fast", "true")]


def test_details() -> None:
    run = sent(DETAILS)
    assert not run.HasField("requested_model")
    named = run.model_details
    names = {named.model_id, named.display_model_id, named.display_name, named.display_name_short}
    assert (names, named.max_mode) == ({"m-high-fast"}, True)


def test_both_and_requested() -> None:
    assert (sent(BOTH).model_details.model_id, sent(BOTH).requested_model.model_id) == ("m-high-fast", "m-high-fast")
    assert not sent(BOTH).requested_model.parameters
    assert (sent(REQUESTED).HasField("model_details"), sent(REQUESTED).requested_model.model_id) == (
        False,
        "m-high-fast",
    )


REFUSALS = [
    (ConnectError("not_found", "Error"), True, False),
    (ConnectError("invalid_argument", error=ai.ErrorDetails.ERROR_BAD_MODEL_NAME), True, False),
    (ConnectError("resource_exhausted", "Error"), True, True),
    (ConnectError("resource_exhausted"), True, True),
    (ConnectError("resource_exhausted", "You hit your usage limit"), False, False),
    (ConnectError("resource_exhausted", "Error", error=ai.ErrorDetails.ERROR_PRO_USER_USAGE_LIMIT), False, False),
    (ConnectError("resource_exhausted", "Error", detail="the quota is spent"), False, False),
    (ConnectError("unavailable", "Error"), False, False),
    (ConnectError("unauthenticated", "Error"), False, False),
]


@pytest.mark.parametrize(("error", "suspect", "bare"), REFUSALS)
def test_what_may_be_a_matter_of_the_shape(error: ConnectError, suspect: bool, bare: bool) -> None:
    assert (bool(may_be_shape(error)), is_bare(error)) == (suspect, bare)


def test_memory() -> None:
    memory = AccountMemory()
    memory.belongs_to("ann")
    memory.worked("a", DETAILS)
    assert (memory.known("a"), memory.known("b")) == (DETAILS, DETAILS)
    memory.worked("b", BASE)
    assert (memory.known("a"), memory.known("c")) == (DETAILS, BASE)
    memory.belongs_to("ann")
    assert memory.known("a") is DETAILS
    memory.took_simplest("a")
    assert (memory.is_strict("a"), memory.is_strict("b")) == (True, False)
    memory.belongs_to("bob")
    assert memory.known("a") is None
    assert not memory.is_strict("a")


def test_memory_is_bounded() -> None:
    memory = AccountMemory()
    for number in range(MAX_REMEMBERED * 2):
        memory.worked(f"m{number}", DETAILS)
        memory.took_simplest(f"m{number}")
    assert len(memory._models) == len(memory._strict) == MAX_REMEMBERED
    assert memory.is_strict(f"m{MAX_REMEMBERED * 2 - 1}")
