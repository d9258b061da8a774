"""Resolves a client's model name against a model list: an id, a flat id, an alias (cycles and chains of models
included), another spelling, a router's prefix, `auto`, else a substitute of the same family. Pure.

Exact meanings come first: an id, a flat id, an alias, the same name in another spelling, each with optional parameters.
Otherwise a substitute is chosen: another version, or another member of the family. A substitute is never exact, so
strict callers can refuse it and other callers can report it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ..core.turn import ModelInfo, ModelVariant
from .names import (
    EFFORT_IDS,
    NO_WISH,
    RUNGS,
    SCALE,
    Name,
    Wish,
    closest_version,
    effort_of,
    read_name,
    read_suffix,
    split_suffix,
    window,
    wish_of,
)

# ---- Chooses the variant of a model that is nearest to a wish (thinking, effort, window, speed, max mode), and reports
# the unmet parts. Pure.
#
# Cursor refuses a set of parameters that is none of a model's variants, so one variant is chosen as a whole. Wishes
# count in this order: thinking, effort, window, speed, max mode. Parameters without a wish are those of the model's
# default variant, except that fast and max mode are avoided: both cost more.

_FAR: Final = 100
_SILENT_EFFORTS: Final = ("none", "minimal")


class VariantChoice(Struct, frozen=True):
    variant: ModelVariant
    unmet: tuple[str, ...] = ()
    """The parts of the wish that the variant does not fulfil."""


def choose_variant(model: ModelInfo, wish: Wish) -> VariantChoice:
    """The variant nearest to the wish. A model without variants gets a value for each
    parameter in the wish."""
    if not model.variants:
        return _loose(model, wish)
    usual = default_variant(model)
    best = min(model.variants, key=lambda variant: _cost(variant, wish, usual))
    return VariantChoice(best, _unmet(best, wish))


def default_variant(model: ModelInfo) -> ModelVariant:
    """The variant that is used without a wish."""
    marked = [variant for variant in model.variants if variant.default]
    return next((v for v in marked if not v.max_mode), None) or next(iter(marked or model.variants), ModelVariant())


def can_think(model: ModelInfo) -> bool:
    """Whether the model thinks or can be made to."""
    ids = {key for key, _ in model.parameters} | {key for v in model.variants for key, _ in v.parameters}
    return model.reasoning or bool(ids & {"thinking", *EFFORT_IDS})


def parameter_values(variants: Sequence[ModelVariant]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """All parameters of the variants with all their values, in order of appearance."""
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
        wanted = wish.effort not in _SILENT_EFFORTS  # a wish for effort implies thinking
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
    """Distance between effort levels; of two equally distant levels the lower one is nearer."""
    if wanted is None or wanted == has:
        return 0, 0
    if has not in SCALE or wanted not in SCALE:
        return _FAR, 0
    return abs(SCALE.index(has) - SCALE.index(wanted)), SCALE.index(has)


def _thoughtless(wish: Wish, effort: str | None) -> bool:
    """Whether a wish to think is unmet: a model that has only efforts thinks at efforts above `minimal`."""
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
    """Chooses parameters of a model without variants, which accepts any combination of the listed values."""
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


AUTOMATIC: Final = ("default", "auto", "sim-auto")
"""Ids of an account's automatic choice."""
PREFIXES: Final = ("cursor/", "caretway/", "openai/", "anthropic/")
"""Prefixes that routers add to a model's name."""
THINKING: Final = "-thinking"
"""The suffix of a model's id that selects thinking."""

FAMILIES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("opus", ("opus",)),
    ("sonnet", ("sonnet",)),
    ("haiku", ("haiku", "sonnet")),
    ("claude", ("sonnet", "opus", "haiku")),
    ("codex", ("codex", "gpt")),
    ("gpt", ("gpt",)),
    ("chatgpt", ("gpt",)),
    ("o", ("o", "gpt")),
    ("gemini", ("gemini",)),
    ("grok", ("grok",)),
)
"""A word in names that clients have built in -> words to look for in the list, best first."""
_ORDINARY: Final = frozenset(
    {"mini", "nano", "pro", "turbo", "flash", "lite", "chat", "instruct", "o", "codex", "sonnet", "opus", "haiku", "v"}
    | RUNGS
    | {word for word, _ in FAMILIES}
)
"""Words of known model families. A name with any other word is no alias."""
_MAX_HOPS: Final = 4
MAX_CHAIN: Final = 4
"""The maximum number of models in one alias."""


class Meaning(Struct, frozen=True):
    """The meaning of a name; `model` is None if the name is unknown."""

    model: ModelInfo | None
    wish: Wish = NO_WISH
    exact: bool = True
    """The name means exactly this model."""
    own: bool = False
    """The name is Cursor's own, so an answer can repeat it."""
    why: str = ""
    then: tuple["Meaning", ...] = ()
    """The remaining models of an alias with several."""


class ModelTable(Struct, frozen=True):
    """A model list with indexes for name lookup."""

    models: Mapping[str, ModelInfo]
    slugs: Mapping[str, tuple[str, ModelVariant]] = field(default_factory=dict)
    """Flat ids -> the model and variant they stand for."""
    spelled: Mapping[Name, str] = field(default_factory=dict)
    names: Sequence[tuple[str, Name]] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The aliases in the settings."""


def make_table(listed: Iterable[ModelInfo], aliases: Mapping[str, str]) -> ModelTable:
    """Indexes a list. A flat id of a listed model's variant becomes a name of that model; others stay models."""
    rows = list(listed)
    models = {model.id: _filled(model) for model in rows if not model.flat}
    table = _indexed(models, aliases)
    slugs = dict(table.slugs)
    strays: dict[str, ModelInfo] = {}
    for row in rows:
        if not row.flat or row.id in slugs:
            continue
        if row.id in models:  # without a suffix, a model is its default variant
            if models[row.id].variants:
                slugs[row.id] = row.id, default_variant(models[row.id])
            continue
        found = _variant_of(row, table)
        if found is None:
            strays[row.id] = row
        else:
            slugs[row.id] = found
    table = _indexed(_with_slugs({**models, **strays}, slugs), aliases)
    return replace(table, slugs={**slugs, **table.slugs})


def resolve(name: str, table: ModelTable) -> Meaning:
    return _resolve(name, table, _MAX_HOPS)


def _resolve(name: str, table: ModelTable, hops: int) -> Meaning:
    if name in table.aliases and hops:
        return _alias(name, table, hops)
    if (meant := _listed(name, table) or _thinking(name, table) or _spelled(name, table)) is not None:
        return meant
    base, inside = split_suffix(name)
    if inside and hops:
        meant = _resolve(base, table, hops - 1)
        if meant.model is None:
            return Meaning(None, why=f"{name} is not listed")
        wish = read_suffix(inside, name)
        then = tuple([replace(other, wish=wish.over(other.wish)) for other in meant.then])
        return replace(meant, wish=wish.over(meant.wish), then=then)
    for prefix in PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix) and hops:
            return replace(_resolve(name.removeprefix(prefix), table, hops - 1), own=False)
    row = table.models.get(name)
    if row is not None and row.stands_for in table.models:
        return Meaning(table.models[row.stands_for], why=f"{name} is listed as a name for {row.stands_for}")
    if row is not None:
        return Meaning(row, own=True, why="listed")
    if name in AUTOMATIC[:2] and (found := next((key for key in AUTOMATIC if key in table.models), None)):
        return Meaning(table.models[found], why=f"{name} is listed as {found}")
    return _stand_in(name, table)


# ---- aliases


def _alias(name: str, table: ModelTable, hops: int) -> Meaning:
    """Follows the alias to listed models, each once. A substitute is used only if no listed model is found."""
    target = table.aliases[name]
    found: dict[tuple[str, Wish], Meaning] = {}
    stand_ins: list[Meaning] = []
    for one in target.split("|")[:MAX_CHAIN]:
        meant = _resolve(one, table, hops - 1) if one != name else _listed(name, table)
        for each in (meant, *meant.then) if meant is not None else ():
            if each.model is not None and each.exact:
                found.setdefault((each.model.id, each.wish), each)
            elif each.model is not None:
                stand_ins.append(each)
    if not (chain := [*found.values()][:MAX_CHAIN] or stand_ins[:1]):
        return Meaning(None, why=f"model_aliases: {name} is {target}, which is not listed")
    why = f"model_aliases: {name} is {target.replace('|', ', then ')}"
    first, *others = (replace(each, own=False, why=why, then=()) for each in chain)
    return replace(first, then=tuple(others))


# ---- exact meanings


def _listed(name: str, table: ModelTable) -> Meaning | None:
    model = table.models.get(name)
    if model is not None and not model.stands_for:
        return Meaning(model, own=True, why="listed")
    if name in table.slugs:
        key, variant = table.slugs[name]
        wish = wish_of(variant.parameters, max_mode=variant.max_mode)
        return Meaning(table.models[key], wish, own=True, why=f"a variant of {key}")
    return None


def _spelled(name: str, table: ModelTable) -> Meaning | None:
    """Finds a model with the same words and version in another order, optionally followed by words for an effort."""
    if "@" in name or "[" in name:
        return None
    wanted = read_name(name)
    same = table.spelled.get(replace(wanted, context=""))
    if same is not None:
        model = table.models[same]
        wish = Wish(context=wanted.context) if wanted.context else NO_WISH
        return Meaning(model, wish, why=f"another spelling of {same}")
    return _rung(wanted, table)


def _rung(wanted: Name, table: ModelTable) -> Meaning | None:
    fitting = [
        (key, named)
        for key, named in table.names
        if named.version == wanted.version and named.words < wanted.words and wanted.words - named.words <= RUNGS
    ]
    if not fitting:
        return None
    key, named = max(fitting, key=lambda row: len(row[1].words))
    model = table.models[key]
    wish = _rung_wish(wanted.words - named.words, wanted.context)
    chosen = choose_variant(model, wish)
    met = not chosen.unmet or (chosen.unmet == ("thinking",) and model.reasoning)
    return Meaning(model, wish, exact=met, why=f"{key} with {', '.join(sorted(wanted.words - named.words))}")


def _rung_wish(words: frozenset[str], context: str = "") -> Wish:
    effort = next((word for word in reversed(SCALE) if word in words), None)
    return Wish(
        effort=effort, thinking="thinking" in words or None, fast="fast" in words or None, context=context or None
    )


def _thinking(name: str, table: ModelTable) -> Meaning | None:
    if not name.endswith(THINKING):
        return None
    meant = _listed(name.removesuffix(THINKING), table)
    if meant is None or meant.model is None or not can_think(meant.model):
        return None
    return replace(meant, wish=replace(meant.wish, thinking=True), why=f"{meant.model.id}, thinking")


# ---- stand-ins


def _stand_in(name: str, table: ModelTable) -> Meaning:
    wanted = read_name(name)
    letters = wanted.words | ({"claude"} if "claude" in name.lower() else set())
    known = _ORDINARY.union(*(named.words for _, named in table.names)) | {"claude"}
    if letters <= known:
        for word, looked_for in FAMILIES:
            if word in letters:
                found = _closest(wanted, looked_for, table) or next((m for m in AUTOMATIC if m in table.models), None)
                if found is None:
                    break
                wish = _rung_wish(wanted.words & RUNGS)
                why = f"{name} is not listed; {found} stands in for it"
                return Meaning(table.models[found], wish, exact=False, why=why)
    return Meaning(None, why=f"{name} is not listed")


def _closest(wanted: Name, looked_for: Sequence[str], table: ModelTable) -> str | None:
    for word in looked_for:
        members = [(key, named) for key, named in table.names if word in named.words]
        if members:
            return min(members, key=lambda row: _distance(wanted, row[1]))[0]
    return None


def _distance(wanted: Name, found: Name) -> tuple[object, ...]:
    """A sort key: most requested words, fewest other words, the closest version; ties keep the order of the list."""
    return (
        -len(found.stem & wanted.stem),
        len(found.stem - wanted.stem),
        len((found.words ^ wanted.words) & RUNGS),
        closest_version(wanted.version, found.version),
    )


# ---- the table


def _indexed(models: Mapping[str, ModelInfo], aliases: Mapping[str, str]) -> ModelTable:
    slugs: dict[str, tuple[str, ModelVariant]] = {}
    names: list[tuple[str, Name]] = []
    spelled: dict[Name, str] = {}
    for key, model in models.items():
        if model.stands_for:
            continue
        named = read_name(key)
        names.append((key, named))
        spelled.setdefault(replace(named, context=""), key)
        usual = default_variant(model)
        for variant in (usual, *model.variants):  # a name of several variants means the default one
            for slug in (variant.slug, bracketed(key, variant)):
                if slug and slug not in models:
                    slugs.setdefault(slug, (key, variant))
        for alias in model.aliases:
            if alias not in models:
                slugs.setdefault(alias, (key, replace(usual, parameters=(), max_mode=False)))
    return ModelTable(models, slugs, spelled, names, aliases)


def bracketed(model: str, variant: ModelVariant) -> str:
    """The spelling of a variant in Cursor's own programs."""
    return f"{model}[{','.join(f'{key}={value}' for key, value in variant.parameters)}]"


def _filled(model: ModelInfo) -> ModelInfo:
    if model.parameters or not model.variants:
        return model
    return replace(model, parameters=parameter_values(model.variants))


def _variant_of(row: ModelInfo, table: ModelTable) -> tuple[str, ModelVariant] | None:
    """The variant whose flat id this is: it has every word of the id and no other choice."""
    meant = _spelled(row.id, table)
    if meant is None or meant.model is None or not meant.exact or not meant.model.variants:
        return None
    wish = meant.wish
    plain = replace(wish, thinking=wish.thinking or False, fast=wish.fast or False)
    chosen = choose_variant(meant.model, plain if _has(meant.model, "thinking") else replace(plain, thinking=None))
    return None if chosen.unmet else (meant.model.id, chosen.variant)


def _has(model: ModelInfo, parameter: str) -> bool:
    return any(key == parameter for key, _ in model.parameters)


def _with_slugs(models: Mapping[str, ModelInfo], slugs: Mapping[str, tuple[str, ModelVariant]]) -> dict[str, ModelInfo]:
    """Adds the found flat ids to the models' variants."""
    found: dict[tuple[str, tuple[tuple[str, str], ...], bool], str] = {}
    for slug, (key, variant) in slugs.items():
        if "[" not in slug:
            found.setdefault((key, variant.parameters, variant.max_mode), slug)
    named: dict[str, ModelInfo] = {}
    for key, model in models.items():
        variants = tuple(
            variant
            if variant.slug
            else replace(variant, slug=found.get((key, variant.parameters, variant.max_mode), ""))
            for variant in model.variants
        )
        named[key] = replace(model, variants=variants) if variants != model.variants else model
    return named
