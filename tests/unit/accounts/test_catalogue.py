"""The model list as clients and requests see it."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from caretway.accounts.catalogue import FRESH_S, MAX_MEANT, MAX_MEANT_CHARS, MAX_NAME_CHARS, ModelCatalogue
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.request import Message, Role, Text, TurnRequest
from caretway.core.turn import Abilities, BackendStatus, ModelInfo, ModelVariant, Snapshot, Standing, Turn
from unit.accounts.cursor_list import BASES, SLUGS
from unit.accounts.lists import LISTED

THINKER = ModelInfo("thinker", aliases=("deep",), parameters=(("effort", ("low", "high")),))


class Listing:
    """A backend of which only the model list is asked."""

    name = "listing"
    standing: Standing = "simulated"
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


@pytest.mark.seed("I02")
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
    offered = catalogue(Listing())
    fitted = await offered.fit(asking("thinker", "medium"))
    assert (fitted.parameters, fitted.ignored) == ((("effort", "low"),), ())
    fitted = await offered.fit(asking("plain", "high"))
    assert (fitted.parameters, fitted.ignored) == ((), ("reasoning_effort",))


async def test_a_parameter_of_another_kind_is_no_effort() -> None:
    listing = Listing()
    listing.found = [ModelInfo("auto", parameters=(("optimization", ("cost", "intelligence")), ("fast", ("true",))))]
    fitted = await catalogue(listing).fit(asking("auto", "high"))
    assert fitted.ignored == ("reasoning_effort",)


@pytest.mark.seed("B32")
async def test_the_list_is_kept_and_served_stale() -> None:
    listing, clock = Listing(), Clock()
    offered = catalogue(listing, clock, extra=["mine"])
    for _ in range(3):
        assert [model.id for model in await offered.models()] == ["plain", "thinker", "mine"]
    assert listing.asked == 1
    clock.now += 1000
    listing.down = True
    assert [model.id for model in await offered.models()] == ["plain", "thinker", "mine"]
    assert listing.asked == 2


@pytest.mark.seed("B06")
async def test_without_a_login_there_is_what_the_settings_name() -> None:
    listing = Listing()
    listing.down = True
    assert [model.id for model in await catalogue(listing, extra=["mine"]).models()] == ["mine"]


# ---- a list like Cursor's


class CursorListing(Listing):
    def __init__(self) -> None:
        super().__init__()
        self.found = list(LISTED)


CHOICES = [
    # asked, effort, thinking -> answers as, exactly
    ("gpt-5.4", None, None, "gpt-5.4", "gpt-5.4"),
    ("gpt-5.4", "high", None, "gpt-5.4", "gpt-5.4@context=272k,reasoning=high,fast=false"),
    ("gpt-5.4-high", None, None, "gpt-5.4-high", "gpt-5.4@context=272k,reasoning=high,fast=false"),
    ("gpt-5.4-high", "low", None, "gpt-5.4-high", "gpt-5.4@context=272k,reasoning=high,fast=false"),
    ("openai/gpt-5.4", None, None, "gpt-5.4", "gpt-5.4"),
    ("composer-2.5", None, None, "composer-2.5", "composer-2.5@fast=false"),
    ("gpt-5-codex", None, None, "gpt-5.1-codex", "gpt-5.1-codex"),
    ("claude-haiku-4-5-20251001", None, None, "claude-4.5-haiku", "claude-4.5-haiku"),
    ("claude-opus-5", None, False, "claude-opus-5", "claude-opus-5@thinking=false,context=200k,effort=high,fast=false"),
    ("claude-opus-5-thinking", None, None, "claude-opus-5-thinking", "claude-opus-5"),
    ("gpt-5.4@effort=max", None, None, *("gpt-5.4@context=272k,reasoning=xhigh,fast=false",) * 2),
    ("gpt-99-imaginary", None, None, "", "gpt-99-imaginary"),
]


@pytest.mark.parametrize(("asked", "effort", "thinking", "answers_as", "exactly"), CHOICES)
async def test_what_a_client_is_told(
    asked: str, effort: str | None, thinking: bool | None, answers_as: str, exactly: str
) -> None:
    request = structs.replace(asking(asked, effort), thinking=thinking)
    for _ in range(2):  # the second time from memory
        fitted = await catalogue(CursorListing()).fit(request)
        assert (fitted.choice.answers_as, fitted.choice.exactly) == (answers_as, exactly)
        assert fitted.choice.why


INEXACT = ["gpt-5-codex", "gpt-5.4@effort=max", "gpt-99-imaginary", "gpt-5.4-minimal", "gpt-4o@fast"]
EXACT = ["gpt-5.4", "gpt-5.4-high", "claude-opus-4-6", "gpt-5.4@effort=high", "openai/gpt-5.4"]


@pytest.mark.parametrize("name", INEXACT)
async def test_strict_takes_nothing_but_what_is_meant(name: str) -> None:
    with pytest.raises(GatewayError) as refused:
        await catalogue(CursorListing(), strict=True).fit(asking(name))
    assert refused.value.kind is ErrorKind.MODEL_UNKNOWN
    assert refused.value.hint


@pytest.mark.parametrize("name", EXACT)
async def test_strict_takes_every_spelling_of_it(name: str) -> None:
    await catalogue(CursorListing(), strict=True).fit(asking(name))


async def test_a_model_that_always_thinks() -> None:
    """To ask it to think is to ask for what it does; to ask it not to is told, and refused by strict callers."""
    listing = Listing()
    always = ModelInfo("deep-6", reasoning=True, variants=(ModelVariant((("thinking", "true"),), default=True),))
    listing.found = [ModelInfo("deep-5-thinking-high", reasoning=True, flat=True), always]
    for strict in (True, False):
        thinks = await catalogue(listing, strict=strict).fit(asking("deep-5-thinking-high@thinking"))
        assert (thinks.model, "without" in thinks.choice.why) == ("deep-5-thinking-high", False)
    received = await catalogue(listing).fit(asking("deep-6@thinking=false"))
    assert "without the thinking asked for" in received.choice.why
    with pytest.raises(GatewayError, match="no variant"):
        await catalogue(listing, strict=True).fit(asking("deep-6@thinking=false"))


async def test_base_models_are_listed_and_thinking_ones_twice() -> None:
    listed = {model.id: model for model in await catalogue(CursorListing()).models()}
    assert "gpt-5.4-high" not in listed
    assert listed["claude-opus-5-thinking"].stands_for == "claude-opus-5"
    assert "composer-2.5-thinking" not in listed
    assert sum(not model.stands_for for model in listed.values()) == len(BASES)


@pytest.mark.seed("I01")
async def test_the_settings_can_be_the_whole_catalogue() -> None:
    named = ["gpt-5.4", "claude-opus-5@effort=low"]
    offered = ModelCatalogue(CursorListing(), extra=named, aliases={}, strict=False, clock=Clock(), only=True)
    assert [model.id for model in await offered.models()] == ["gpt-5.4", "gpt-5.4-thinking", named[1]]
    assert (await offered.models())[2].variants
    for allowed in (*named, "gpt-5.4-high", "gpt-5.4-thinking", "openai/gpt-5.4@fast"):
        await offered.fit(asking(allowed))
    for other in ("claude-opus-5", "gpt-5.5", "gpt-99-imaginary"):
        with pytest.raises(GatewayError):
            await offered.fit(asking(other))
        assert await offered.find(other) is None


async def test_settings_choose_where_a_request_does_not() -> None:
    usual = {"effort": "low", "fast": "true"}
    offered = ModelCatalogue(CursorListing(), extra=(), aliases={}, strict=False, clock=Clock(), usual=usual)
    assert (await offered.fit(asking("gpt-5.4"))).choice.exactly == "gpt-5.4@context=272k,reasoning=low,fast=true"
    assert (
        await offered.fit(asking("gpt-5.4", "high"))
    ).choice.exactly == "gpt-5.4@context=272k,reasoning=high,fast=true"


async def test_every_flat_id_is_found() -> None:
    offered = catalogue(CursorListing())
    for slug, (base, _) in SLUGS.items():
        found = await offered.find(slug)
        assert found is not None
        assert found.id.removesuffix("-thinking") == base.id


async def test_what_is_remembered_is_bounded() -> None:
    offered = catalogue(CursorListing())
    for number in range(MAX_MEANT * 2):
        await offered.fit(asking(f"model-{number}"))
        await offered.fit(asking("x" * (MAX_MEANT_CHARS + number)))
    assert len(offered._fitted) == MAX_MEANT


@pytest.mark.parametrize("down", [False, True], ids=["known list", "no list"])
async def test_a_name_longer_than_any_is_refused(down: bool) -> None:
    """It would be told in a header and in the log, and without a list it would go to Cursor."""
    listing = Listing()
    listing.down = down
    offered = catalogue(listing)
    assert (await offered.fit(asking("gpt-" + "4" * (MAX_NAME_CHARS - 4)))).model
    with pytest.raises(GatewayError) as refused:
        await offered.fit(asking("gpt-" + "4" * (MAX_NAME_CHARS - 3)))
    assert (refused.value.kind, refused.value.param) == (ErrorKind.MODEL_UNKNOWN, "model")
    assert len(str(refused.value)) < 500
