"""Cursor's list of models as others recorded it, and which shapes of a model in a run request are served."""

from dataclasses import replace
from typing import Any

import pytest

from caretway.cursor.wire.messages import pb
from caretway.usage.prices import PUBLISHED, priced_name
from caretway_sim import catalogue, faults
from caretway_sim.admission import Choice, choose
from caretway_sim.manners import CLASSIC, LIVE, Manners


def test_m1_the_flat_list_has_one_slug_for_each_combination_and_no_thinking() -> None:
    listed = catalogue.usable(cursor_catalogue=True).models
    assert len({model.model_id for model in listed}) == len(listed) > 4 * len(catalogue.BASES)
    assert not any(model.HasField("thinking_details") for model in listed)
    demanding = {model.model_id for model in listed if model.max_mode}
    assert demanding == {slug for slug, *_ in catalogue.slugs() if "opus" in slug and slug.endswith("-fast")} != set()


def test_m2_the_list_of_base_models_has_whole_variants() -> None:
    listed = catalogue.available()
    assert list(listed.model_names) == [base.name for base in listed.models]
    assert len(listed.models) == len(catalogue.BASES)
    opus = next(base for base in listed.models if base.name == "claude-4.6-opus")
    shown = {variant.variant_string_representation for variant in opus.variants}
    assert "claude-4.6-opus[thinking=true,context=200k,effort=high,fast=true]" in shown
    assert len(shown) == len(opus.variants)
    public = catalogue.public(cursor_catalogue=True)["items"]
    assert [item["id"] for item in public] == [base.id for base in catalogue.BASES]
    for item, base in zip(public, catalogue.BASES, strict=True):
        assert len(item["variants"]) == len(base.variants)
        assert sum(variant["isDefault"] for variant in item["variants"]) == 1


@pytest.mark.parametrize("manners", [CLASSIC, LIVE], ids=lambda manners: manners.name)
@pytest.mark.parametrize(("model", "wanted"), [("sim-think", True), ("sim-fast", False)])
def test_the_thinking_model_thinks_in_every_profile(manners: Manners, model: str, wanted: bool) -> None:
    effort = [pb.RequestedModel.ModelParameterValue(id="effort", value="low")] if wanted else []
    chosen = choose(pb.AgentRunRequest(requested_model=pb.RequestedModel(model_id=model, parameters=effort)), manners)
    assert isinstance(chosen, Choice)
    assert catalogue.thinks(chosen.label) == catalogue.writes_cache(chosen.label) == wanted


def test_every_slug_names_one_variant_of_one_model() -> None:
    for slug, base, variant in catalogue.slugs():
        assert variant in base.variants
        assert slug == variant.slug or not base.tiered
    for base in catalogue.BASES:
        assert len({variant.params for variant in base.variants}) == len(base.variants)


def test_every_model_with_a_published_price_is_listed() -> None:
    listed = {priced_name(f"{base.id}@{_spelled(variant)}") for base in catalogue.BASES for variant in base.variants}
    assert not PUBLISHED.keys() - listed


def _spelled(variant: catalogue.Variant) -> str:
    return ",".join(f"{name}={value}" for name, value in variant.params)


def test_the_only_dead_model_has_a_name_that_nobody_types() -> None:
    assert {base.id for base in catalogue.BASES if any(variant.dead for variant in base.variants)} == {"sim-retired"}


def test_everything_listed_says_that_it_is_simulated() -> None:
    assert all(model.display_name.endswith("(simulated)") for model in catalogue.usable(cursor_catalogue=True).models)


FULL = {"thinking": "true", "context": "200k", "effort": "high", "fast": "false"}
FABLE = {"thinking": "false", "context": "300k", "effort": "low"}
OPUS_HIGH = "claude-4.6-opus[thinking=true,context=200k,effort=high,fast=false]"
WIDE = {**FABLE, "context": "1m"}


def asked(requested: str = "", details: str = "", params: dict[str, str] | None = None, **max_mode: bool) -> Any:
    request = pb.AgentRunRequest()
    if requested:
        request.requested_model.model_id = requested
        request.requested_model.max_mode = max_mode.get("requested_max", False)
        for name, value in (params or {}).items():
            request.requested_model.parameters.add(id=name, value=value)
    if details:
        request.model_details.model_id = details
        request.model_details.max_mode = max_mode.get("details_max", False)
    return choose(request, LIVE)


SHAPES: list[tuple[str, Any, Any]] = [
    ("(a) base and whole variant", asked("claude-4.6-opus", params=FULL), Choice(OPUS_HIGH)),
    ("(b) slug in details", asked(details="claude-4.6-opus-high-thinking"), Choice(OPUS_HIGH)),
    ("(c) slug in both", asked("gpt-5.1-low", "gpt-5.1-low"), Choice("gpt-5.1[reasoning=low]")),
    ("(d) slug alone", asked("gpt-5.1-low"), Choice("gpt-5.1[reasoning=low]", empty=True)),
    ("M3 an incomplete set", asked("claude-4.6-opus", params={"effort": "high"}), faults.NOT_FOUND),
    ("M3 a set nobody advertises", asked("gpt-5.1", params={"reasoning": "extreme"}), faults.NOT_FOUND),
    ("M3 parameters of a slug", asked("gpt-5.1-low", params={"reasoning": "low"}), faults.NOT_FOUND),
    ("M5 a bare id with rungs", asked("gpt-5.1"), faults.NOT_FOUND),
    ("M5 the same in details", asked(details="gpt-5.1"), faults.NOT_FOUND),
    ("M5 composer's bare id is fast", asked("composer-2.5"), Choice("composer-2.5[fast=true]")),
    ("M5 composer, slow", asked("composer-2.5", params={"fast": "false"}), Choice("composer-2.5[fast=false]")),
    ("M5 grok without its prefix", asked(details="grok-4.5-high"), faults.UNKNOWN_MODEL),
    ("M5 grok", asked(details="cursor-grok-4.5-high"), Choice("grok-4.5[effort=high,fast=false]")),
    ("M5 listed and dead", asked(details="sim-retired"), faults.NOT_FOUND),
    ("auto", asked("default"), Choice("default[optimization=balance]")),
    ("nobody's model", asked("gpt-1"), faults.UNKNOWN_MODEL),
    ("M6 max mode left out", asked("claude-fable-5", params=WIDE), faults.SCRIPTED["max_mode"]),
    (
        "M6 max mode in one of two",
        asked("claude-fable-5", "claude-fable-5", WIDE, requested_max=True),
        faults.SCRIPTED["max_mode"],
    ),
    (
        "M6 max mode in both",
        asked("claude-fable-5", "claude-fable-5", WIDE, requested_max=True, details_max=True),
        Choice("claude-fable-5[thinking=false,context=1m,effort=low]"),
    ),
]


@pytest.mark.parametrize(("name", "got", "wanted"), SHAPES, ids=[row[0] for row in SHAPES])
def test_m4_shapes(name: str, got: object, wanted: object) -> None:
    assert got == wanted


def test_the_old_manners_take_any_id() -> None:
    request = pb.AgentRunRequest(requested_model=pb.RequestedModel(model_id="anything"))
    assert choose(request, CLASSIC) == Choice("anything")


def test_single_switches_of_the_shapes() -> None:
    slug = pb.AgentRunRequest(requested_model=pb.RequestedModel(model_id="gpt-5.1-low"))
    assert choose(slug, replace(LIVE, judges_model_shape=False)) == Choice("gpt-5.1[reasoning=low]")
    bare = pb.AgentRunRequest(requested_model=pb.RequestedModel(model_id="gpt-5.1"))
    assert choose(bare, replace(LIVE, whole_variants=False)) == Choice("gpt-5.1[reasoning=low]")


@pytest.mark.parametrize(
    ("model", "family", "external"),
    [
        ("claude-fable-5-thinking-low", "fable", True),
        ("cursor-grok-4.5-low", "grok", True),
        ("composer-2.5[fast=true]", "composer", False),
        ("kimi-k3", "kimi", True),
        ("unheard-of", "sim", False),
    ],
)
def test_families(model: str, family: str, external: bool) -> None:
    assert catalogue.family(model) == family
    assert catalogue.is_external(model) == external
