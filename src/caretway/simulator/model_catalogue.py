"""Base models with their variants, and the flat ids of the same, as public clients recorded them in 2026.

Names, parameters and their order follow what was seen; which model has which rungs is made up where nobody wrote it
down. `judge` says what becomes of a run that asks for a model: it is the whole seam between runs and this table.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from ..wire.errors import ConnectError
from ..wire.messages import ai, pb

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
_THOUGHT: Final = ("thinking", "effort", "reasoning")
BY_ID: Final = {model.id: model for model in BASES}
SLUGS: Final = {
    slug: (model, variant)
    for model in BASES
    for variant in model.variants
    for slug in (model.id if model.bare and variant.default else "", variant.slug)
    if slug
}
"""The flat list."""


def available(model: BaseModel) -> ai.AvailableModel:
    """A row of AvailableModels."""
    row = ai.AvailableModel(
        name=model.id,
        supports_thinking=any(key in _THOUGHT for variant in model.variants for key, _ in variant.parameters),
        supports_images=model.images,
        supports_max_mode=any(variant.max_mode for variant in model.variants),
        supports_non_max_mode=not all(variant.max_mode for variant in model.variants),
        context_token_limit=model.window,
        context_token_limit_for_max_mode=model.max_window,
        client_display_name=model.name,
        server_model_name=model.id,
    )
    for variant in model.variants:
        told = row.variants.add(
            display_name=model.name,
            is_max_mode=variant.max_mode,
            is_default_non_max_config=variant.default,
            variant_string_representation=f"{model.id}[{','.join(f'{k}={v}' for k, v in variant.parameters)}]",
        )
        for key, value in variant.parameters:
            told.parameter_values.add(id=key, value=value)
    return row


def usable() -> list[pb.ModelDetails]:
    """The rows of GetUsableModels: flat, without a word about thinking; max mode only where it cannot be missed."""
    rows = []
    for slug, (model, variant) in SLUGS.items():
        row = pb.ModelDetails(
            model_id=slug, display_model_id=slug, display_name=model.name, display_name_short=model.name
        )
        if variant.max_mode:
            row.max_mode = True
        rows.append(row)
    return rows


# ---------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """What becomes of a run that asks for a model in one way or another."""

    model: str
    """Whom the run would talk to."""
    outcome: Literal["runs", "empty", "refused"] = "runs"
    """`empty`: the turn ends at once, with nothing said and no tokens."""
    error: ConnectError | None = None
    shape: str = ""
    """base, details, both or requested: how it asked."""
    parameters: Pairs = ()
    """Of the variant that it gets."""


_NOT_FOUND: Final = ConnectError("not_found", "Error")
_MAX_MODE: Final = ConnectError(
    "failed_precondition",
    "Error",
    error=ai.ErrorDetails.ERROR_MAX_MODE_REQUIRED,
    title="Max mode required",
    detail="This model needs max mode.",
    retryable=False,
)
_BOTH_FIELDS: Final = ConnectError("invalid_argument", "Error", retryable=False)


@dataclass(frozen=True, slots=True)
class ModelRules:
    """What is looked at when a run asks for a model; all of it by default."""

    empty: frozenset[str] = frozenset({"requested"})
    """Shapes that are answered with an empty turn."""
    whole: bool = True
    """Parameters must be those of one variant."""
    max_mode: bool = True
    """A variant of max mode must be asked for with the flag."""
    bare: frozenset[str] = frozenset()
    """Shapes that are refused without a reason, as single accounts saw it."""


ALL_RULES: Final = ModelRules()


def judge(request: pb.AgentRunRequest, also: Collection[str] = (), rules: ModelRules = ALL_RULES) -> ModelVerdict:
    """`also`: more ids, which may be asked for in any way."""
    requested, details = request.requested_model, request.model_details
    asked, named = requested.model_id, details.model_id
    pairs = tuple((one.id, one.value) for one in requested.parameters)
    shape = _shape(asked, named, pairs)
    name = asked or named
    if name in also or not name:
        return ModelVerdict(name, shape=shape, parameters=pairs)
    if shape in rules.bare:
        return ModelVerdict(name, "refused", ConnectError("resource_exhausted", "Error"), shape)
    if asked and named and pairs:
        return ModelVerdict(name, "refused", _BOTH_FIELDS, shape)
    if shape == "base":
        model = BY_ID.get(asked)
        variant = None if model is None else _same(model, pairs, whole=rules.whole)
    else:
        model, variant = SLUGS.get(name, (None, None))
    if model is None or variant is None or model.dead:
        return ModelVerdict(name, "refused", _NOT_FOUND, shape)
    if shape in rules.empty:
        return ModelVerdict(model.id, "empty", shape=shape)
    flags = [field.max_mode for field in (requested, details) if field.model_id]
    if rules.max_mode and variant.max_mode and not all(flags):
        return ModelVerdict(model.id, "refused", _MAX_MODE, shape)
    return ModelVerdict(model.id, shape=shape, parameters=variant.parameters)


def _shape(asked: str, named: str, pairs: Pairs) -> str:
    if asked and named:
        return "both"
    if named:
        return "details"
    return "base" if pairs or asked in BY_ID else "requested"


def _same(model: BaseModel, pairs: Pairs, *, whole: bool) -> Variant | None:
    """A set must be one of the variants, as a whole."""
    wanted = dict(pairs)
    for variant in model.variants:
        has = dict(variant.parameters)
        if has == wanted or (not whole and wanted.items() <= has.items()):
            return variant
    return None
