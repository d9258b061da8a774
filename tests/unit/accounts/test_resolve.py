"""What names mean in a list of models, and that nothing else is taken without a word."""

import pytest

from caretway.accounts.names import NO_WISH, Wish, spelled
from caretway.accounts.resolve import choose_variant, default_variant, make_table, parameter_values, resolve
from caretway.core.turn import ModelInfo, ModelVariant
from unit.accounts.cursor_list import BASES, BY_ID, SLUGS, BaseModel
from unit.accounts.lists import cursors, flat, info

OPUS = "claude-opus-5"
CASES = [
    (OPUS, NO_WISH, "thinking=true,context=200k,effort=high,fast=false", ()),
    (OPUS, Wish(effort="low"), "thinking=true,context=200k,effort=low,fast=false", ()),
    (OPUS, Wish(effort="none"), "thinking=false,context=200k,effort=low,fast=false", ("effort",)),
    (OPUS, Wish(thinking=False), "thinking=false,context=200k,effort=high,fast=false", ()),
    (OPUS, Wish(context="1m"), "thinking=true,context=1m,effort=high,fast=false,max=true", ()),
    (OPUS, Wish(max_mode=True), "thinking=true,context=1m,effort=high,fast=false,max=true", ()),
    (OPUS, Wish(fast=True), "thinking=true,context=200k,effort=high,fast=true,max=true", ()),
    (OPUS, Wish(context="900k"), "thinking=true,context=1m,effort=high,fast=false,max=true", ("context",)),
    ("gpt-5.5", NO_WISH, "context=272k,reasoning=medium,fast=false", ()),
    ("gpt-5.5", Wish(effort="xhigh"), "context=272k,reasoning=extra-high,fast=false", ()),
    ("gpt-5.5", Wish(effort="max"), "context=272k,reasoning=extra-high,fast=false", ("effort",)),
    ("gpt-5.5", Wish(effort="minimal"), "context=272k,reasoning=none,fast=false", ("effort",)),
    ("gpt-5.5", Wish(thinking=True), "context=272k,reasoning=medium,fast=false", ()),
    ("composer-2.5", NO_WISH, "fast=false", ()),
    ("composer-2.5", Wish(fast=True), "fast=true", ()),
    ("composer-2.5", Wish(effort="high"), "fast=false", ("effort",)),
    ("default", Wish(other=(("optimization", "cost"),)), "optimization=cost", ()),
    ("cursor-grok-4.5", Wish(effort="high"), "effort=high,fast=false", ()),
    ("gemini-3-pro", Wish(effort="high", fast=True), "", ("effort", "fast")),
]


@pytest.mark.parametrize(("model", "wish", "taken", "unmet"), CASES, ids=[f"{m} {t}" for m, _, t, _ in CASES])
def test_nearest(model: str, wish: Wish, taken: str, unmet: tuple[str, ...]) -> None:
    chosen = choose_variant(info(BY_ID[model]), wish)
    assert spelled("", chosen.variant.parameters, chosen.variant.max_mode).removeprefix("@") == taken
    assert chosen.unmet == unmet


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.id)
def test_what_is_taken_is_always_a_variant_as_it_was_listed(base: BaseModel) -> None:
    model = info(base)
    for effort in (None, "none", "low", "high", "max"):
        for switch in (None, True, False):
            wish = Wish(effort=effort, thinking=switch, fast=switch, max_mode=switch)
            assert choose_variant(model, wish).variant in model.variants


def test_parameters_without_variants_are_taken_one_by_one() -> None:
    loose = ModelInfo("m", parameters=(("effort", ("low", "high")), ("fast", ("true", "false"))))
    assert choose_variant(loose, Wish(effort="medium")).variant.parameters == (("effort", "low"),)
    assert choose_variant(loose, Wish(fast=True)).variant.parameters == (("fast", "true"),)
    assert choose_variant(loose, NO_WISH).variant.parameters == ()


def test_the_default_is_the_one_without_max_mode() -> None:
    both = (ModelVariant((("a", "1"),), max_mode=True, default=True), ModelVariant((("a", "2"),), default=True))
    assert default_variant(ModelInfo("m", variants=both)) == both[1]
    assert parameter_values(both) == (("a", ("1", "2")),)


TABLE = cursors({"mine": "gpt-5.4@effort=low", "gone": "no-such-model", "loop": "loop"})

EXACT = [
    ("claude-opus-5", "claude-opus-5"),
    ("claude-sonnet-4-6-20260217", "claude-4.6-sonnet"),
    ("claude-haiku-4-5-20251001", "claude-4.5-haiku"),
    ("cursor/claude-opus-4-6", "claude-4.6-opus"),
    ("grok-4.5", "cursor-grok-4.5"),
    ("gpt-5.1-codex-max", "gpt-5.1-codex-max"),
    ("gpt-5.4@effort=high,fast", "gpt-5.4@context=272k,reasoning=high,fast=true"),
    ("gpt-5.4[context=272k,reasoning=low,fast=true]", "gpt-5.4@context=272k,reasoning=low,fast=true"),
    ("openai/gpt-5.4-mini-low", "gpt-5.4-mini@context=272k,reasoning=low"),
    ("gpt-5.5-extra-high", "gpt-5.5@context=272k,reasoning=extra-high,fast=false"),
    ("claude-opus-5-thinking", "claude-opus-5@thinking=true,context=200k,effort=high,fast=false"),
    ("opus-4.6-high-thinking", "claude-4.6-opus@thinking=true,context=200k,effort=high"),
    ("claude-fable-5-low", "claude-fable-5@thinking=false,context=300k,effort=low"),
    ("composer-2.5-fast", "composer-2.5@fast=true"),
    ("auto", "default"),
    ("cursor/auto", "default"),
    ("mine", "gpt-5.4@context=272k,reasoning=low,fast=false"),
]


@pytest.mark.seed("I05")
@pytest.mark.parametrize(("name", "meant"), EXACT)
def test_exact(name: str, meant: str) -> None:
    found = resolve(name, TABLE)
    assert found.exact
    assert found.model is not None
    assert found.why
    chosen = choose_variant(found.model, found.wish)
    assert not chosen.unmet
    variant = chosen.variant
    assert meant in (found.model.id, spelled(found.model.id, variant.parameters, variant.max_mode))


def test_every_flat_id_is_understood_as_the_variant_it_is() -> None:
    for slug, (model, variant) in SLUGS.items():
        found = resolve(slug, TABLE)
        assert found.model is not None, slug
        assert (found.model.id, found.exact, found.own) == (model.id, True, True), slug
        if slug not in BY_ID:
            assert choose_variant(found.model, found.wish).variant.parameters == variant.parameters, slug


def test_only_base_models_are_left_of_the_list() -> None:
    assert list(TABLE.models) == [base.id for base in BASES]


def test_variants_know_their_flat_ids() -> None:
    opus = TABLE.models["claude-opus-5"]
    named = {dict(v.parameters)["effort"]: v.slug for v in opus.variants if dict(v.parameters)["context"] == "200k"}
    assert named["max"] == "claude-opus-5-thinking-max-fast"
    # Without a word composer is the fast one: its bare id is no name for the other.
    assert [v.slug for v in TABLE.models["composer-2.5"].variants] == ["composer-2.5", ""]


STAND_INS = [
    ("claude-sonnet-4-5-20250929", "claude-4.6-sonnet"),
    ("claude-opus-4-1", "claude-4.5-opus"),
    ("gpt-5-codex", "gpt-5.1-codex"),
    ("gpt-5", "gpt-5.1"),
    ("gpt-4o", "gpt-5.1"),
    ("gpt-99", "gpt-5.5"),
    ("o3", "gpt-5.1"),
    ("gemini-2.5-pro", "gemini-3-pro"),
    ("claude-3-haiku-20240307", "claude-4.5-haiku"),
    ("gpt-5.4-minimal", "gpt-5.4"),
]


@pytest.mark.parametrize(("name", "taken"), STAND_INS)
def test_a_stand_in_is_never_exact(name: str, taken: str) -> None:
    found = resolve(name, TABLE)
    assert found.model is not None
    assert (found.model.id, found.exact, found.own) == (taken, False, False)
    assert taken in found.why


@pytest.mark.parametrize(
    "name", ["gpt-99-imaginary", "composer-1", "my-own-model", "gone", "loop", "", "@", "[]", "@@="]
)
def test_nobody_knows(name: str) -> None:
    found = resolve(name, TABLE) if "=" not in name else resolve(name[:2], TABLE)
    assert found.model is None
    assert found.why


FLAT = [
    ("gpt-5-codex", ("gpt-5.3-codex-low", "gpt-5.3-codex", "gpt-5.3-codex-high"), "gpt-5.3-codex", False),
    ("gpt-5.3-codex-high", ("gpt-5.3-codex-low", "gpt-5.3-codex", "gpt-5.3-codex-high"), "gpt-5.3-codex-high", True),
    ("claude-sonnet-5", ("claude-4.5-sonnet", "auto"), "claude-4.5-sonnet", False),
    ("auto", ("sim-fast", "sim-auto"), "sim-auto", True),
    ("default", ("sim-fast", "auto"), "auto", True),
    ("sim-auto", ("sim-fast", "auto"), None, True),
    ("auto", ("sim-fast",), None, True),
    ("claude-sonnet-4-5", ("sonnet-4.5", "sonnet-4.5-thinking", "auto"), "sonnet-4.5", True),
    ("claude-sonnet-4-5", ("sim-auto", "sim-fast", "sim-think"), "sim-auto", False),
    ("gpt-5.5", ("sim-auto",), "sim-auto", False),
    ("claude-haiku-4-5", ("only-mine",), None, True),
]


@pytest.mark.parametrize(("name", "listed", "meant", "exact"), FLAT)
def test_lists_without_variants(name: str, listed: tuple[str, ...], meant: str | None, exact: bool) -> None:
    found = resolve(name, flat(*listed))
    assert ((found.model.id if found.model else None), found.exact) == (meant, exact)


def test_a_row_that_is_only_a_name_leads_to_what_it_stands_for() -> None:
    rows = [
        ModelInfo("auto"),
        ModelInfo("gpt-4o", stands_for="auto"),
        ModelInfo("claude-sonnet-4-5", stands_for="auto"),
    ]
    table = make_table([*rows, ModelInfo("sonnet-4.5")], {})
    assert resolve("gpt-4o", table).model == ModelInfo("auto")
    assert resolve("claude-sonnet-4-5", table).model == ModelInfo("sonnet-4.5")


def test_flat_ids_that_are_no_variant_stay_models() -> None:
    table = make_table([*TABLE.models.values(), ModelInfo("brand-new-model", flat=True)], {})
    assert resolve("brand-new-model", table).own


CHAINS: list[tuple[str, str, list[str]]] = [
    ("in order", "gpt-5.4|auto", ["gpt-5.4", "default"]),
    ("each once", "gpt-5.4|gpt-5.4|gpt-5.4@effort=low", ["gpt-5.4", "gpt-5.4"]),
    ("not what is not listed", "no-such-model|auto", ["default"]),
    ("not what only stands in", "gpt-99|composer-2.5", ["composer-2.5"]),
    ("a stand-in where there is nothing else", "gpt-99|no-such-model", ["gpt-5.5"]),
    ("a chain in a chain", "more|auto", ["composer-2.5", "gpt-5.4", "default"]),
    ("in circles", "chain|auto", ["default"]),
]


@pytest.mark.parametrize(("what", "target", "models"), CHAINS, ids=[row[0] for row in CHAINS])
def test_an_alias_of_several_models(what: str, target: str, models: list[str]) -> None:
    found = resolve("chain", cursors({"chain": target, "more": "composer-2.5|gpt-5.4"}))
    chain = [found, *found.then]
    assert [each.model.id for each in chain if each.model is not None] == models
    assert not any(each.own or each.then for each in chain[1:])
    assert all(each.why.startswith("model_aliases: chain is ") for each in chain)


def test_parameters_behind_such_an_alias_are_for_all_its_models() -> None:
    found = resolve("chain@effort=high", cursors({"chain": "gpt-5.4@effort=low|composer-2.5"}))
    assert [each.wish.effort for each in (found, *found.then)] == ["high", "high"]
