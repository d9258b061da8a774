"""The model list as clients and requests see it."""

from collections.abc import Sequence
from typing import Literal

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.core.turn import Abilities, BackendStatus, ModelInfo, Snapshot, Turn
from caretway.models.catalogue import FRESH_S, ModelCatalogue

THINKER = ModelInfo("thinker", aliases=("deep",), parameters=(("effort", ("low", "high")),))


class Listing:
    """A backend of which only the model list is asked."""

    name = "listing"
    standing: Literal["official", "unofficial", "simulated"] = "simulated"
    abilities = Abilities()

    def __init__(self) -> None:
        self.asked = 0
        self.down = False
        self.found = [ModelInfo("plain"), THINKER]

    async def models(self) -> Sequence[ModelInfo]:
        self.asked += 1
        if self.down:
            raise GatewayError(ErrorKind.SIGNED_OUT, "who are you")
        return self.found

    async def status(self) -> BackendStatus:
        return BackendStatus(not self.down)

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        raise AssertionError("only the list is asked for")

    async def aclose(self) -> None:
        pass


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def catalogue(
    listing: Listing, clock: Clock | None = None, *, strict: bool = False, extra: Sequence[str] = ()
) -> ModelCatalogue:
    return ModelCatalogue(listing, extra=extra, aliases={"gpt-4o": "plain"}, strict=strict, clock=clock or Clock())


def asking(model: str, effort: str | None = None) -> TurnRequest:
    return TurnRequest(model, (Message(Role.USER, (Text("hi"),)),), effort=effort)


NAMES = [
    ("plain", "plain"),
    ("gpt-4o", "plain"),
    ("openai/gpt-4o", "plain"),
    ("cursor/thinker", "thinker"),
    ("deep", "thinker"),
    ("unheard-of", "unheard-of"),
]


@pytest.mark.parametrize(("asked", "upstream"), NAMES)
async def test_names_lead_to_cursors_ids(asked: str, upstream: str) -> None:
    assert (await catalogue(Listing()).fit(asking(asked))).model == upstream


async def test_what_a_name_means_is_found_out_anew_with_a_new_list() -> None:
    listing, clock = Listing(), Clock()
    known = catalogue(listing, clock)
    for _ in range(2):
        assert (await known.fit(asking("claude-haiku-4-5-20251001"))).model == "claude-haiku-4-5-20251001"
    listing.found = [ModelInfo("claude-4.5-haiku")]
    clock.now += FRESH_S
    await known.models()
    for _ in range(2):
        assert (await known.fit(asking("claude-haiku-4-5-20251001"))).model == "claude-4.5-haiku"


async def test_strict_refuses_unknown_names_and_suggests() -> None:
    with pytest.raises(GatewayError) as refused:
        await catalogue(Listing(), strict=True).fit(asking("thinkr"))
    assert refused.value.kind is ErrorKind.MODEL_UNKNOWN
    assert "thinker" in refused.value.hint


async def test_effort_goes_where_the_model_has_it_and_is_named_otherwise() -> None:
    desk = catalogue(Listing())
    fitted = await desk.fit(asking("thinker", "medium"))
    assert (fitted.parameters, fitted.ignored) == ((("effort", "low"),), ())
    fitted = await desk.fit(asking("plain", "high"))
    assert (fitted.parameters, fitted.ignored) == ((), ("reasoning_effort",))


async def test_the_list_is_kept_and_served_stale() -> None:
    listing, clock = Listing(), Clock()
    desk = catalogue(listing, clock, extra=["mine"])
    for _ in range(3):
        assert [model.id for model in await desk.models()] == ["plain", "thinker", "mine"]
    assert listing.asked == 1
    clock.now += 1000
    listing.down = True
    assert [model.id for model in await desk.models()] == ["plain", "thinker", "mine"]
    assert listing.asked == 2


async def test_without_a_login_there_is_what_the_settings_name() -> None:
    listing = Listing()
    listing.down = True
    assert [model.id for model in await catalogue(listing, extra=["mine"]).models()] == ["mine"]
