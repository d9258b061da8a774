"""The simulated list of models as a table: base models, variants, slugs, context windows, max mode, a listed model
whose runs fail; and the family of each model.

A variant is a complete set of parameters. Shapes follow public records of Cursor's list from August to October 2026;
names are the names in use in November 2026. Cursor's own list may differ; every display name is marked as simulated.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from caretway.cursor.wire.messages import ai, pb

Family = Literal["auto", "composer", "fable", "claude", "gpt", "grok", "gemini", "kimi", "glm", "sim"]
Params = tuple[tuple[str, str], ...]

CURSOR_FAMILIES: Final = ("auto", "composer", "sim")
"""Families that Cursor's own workers serve; all other families are external."""


@dataclass(frozen=True, slots=True)
class Variant:
    params: Params
    slug: str = ""
    """The flat id of this variant; empty if it has none."""
    max_mode: bool = False
    default: bool = False
    dead: bool = False
    """Listed, but every run fails with `not_found`."""

    def bracket(self, base: str) -> str:
        inside = ",".join(f"{name}={value}" for name, value in self.params)
        return f"{base}[{inside}]" if inside else base


@dataclass(frozen=True, slots=True)
class BaseModel:
    id: str
    name: str
    family: Family
    variants: tuple[Variant, ...]
    windows: tuple[int, int] = (0, 0)
    """Context windows without and with max mode; 0 if the list has none."""

    @property
    def tiered(self) -> bool:
        """True if the model has effort levels: then a bare id is refused, and a level must be named."""
        return any(name in ("effort", "reasoning") for variant in self.variants for name, _ in variant.params)

    @property
    def default(self) -> Variant:
        return next((variant for variant in self.variants if variant.default), self.variants[0])

    @property
    def images(self) -> bool:
        return self.family not in ("auto", "composer", "glm")

    @property
    def parameters(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for variant in self.variants:
            for name, value in variant.params:
                found.setdefault(name, {})[value] = None
        return {name: tuple(values) for name, values in found.items()}


def _join(*words: str) -> str:
    return "-".join(word for word in words if word)


def _claude(
    base: str,
    name: str,
    efforts: Sequence[str],
    *,
    family: Family = "claude",
    thinking_first: bool = True,
    fast: bool = False,
    windows: tuple[str, str] | None = ("200k", "1m"),
) -> BaseModel:
    def variants() -> Iterator[Variant]:
        first = True
        for thinks in ("false", "true"):
            for effort in efforts or ("",):
                word = "thinking" if thinks == "true" else ""
                slug = _join(base, word, effort) if thinking_first else _join(base, effort, word)
                for quick in ("false", "true") if fast else ("",):
                    for context in windows or ("",):
                        wide = windows is not None and context == windows[1]
                        if quick == "true" and wide:
                            continue
                        pairs = [("thinking", thinks), ("context", context), ("effort", effort), ("fast", quick)]
                        params = tuple((key, value) for key, value in pairs if value)
                        named = "" if wide else _join(slug, "fast" if quick == "true" else "")
                        is_max = wide or quick == "true"
                        yield Variant(params, named, is_max, default=first)
                        first = False

    return BaseModel(base, name, family, tuple(variants()))


def _tiers(
    base: str,
    name: str,
    family: Family,
    parameter: str,
    rungs: Sequence[str],
    *,
    prefix: str = "",
    fast: bool = False,
    wide: bool = False,
    windows: tuple[int, int] = (0, 0),
) -> BaseModel:
    def variants() -> Iterator[Variant]:
        for index, rung in enumerate(rungs):
            for quick in ("false", "true") if fast else ("",):
                for context in ("272k", "1m") if wide else ("",):
                    pairs = [("context", context), (parameter, rung), ("fast", quick)]
                    params = tuple((key, value) for key, value in pairs if value)
                    slug = _join(prefix + base, rung, "fast" if quick == "true" else "")
                    is_max = context == "1m"
                    first = not index and not is_max and quick != "true"
                    yield Variant(params, "" if is_max else slug, is_max, default=first)

    return BaseModel(base, name, family, tuple(variants()), windows)


def _plain(base: str, name: str, family: Family, windows: tuple[int, int] = (0, 0), *, dead: bool = False) -> BaseModel:
    return BaseModel(base, name, family, (Variant((), base, default=True, dead=dead),), windows)


def _composer(base: str, name: str) -> BaseModel:
    """A Composer model. Its bare id means the fast variant, which costs more; the slow one needs `fast=false`."""
    slow = Variant((("fast", "false"),))
    quick = Variant((("fast", "true"),), f"{base}-fast", default=True)
    return BaseModel(base, name, "composer", (slow, quick), (200_000, 0))


_FOUR: Final = ("low", "medium", "high", "max")
_FIVE: Final = ("low", "medium", "high", "xhigh", "max")
_TO_XHIGH: Final = ("low", "medium", "high", "xhigh")
_FROM_NONE: Final = ("none", *_FIVE)
_AUTO: Final = tuple(
    Variant((("optimization", value),), default=value == "balance") for value in ("cost", "balance", "intelligence")
)

BASES: Final = (
    BaseModel("default", "Auto", "auto", _AUTO),
    _plain("sim-auto", "Sim Auto", "sim", (200_000, 200_000)),
    _plain("sim-fast", "Sim Fast", "sim"),
    _tiers("sim-think", "Sim Think", "sim", "effort", ("low", "medium", "high")),
    _composer("composer-2.5", "Composer <span>2.5</span>"),
    _composer("composer-2", "Composer 2"),
    _plain("composer-1.5", "Composer 1.5", "composer"),
    _claude("claude-fable-5-1", "Fable 5.1", _FIVE, family="fable", windows=("300k", "1m")),
    _claude("claude-fable-5", "Fable 5", _FIVE, family="fable", windows=("300k", "1m")),
    _claude("claude-opus-5-5", "Opus 5.5", _FIVE, fast=True, windows=("300k", "1m")),
    _claude("claude-opus-5", "Opus 5", _FIVE, fast=True),
    _claude("claude-opus-4-8", "Opus 4.8", _FIVE, fast=True),
    _claude("claude-opus-4-7", "Opus 4.7", _FIVE, fast=True),
    _claude("claude-4.6-opus", "Opus 4.6", _FOUR, thinking_first=False, fast=True),
    _claude("claude-sonnet-5-5", "Sonnet 5.5", _FIVE, windows=("300k", "1m")),
    _claude("claude-sonnet-5", "Sonnet 5", _FOUR),
    _claude("claude-4.6-sonnet", "Sonnet 4.6", ("low", "medium", "high"), thinking_first=False),
    _claude("claude-4.5-sonnet", "Sonnet 4.5", (), windows=None),
    _claude("claude-4.5-haiku", "Haiku 4.5", (), windows=None),
    _tiers("gpt-6.1-sol", "GPT-6.1 Sol", "gpt", "reasoning", _FROM_NONE, fast=True, wide=True),
    _tiers("gpt-6.1", "GPT-6.1", "gpt", "reasoning", _FROM_NONE, fast=True, wide=True),
    _tiers("gpt-6-astra", "GPT-6 Astra", "gpt", "reasoning", _FIVE, wide=True),
    _tiers("gpt-6-sol", "GPT-6 Sol", "gpt", "reasoning", _FROM_NONE, fast=True, wide=True),
    _tiers("gpt-6-luna", "GPT-6 Luna", "gpt", "reasoning", _FROM_NONE, wide=True),
    _tiers("gpt-6", "GPT-6", "gpt", "reasoning", _FROM_NONE, fast=True, wide=True),
    _tiers("gpt-5.6-sol", "GPT-5.6 Sol", "gpt", "reasoning", _FROM_NONE, fast=True, wide=True),
    _tiers("gpt-5.6-terra", "GPT-5.6 Terra", "gpt", "reasoning", _FROM_NONE, fast=True, wide=True),
    _tiers("gpt-5.6-luna", "GPT-5.6 Luna", "gpt", "reasoning", _FROM_NONE, wide=True),
    _tiers(
        "gpt-5.5", "GPT-5.5", "gpt", "reasoning", ("none", "low", "medium", "high", "extra-high"), fast=True, wide=True
    ),
    _tiers("gpt-5.4", "GPT-5.4", "gpt", "reasoning", _TO_XHIGH, fast=True, wide=True),
    _tiers("gpt-5.4-mini", "GPT-5.4 Mini", "gpt", "reasoning", ("none", *_TO_XHIGH)),
    _tiers("gpt-5.4-nano", "GPT-5.4 Nano", "gpt", "reasoning", ("none", *_TO_XHIGH)),
    _tiers("gpt-5.3-codex", "GPT-5.3 Codex", "gpt", "reasoning", _TO_XHIGH, fast=True),
    _tiers("gpt-5.2", "GPT-5.2", "gpt", "reasoning", _TO_XHIGH, fast=True),
    _tiers("gpt-5.2-codex", "GPT-5.2 Codex", "gpt", "reasoning", _TO_XHIGH, fast=True),
    _tiers("gpt-5.1", "GPT-5.1", "gpt", "reasoning", ("low", "medium", "high")),
    _tiers("gpt-5.1-codex-max", "GPT-5.1 Codex Max", "gpt", "reasoning", _TO_XHIGH, fast=True),
    _tiers("gpt-5.1-codex-mini", "GPT-5.1 Codex Mini", "gpt", "reasoning", ("low", "medium", "high")),
    _plain("gpt-5-mini", "GPT-5 Mini", "gpt", (272_000, 0)),
    _tiers("grok-4.7", "Grok 4.7", "grok", "effort", _TO_XHIGH, prefix="cursor-", fast=True),
    _tiers("grok-4.6", "Grok 4.6", "grok", "effort", _TO_XHIGH, prefix="cursor-", fast=True),
    _tiers("grok-4.5", "Grok 4.5", "grok", "effort", ("low", "medium", "high"), prefix="cursor-", fast=True),
    _plain("grok-code-fast-1", "Grok Code", "grok"),
    _plain("gemini-3.1-pro", "Gemini 3.1 Pro", "gemini", (200_000, 1_000_000)),
    _tiers("gemini-3.8-flash", "Gemini 3.8 Flash", "gemini", "reasoning", ("low", "medium", "high")),
    _tiers("gemini-3.7-flash", "Gemini 3.7 Flash", "gemini", "reasoning", ("low", "medium", "high")),
    _tiers("gemini-3.6-flash", "Gemini 3.6 Flash", "gemini", "reasoning", ("low", "medium", "high")),
    _tiers("gemini-3.5-flash", "Gemini 3.5 Flash", "gemini", "reasoning", ("low", "medium", "high")),
    _plain("gemini-3-flash", "Gemini 3 Flash", "gemini"),
    _plain("gemini-2.5-flash", "Gemini 2.5 Flash", "gemini"),
    _tiers("kimi-k3", "Kimi K3", "kimi", "reasoning", ("low", "high", "max")),
    _plain("kimi-k2.7-code", "Kimi K2.7 Code", "kimi"),
    _plain("kimi-k2.5", "Kimi K2.5", "kimi"),
    _tiers("glm-5.2", "GLM 5.2", "glm", "reasoning", ("high", "max")),
    _plain("sim-retired", "Sim Retired", "sim", dead=True),
)
BY_ID: Final = {base.id: base for base in BASES}
BY_SLUG: Final = {variant.slug: (base, variant) for base in BASES for variant in base.variants if variant.slug}


def slugs() -> Iterator[tuple[str, BaseModel, Variant]]:
    """The flat list of `GetUsableModels`. A model without levels is also listed by its bare id."""
    for base in BASES:
        if not base.tiered and base.id not in BY_SLUG:
            yield base.id, base, base.default
        for variant in base.variants:
            if variant.slug:
                yield variant.slug, base, variant


def family(model: str) -> Family:
    """The family of a slug, a base id or a bracket string; unknown names count as Cursor's own."""
    bare = model.partition("[")[0]
    if bare in BY_ID:
        return BY_ID[bare].family
    return BY_SLUG[bare][0].family if bare in BY_SLUG else "sim"


def is_external(model: str) -> bool:
    return family(model) not in CURSOR_FAMILIES


# ---- models

# The simulator's lists of models (GetUsableModels, AvailableModels, public /v1/models), which models think, and which
# report cache writes.


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    name: str
    description: str
    efforts: tuple[str, ...] = ()
    """Values of the `effort` parameter; models with this parameter think."""


MODELS: Final = (
    Model("sim-auto", "Sim Auto", "Simulated: the default"),
    Model("sim-fast", "Sim Fast", "Simulated: answers at once"),
    Model("sim-think", "Sim Think", "Simulated: thinks before it answers", ("low", "medium", "high")),
)
DEFAULT: Final = MODELS[0]
_DEFAULT_EFFORT: Final = "medium"
_SIMULATED: Final = " (simulated)"


def thinks(model_id: str) -> bool:
    base, _, variant = model_id.partition("[")
    return "thinking=true" in variant or any(model.id == base and model.efforts for model in MODELS)


def writes_cache(model_id: str) -> bool:
    """Whether runs of this model report the tokens that they write to the cache; for other models the count is 0."""
    return thinks(model_id) or "claude" in model_id


def details(model: Model) -> pb.ModelDetails:
    message = pb.ModelDetails(
        model_id=model.id,
        display_model_id=model.id,
        display_name=model.name,
        display_name_short=model.name,
        max_mode=False,
    )
    if model.efforts:
        message.thinking_details.SetInParent()
    return message


def usable(*, cursor_catalogue: bool) -> pb.GetUsableModelsResponse:
    """The flat list. In Cursor's catalogue no model is marked as thinking."""
    if not cursor_catalogue:
        return pb.GetUsableModelsResponse(models=[details(model) for model in MODELS])
    listed = pb.GetUsableModelsResponse()
    for slug, base, variant in slugs():
        name = f"{base.name} {' '.join(value for _, value in variant.params)}".strip() + _SIMULATED
        listed.models.add(
            model_id=slug, display_model_id=slug, display_name=name, display_name_short=name, max_mode=variant.max_mode
        )
    return listed


def available() -> ai.AvailableModelsResponse:
    listed = ai.AvailableModelsResponse(model_names=[base.id for base in BASES])
    for base in BASES:
        default_max = next((variant for variant in base.variants if variant.max_mode), None)
        model = listed.models.add(
            name=base.id,
            supports_images=base.images,
            supports_max_mode=default_max is not None,
            context_token_limit=base.windows[0],
            context_token_limit_for_max_mode=base.windows[1],
            client_display_name=base.name + _SIMULATED,
            server_model_name=base.id,
            supports_non_max_mode=any(not variant.max_mode for variant in base.variants),
        )
        for variant in base.variants:
            model.variants.add(
                parameter_values=[ai.AvailableModel.Parameter(id=key, value=value) for key, value in variant.params],
                display_name=base.name + _SIMULATED,
                is_max_mode=variant.max_mode,
                is_default_max_config=variant is default_max,
                is_default_non_max_config=variant.default,
                variant_string_representation=variant.bracket(base.id),
            )
    return listed


def public(*, cursor_catalogue: bool) -> dict[str, Any]:
    """The body of the public `/v1/models`."""
    if not cursor_catalogue:
        return {"items": [_public(model) for model in MODELS]}
    return {"items": [_public_base(base) for base in BASES]}


def _public_base(base: BaseModel) -> dict[str, Any]:
    return {
        "id": base.id,
        "displayName": base.name + _SIMULATED,
        "aliases": [],
        "parameters": [
            {"id": name, "displayName": name.capitalize(), "values": [{"value": value} for value in values]}
            for name, values in base.parameters.items()
        ],
        "variants": [
            {
                "params": [{"id": name, "value": value} for name, value in variant.params],
                "displayName": base.name + _SIMULATED,
                "isDefault": variant.default,
                "isMaxMode": variant.max_mode,
            }
            for variant in base.variants
        ],
    }


def _public(model: Model) -> dict[str, Any]:
    values = [{"value": effort, "displayName": effort.capitalize()} for effort in model.efforts]
    chosen = [{"id": "effort", "value": _DEFAULT_EFFORT}] if values else []
    return {
        "id": model.id,
        "displayName": model.name,
        "description": model.description,
        "parameters": [{"id": "effort", "displayName": "Effort", "values": values}] if values else [],
        "variants": [{"params": chosen, "displayName": model.name, "isDefault": True}],
    }


# ---- versions

# Which client versions the simulated Cursor accepts as released, by their form (`cli-2026.07.08-0c04a8a`,
# `sdk-python-1.1.0`). Pure.

_SHIPPED: Final = re.compile(r"cli-2026\.\d\d\.\d\d(-[0-9a-z]+)*|sdk-(python|typescript)-1\.\d+\.\d+")


def is_shipped(version: str) -> bool:
    return _SHIPPED.fullmatch(version) is not None
