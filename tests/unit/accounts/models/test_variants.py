"""A wish meets what a model offers."""

import pytest

from caretway.accounts.models.names import NO_WISH, Wish, spelled
from caretway.accounts.models.variants import choose_variant, default_variant, parameter_values
from caretway.core.turn import ModelInfo, ModelVariant
from unit.accounts.models.cursor_list import BASES, BY_ID, BaseModel
from unit.accounts.models.lists import info

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
