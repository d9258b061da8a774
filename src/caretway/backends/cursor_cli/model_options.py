"""How a session of ACP is set to a model: its base and its options (effort, thinking, fast, context), from the name and
the wishes of a request; what a model's options are. Pure.

The program offers options only for the model that a session has, and offers others after another model is chosen: so
one option is set at a time, and looked at again. Fast costs more, and is never chosen unless it is asked for.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...models.names import EFFORT_IDS

CAPABILITY: Final = "parameterizedModelPicker"
"""What a client names in `initialize` to get base models and options. Without it each model has one fixed variant."""
AUTOMATIC: Final = ("", "auto", "default")
MOST_CHOICES: Final = 8
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "fast": ("fast", "true"),
    "thinking": ("thinking", "true"),
    **{effort: ("effort", effort) for effort in _EFFORTS},
}
"""Words at the end of a flat id, and what they mean."""


Parameters = tuple[tuple[str, tuple[str, ...]], ...]
"""Of a model, with their values."""


@dataclass(frozen=True, slots=True)
class SessionOption:
    id: str
    category: str
    current: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelWish:
    name: str = ""
    """A base, a flat id (`NAME-high-fast`) or an id with brackets (`NAME[effort=high]`)."""
    parameters: tuple[tuple[str, str], ...] = ()


NO_WISH: Final = ModelWish()


def read_options(answer: Mapping[str, Any]) -> tuple[SessionOption, ...]:
    """`configOptions` of an answer; groups of values are taken apart."""
    found = []
    rows = answer.get("configOptions")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            current, values = _plain(row.get("currentValue")), tuple(_values(row.get("options")))
            found.append(SessionOption(row["id"], str(row.get("category") or ""), current, values))
    return tuple(found)


def _values(options: object) -> list[str]:
    found: list[str] = []
    for one in options if isinstance(options, list) else ():
        if isinstance(one, dict):
            found += _values(one["options"]) if "options" in one else [_plain(one.get("value"))]
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def model_option(options: Sequence[SessionOption]) -> SessionOption | None:
    return next((one for one in options if "model" in (one.id, one.category)), None)


def model_parameters(options: Sequence[SessionOption]) -> Parameters:
    """The options of the session's model, as its row of the list has them."""
    own = (one for one in options if not {"model", "mode"} & {one.id, one.category})
    return tuple((one.id, one.values) for one in own if one.values)


def next_choice(
    wish: ModelWish, options: Sequence[SessionOption], made: Collection[str] = ()
) -> tuple[str, str] | None:
    """(option, value) to set next; None: nothing is left to do. `made`: options that were set already."""
    model = model_option(options)
    meant = _meant(wish.name, model.values) if model is not None and wish.name not in AUTOMATIC else None
    if model is None or meant is None:
        return None  # the program was started for the model, and has the last word
    base, said = meant
    if model.current != base:
        return (model.id, base) if model.id not in made else None
    wanted = {"fast": "false"} | dict(wish.parameters) | said
    for key, value in wanted.items():
        option = next((one for one in options if _is(one, key)), None)
        if option is not None and option.id not in made and value in option.values and option.current != value:
            return option.id, value
    return None


def _is(option: SessionOption, key: str) -> bool:
    return option.id == key or (key in EFFORT_IDS and (option.id in EFFORT_IDS or option.category == "thought_level"))


def _meant(name: str, bases: Sequence[str]) -> tuple[str, dict[str, str]] | None:
    """The base that a name begins with, and what the rest of it says; None: nothing that is offered."""
    bare, _, inside = name.partition("[")
    if bare in bases:
        pairs = (part.partition("=") for part in inside.rstrip("]").split(",") if "=" in part)
        return bare, {key.strip(): value.strip() for key, _, value in pairs}
    for base in sorted(bases, key=len, reverse=True):
        words = bare.removeprefix(f"{base}-").split("-")
        if bare.startswith(f"{base}-") and all(word in _WORDS for word in words):
            return base, dict(_WORDS[word] for word in words)
    return next(((one, {}) for one in bases if one.partition("[")[0] == bare), None)  # one fixed variant of each
