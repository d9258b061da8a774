"""How a run names its model, and what is learned about it."""

import pytest

from caretway.backends.agent.model_shapes import (
    MAX_REMEMBERED,
    AccountMemory,
    ModelShape,
    is_bare,
    may_be_shape,
    model_fields,
    shapes_for,
)
from caretway.core.request import Message, ModelChoice, Role, Text, TurnRequest
from caretway.cursor.wire.errors import ConnectError
from caretway.cursor.wire.messages import ai, pb

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
