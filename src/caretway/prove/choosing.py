"""Which models are asked: a cheap one for nearly everything, and two others for what it cannot show. Pure."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..accounts.names import EFFORT_IDS
from ..accounts.resolve import AUTOMATIC
from ..core.turn import ModelInfo

COMPOSER: Final = "composer-2.5"
SLOW_COMPOSER: Final = f"{COMPOSER}[fast=false]"
"""The cheapest that Cursor has; its bare name is the fast variant, which costs more."""
_CHEAP_WORDS: Final = (re.compile(r"nano|haiku"), re.compile(r"mini|flash|fast"), re.compile(r"sonnet"))


@dataclass(frozen=True, slots=True)
class Roles:
    cheap: str
    second: str = ""
    """Thinks and sees pictures; empty when no model of the list does."""
    tiered: str = ""
    """Has rungs, of which one must be named; empty when none has."""


def choose_models(listed: Sequence[ModelInfo], cheap: str = "", second: str = "") -> Roles:
    """What the user named wins."""
    return Roles(cheap or _cheap(listed), second or _cheapest(listed, _thinks_and_sees), _cheapest(listed, _has_rungs))


def _cheap(listed: Sequence[ModelInfo]) -> str:
    ids = {model.id: model for model in listed}
    if COMPOSER in ids:
        slow = any(("fast", "false") in variant.parameters for variant in ids[COMPOSER].variants)
        return SLOW_COMPOSER if slow else COMPOSER
    return next((name for name in AUTOMATIC if name in ids), listed[0].id if listed else "auto")


def _cheapest(listed: Sequence[ModelInfo], fits: Callable[[ModelInfo], bool]) -> str:
    return min((model.id for model in listed if fits(model)), key=_rank, default="")


def _rank(name: str) -> tuple[int, str]:
    price = next((index for index, words in enumerate(_CHEAP_WORDS) if words.search(name)), len(_CHEAP_WORDS))
    return price, name


def _thinks_and_sees(model: ModelInfo) -> bool:
    thinks = any(key == "thinking" and "true" in values for key, values in model.parameters)
    return thinks and model.images is not False and not model.flat


def _has_rungs(model: ModelInfo) -> bool:
    return not model.flat and bool(model.variants) and any(key in EFFORT_IDS for key, _ in model.parameters)
