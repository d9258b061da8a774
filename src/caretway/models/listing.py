"""Which models clients are shown: the backend's, a thinking twin for each that can think, names from the settings,
aliases counted once. Pure.

What a backend offers is `make_table`'s business. Whoever speaks of "the models" means what is decided here.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..core.turn import ModelInfo
from .resolve import THINKING, ModelTable, resolve
from .variants import can_think
from .wishes import NO_WISH


def shown_models(table: ModelTable, extra: Sequence[str] = (), *, only: bool = False) -> list[ModelInfo]:
    """`extra`: more names to list; with `only` there are no others, if there are any. A plain name of a model that can
    think is listed as `-thinking` too."""
    listed = {} if only and extra else {model.id: model for model in _with_thinking(list(table.models.values()))}
    for name in extra:
        for each in (name, name + THINKING) if _has_twin(name, table) else (name,):
            listed.setdefault(each, _named(each, table))
    return list(listed.values())


def each_once(models: Iterable[ModelInfo]) -> list[ModelInfo]:
    """Without those that are only another name for a model, as people count them."""
    return [model for model in models if not model.stands_for]


def _named(name: str, table: ModelTable) -> ModelInfo:
    """A name of the settings as a row of the list: with all that is known of the model it means."""
    meant = resolve(name, table)
    if meant.model is None or not meant.exact:
        return ModelInfo(name, name)
    return meant.model if meant.model.id == name else replace(meant.model, id=name, name=name, aliases=())


def _has_twin(name: str, table: ModelTable) -> bool:
    meant, twin = resolve(name, table), resolve(name + THINKING, table)
    plain = meant.model is not None and meant.exact and meant.wish == NO_WISH and not meant.then
    return plain and "think" not in name and twin.model is not None and twin.exact and can_think(twin.model)


def _with_thinking(models: Sequence[ModelInfo]) -> list[ModelInfo]:
    """Every model that can think is listed once more as thinking, for clients that can choose nothing but a model."""
    ids = {model.id for model in models}
    listed: list[ModelInfo] = []
    for model in models:
        listed.append(model)
        twin = model.id + THINKING
        if twin in ids or "think" in model.id or model.flat or model.stands_for or not can_think(model):
            continue
        name = f"{model.name or model.id} (thinking)"
        listed.append(replace(model, id=twin, name=name, aliases=(), reasoning=True, stands_for=model.id))
    return listed
