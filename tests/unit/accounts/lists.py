"""Lists of models, in our words."""

from caretway.accounts.resolve import ModelTable, make_table
from caretway.core.turn import ModelInfo, ModelVariant
from unit.accounts.cursor_list import BASES, SLUGS, BaseModel


def info(model: BaseModel) -> ModelInfo:
    variants = tuple(ModelVariant(v.parameters, max_mode=v.max_mode, default=v.default) for v in model.variants)
    return ModelInfo(model.id, model.name, variants=variants, images=model.images)


LISTED = [*map(info, BASES), *(ModelInfo(slug, flat=True) for slug in SLUGS)]


def cursors(aliases: dict[str, str] | None = None) -> ModelTable:
    return make_table(LISTED, aliases or {})


def flat(*ids: str) -> ModelTable:
    """A list that knows no variants, such as cursor-agent's."""
    return make_table([ModelInfo(name) for name in ids], {})
