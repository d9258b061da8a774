"""A list of models in the manner of Cursor's: base models with their variants, and the flat ids of the same.

Another one than the simulator's, with other defaults: what is chosen must not depend on one list.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Variant:
    parameters: Pairs
    slug: str
    """Empty: the flat list does not have it."""
    max_mode: bool = False
    default: bool = False


@dataclass(frozen=True, slots=True)
class BaseModel:
    id: str
    name: str
    variants: tuple[Variant, ...]
    images: bool = True
    window: int = 0
    max_window: int = 0
    dead: bool = False
    """Listed, and every run is refused."""
    bare: bool = False
    """The flat list has its id too, for the default variant."""


def _thinking_first(base: str, effort: str, thinks: bool, fast: bool) -> str:
    return f"{base}{'-thinking' if thinks else ''}-{effort}{'-fast' if fast else ''}"


def _effort_first(base: str, effort: str, thinks: bool, fast: bool) -> str:
    return f"{base}-{effort}{'-thinking' if thinks else ''}{'-fast' if fast else ''}"


def _claude(
    base: str,
    name: str,
    efforts: Iterable[str],
    *,
    windows: tuple[str, ...] = ("200k", "1m"),
    fast: bool = False,
    older: bool = False,
    dead: bool = False,
) -> BaseModel:
    """Only the smallest window has flat ids; the others are max mode."""
    spell = _effort_first if older else _thinking_first
    variants = []
    for context, quick, thinks, effort in product(windows, (False, True) if fast else (None,), (False, True), efforts):
        speed: Pairs = () if quick is None else (("fast", _word(quick)),)
        variants.append(
            Variant(
                (("thinking", _word(thinks)), ("context", context), ("effort", effort), *speed),
                spell(base, effort, thinks, bool(quick)) if context == windows[0] else "",
                max_mode=context != windows[0] or bool(quick),
                default=context == windows[0] and not quick and thinks and effort == "high",
            )
        )
    return BaseModel(base, name, tuple(variants), window=200_000, max_window=1_000_000, dead=dead)


def _gpt(base: str, name: str, efforts: Iterable[str], *, fast: bool = True, top: str = "xhigh") -> BaseModel:
    """`medium` has no word in the flat ids; the top rung is spelled in two ways."""
    variants = []
    for context, effort, quick in product(("272k", "1m"), efforts, (False, True) if fast else (None,)):
        slug = f"{base}{'' if effort == 'medium' else f'-{effort}'}{'-fast' if quick else ''}"
        speed: Pairs = () if quick is None else (("fast", _word(quick)),)
        rung = top if effort == "xhigh" else effort
        variants.append(
            Variant(
                (("context", context), ("reasoning", rung), *speed),
                slug if context == "272k" else "",
                max_mode=context == "1m",
                default=context == "272k" and effort == "medium" and not quick,
            )
        )
    return BaseModel(base, name, tuple(variants))


def _rungs(base: str, name: str, key: str, efforts: Iterable[str], *, images: bool = True) -> BaseModel:
    variants = [
        Variant(((key, effort),), base if effort == "medium" else f"{base}-{effort}", default=effort == "medium")
        for effort in efforts
    ]
    return BaseModel(base, name, tuple(variants), images=images)


def _grok(base: str, name: str) -> BaseModel:
    variants = [
        Variant(
            (("effort", effort), ("fast", _word(quick))),
            f"{base}-{effort}{'-fast' if quick else ''}",
            default=effort == "medium" and not quick,
        )
        for effort, quick in product(_THREE, (False, True))
    ]
    return BaseModel(base, name, tuple(variants))


def _composer(base: str, name: str) -> BaseModel:
    """Without a word about it, it is the fast one, under both of its flat ids."""
    variants = Variant((("fast", "true"),), f"{base}-fast", default=True), Variant((("fast", "false"),), "")
    return BaseModel(base, name, variants, images=False, bare=True)


def _plain(base: str, name: str) -> BaseModel:
    return BaseModel(base, name, (Variant((), base, default=True),))


def _word(switch: bool) -> str:
    return "true" if switch else "false"


_THREE: Final = ("low", "medium", "high")
_FOUR: Final = (*_THREE, "xhigh")
_FIVE: Final = (*_FOUR, "max")

BASES: Final = (
    BaseModel(
        "default",
        "Auto",
        tuple(
            Variant((("optimization", value),), "default" if value == "balance" else "", default=value == "balance")
            for value in ("cost", "balance", "intelligence")
        ),
        images=False,
    ),
    _composer("composer-2", "Composer 2"),
    _composer("composer-2.5", "Composer 2.5"),
    _claude("claude-opus-5", "Opus 5", _FIVE, fast=True),
    _claude("claude-opus-4-8", "Opus 4.8", _FIVE, fast=True),
    _claude("claude-opus-4-7", "Opus 4.7", _FOUR, fast=True),
    _claude("claude-4.6-opus", "Opus 4.6", ("low", "medium", "high", "max"), older=True),
    _claude("claude-4.5-opus", "Opus 4.5", ("high",), windows=("200k",), older=True),
    _claude("claude-fable-5", "<span>Fable 5</span>", _FIVE, windows=("300k", "1m")),
    _claude("claude-sonnet-5", "Sonnet 5", _FOUR, windows=("300k", "1m")),
    _claude("claude-4.6-sonnet", "Sonnet 4.6", _THREE, older=True),
    _claude("claude-mythos-1", "Mythos 1", ("high",), windows=("200k",), dead=True),
    _plain("claude-4.5-haiku", "Haiku 4.5"),
    _gpt("gpt-5.5", "GPT-5.5", ("none", *_FOUR), top="extra-high"),
    _gpt("gpt-5.4", "GPT-5.4", _FOUR),
    _gpt("gpt-5.4-mini", "GPT-5.4 Mini", ("none", *_FOUR), fast=False),
    _gpt("gpt-5.4-nano", "GPT-5.4 Nano", ("none", *_FOUR), fast=False),
    _gpt("gpt-5.3-codex", "Codex 5.3", _FOUR),
    _gpt("gpt-5.2", "GPT-5.2", _FOUR),
    _gpt("gpt-5.2-codex", "Codex 5.2", _THREE, fast=False),
    _gpt("gpt-5.1-codex-max", "Codex 5.1 Max", _FOUR, fast=False),
    _gpt("gpt-5.1-codex-mini", "Codex 5.1 Mini", _THREE, fast=False),
    _gpt("gpt-5.1", "GPT-5.1", _THREE, fast=False),
    _gpt("gpt-5.1-codex", "Codex 5.1", _THREE, fast=False),
    _plain("gpt-5-mini", "GPT-5 Mini"),
    _grok("cursor-grok-4.5", "Grok 4.5"),
    BaseModel(
        "grok-4-20",
        "Grok 4.20",
        (
            Variant((("thinking", "false"),), "grok-4-20", default=True),
            Variant((("thinking", "true"),), "grok-4-20-thinking"),
        ),
    ),
    _plain("gemini-3.1-pro", "Gemini 3.1 Pro"),
    _plain("gemini-3-pro", "Gemini 3 Pro"),
    _plain("gemini-3-flash", "Gemini 3 Flash"),
    _plain("gemini-2.5-flash", "Gemini 2.5 Flash"),
    _rungs("kimi-k3", "Kimi K3", "reasoning", _THREE),
    _plain("kimi-k2.5", "Kimi K2.5"),
    _rungs("glm-5.2", "GLM 5.2", "reasoning", _THREE, images=False),
)
BY_ID: Final = {model.id: model for model in BASES}
SLUGS: Final = {
    slug: (model, variant)
    for model in BASES
    for variant in model.variants
    for slug in (model.id if model.bare and variant.default else "", variant.slug)
    if slug
}
"""The flat list."""
