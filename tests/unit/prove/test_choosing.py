"""Which models are asked, from lists of several kinds."""

import pytest

from caretway.core.turn import ModelInfo, ModelVariant
from caretway.prove.context import Roles, choose_models

SLOW = ModelVariant((("fast", "false"),))
FAST = ModelVariant((("fast", "true"),), "composer-2.5-fast")
COMPOSER = ModelInfo("composer-2.5", variants=(SLOW, FAST), images=False, parameters=(("fast", ("false", "true")),))


def thinker(name: str, images: bool | None = True) -> ModelInfo:
    return ModelInfo(name, images=images, parameters=(("thinking", ("false", "true")),))


def tiered(name: str) -> ModelInfo:
    return ModelInfo(name, parameters=(("reasoning", ("low", "high")),), variants=(ModelVariant(), ModelVariant()))


@pytest.mark.parametrize(
    ("listed", "roles"),
    [
        ([], Roles("auto")),
        ([ModelInfo("first"), ModelInfo("second")], Roles("first")),
        ([ModelInfo("first"), ModelInfo("default")], Roles("default")),
        ([ModelInfo("default"), COMPOSER], Roles("composer-2.5[fast=false]")),
        ([ModelInfo("composer-2.5")], Roles("composer-2.5")),
        ([ModelInfo("auto"), thinker("opus"), thinker("haiku"), thinker("mini", False)], Roles("auto", "haiku")),
        ([ModelInfo("auto"), thinker("opus", None), thinker("a-sonnet")], Roles("auto", "a-sonnet")),
        ([ModelInfo("auto"), tiered("big"), tiered("x-mini"), tiered("x-nano")], Roles("auto", "", "x-nano")),
        ([ModelInfo("auto"), ModelInfo("slug-high", flat=True, parameters=(("effort", ("high",)),))], Roles("auto")),
    ],
)
def test_models(listed: list[ModelInfo], roles: Roles) -> None:
    assert choose_models(listed) == roles


def test_what_the_user_names_wins() -> None:
    assert choose_models([COMPOSER, thinker("haiku")], "mine", "other") == Roles("mine", "other")
