"""Which variant of a model is nearest to what was asked (thinking, effort, window, speed, max mode), what of it stays
unmet; fast and max mode, which cost more, are not chosen unless asked for. Pure.

Cursor refuses a set of parameters that is none of a model's variants, so one of them is taken whole. Wishes count in
this order: thinking, effort, window, speed, max mode. What nobody wished for is as in the model's default variant, but
never faster or in max mode than asked: both cost more.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ...core.turn import ModelInfo, ModelVariant
from .names import EFFORT_IDS, SCALE, Wish, effort_of, window

_FAR: Final = 100
_SILENT_EFFORTS: Final = ("none", "minimal")


class VariantChoice(Struct, frozen=True):
    variant: ModelVariant
    unmet: tuple[str, ...] = ()
    """Which parts of the wish it does not fulfil."""


def choose_variant(model: ModelInfo, wish: Wish) -> VariantChoice:
    """The variant nearest to the wish. A model without variants has none, or one for each value of its parameters."""
    if not model.variants:
        return _loose(model, wish)
    usual = default_variant(model)
    best = min(model.variants, key=lambda variant: _cost(variant, wish, usual))
    return VariantChoice(best, _unmet(best, wish))


def default_variant(model: ModelInfo) -> ModelVariant:
    """A model about which nothing is known."""
    marked = [variant for variant in model.variants if variant.default]
    return next((v for v in marked if not v.max_mode), None) or next(iter(marked or model.variants), ModelVariant())


def can_think(model: ModelInfo) -> bool:
    """It thinks, or can be told to."""
    ids = {key for key, _ in model.parameters} | {key for v in model.variants for key, _ in v.parameters}
    return model.reasoning or bool(ids & {"thinking", *EFFORT_IDS})


def parameter_values(variants: Sequence[ModelVariant]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The parameters of all variants, with all their values, in the order in which they come."""
    found: dict[str, dict[str, None]] = {}
    for variant in variants:
        for key, value in variant.parameters:
            found.setdefault(key, {})[value] = None
    return tuple((key, tuple(values)) for key, values in found.items())


def _cost(variant: ModelVariant, wish: Wish, usual: ModelVariant) -> tuple[object, ...]:
    has = dict(variant.parameters)
    thinks = None if "thinking" not in has else has["thinking"] not in ("false", "none", "off")
    effort = _effort(variant)
    wanted = wish.thinking
    if wanted is None and wish.effort is not None:
        wanted = wish.effort not in _SILENT_EFFORTS  # a request for effort is a request for thought
    return (
        _differs(wish.thinking, thinks),
        _rungs_apart(wish.effort, effort),
        _thoughtless(wish, effort),
        _windows_apart(wish.context, has.get("context")),
        _differs(wish.fast, _fast(variant)),
        _differs(wish.max_mode, variant.max_mode),
        sum(has.get(key) != value for key, value in wish.other),
        _differs(wanted, thinks),
        variant.max_mode,
        bool(_fast(variant)),
        sum(has.get(key) != value for key, value in usual.parameters),
    )


def _effort(variant: ModelVariant) -> str | None:
    return next((effort_of(value) for key, value in variant.parameters if key in EFFORT_IDS), None)


def _fast(variant: ModelVariant) -> bool | None:
    value = dict(variant.parameters).get("fast")
    return None if value is None else value not in ("false", "off")


def _differs(wanted: bool | None, has: bool | None) -> bool:
    return wanted is not None and wanted is not bool(has)


def _rungs_apart(wanted: str | None, has: str | None) -> tuple[int, int]:
    """Of two that are as far away, the lower one."""
    if wanted is None or wanted == has:
        return 0, 0
    if has not in SCALE or wanted not in SCALE:
        return _FAR, 0
    return abs(SCALE.index(has) - SCALE.index(wanted)), SCALE.index(has)


def _thoughtless(wish: Wish, effort: str | None) -> bool:
    """To think, for a model that has only efforts, is an effort above none."""
    return wish.thinking is True and wish.effort is None and effort in _SILENT_EFFORTS


def _windows_apart(wanted: str | None, has: str | None) -> int:
    if wanted is None or wanted == has:
        return 0
    sizes = window(wanted), window(has or "")
    return 10**9 if sizes[0] is None or sizes[1] is None else abs(sizes[0] - sizes[1])


def _unmet(variant: ModelVariant, wish: Wish) -> tuple[str, ...]:
    has = dict(variant.parameters)
    thinks = has.get("thinking") if "thinking" in has else _effort(variant)
    found = [
        ("effort", wish.effort is not None and wish.effort != _effort(variant)),
        ("thinking", wish.thinking is not None and wish.thinking is not (thinks not in (None, "false", "none", "off"))),
        ("fast", _differs(wish.fast, _fast(variant))),
        ("context", wish.context is not None and wish.context != has.get("context")),
        ("max", _differs(wish.max_mode, variant.max_mode)),
        *((key, has.get(key) != value) for key, value in wish.other),
    ]
    return tuple(key for key, missing in found if missing)


def _loose(model: ModelInfo, wish: Wish) -> VariantChoice:
    """Parameters without variants, as backends list them that take any value by itself."""
    chosen: list[tuple[str, str]] = []
    for key, values in model.parameters:
        value = _loose_value(key, values, wish)
        if value is not None:
            chosen.append((key, value))
    variant = ModelVariant(tuple(chosen), slug=model.id, max_mode=wish.max_mode is True)
    return VariantChoice(variant, _unmet(variant, wish))


def _loose_value(key: str, values: Sequence[str], wish: Wish) -> str | None:
    if key in EFFORT_IDS or (key == "thinking" and any(effort_of(value) in SCALE for value in values)):
        offered = [value for value in values if effort_of(value) in SCALE]
        if wish.effort not in SCALE or not offered:
            return None
        return min(offered, key=lambda value: _rungs_apart(wish.effort, effort_of(value)))
    switched = {"thinking": wish.thinking, "fast": wish.fast}.get(key)
    if switched is not None:
        return next((value for value in values if (value not in ("false", "off")) is switched), None)
    wanted = wish.context if key == "context" else dict(wish.other).get(key)
    return wanted if wanted in values else None
