"""What is asked of a model beside its name: `model@effort=high,fast`, the request's fields, the settings, in this
order; parameters that cannot be read are an error. Pure.

Wishes come from the name (`model@effort=high,fast`, or a slug), from the request's body, and from settings; the first
who says something is heard.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError
from ..core.model_parameters import EFFORT_IDS, window
from .names import SCALE, effort_of

MAX_WISHES: Final = 16
_YES: Final = frozenset({"", "true", "on", "yes", "1"})
_NO: Final = frozenset({"false", "off", "no", "0"})


class Wish(Struct, frozen=True):
    """None and empty: no wish."""

    effort: str | None = None
    thinking: bool | None = None
    fast: bool | None = None
    context: str | None = None
    max_mode: bool | None = None
    other: tuple[tuple[str, str], ...] = ()
    """(parameter id, value) of parameters that nobody here has a word for."""

    def over(self, weaker: "Wish") -> "Wish":
        """This wish, and what it leaves open from another."""
        taken = {name: getattr(weaker, name) for name in self.__struct_fields__ if not self._says(name)}
        return replace(self, **taken)

    def _says(self, name: str) -> bool:
        return getattr(self, name) not in (None, ())


NO_WISH: Final = Wish()


def split_suffix(name: str) -> tuple[str, str]:
    """`model@effort=high` and `model[effort=high]` -> (`model`, `effort=high`)."""
    if name.endswith("]") and "[" in name:
        base, _, inside = name[:-1].partition("[")
        return base, inside
    base, _, inside = name.partition("@")
    return base, inside


def read_suffix(text: str, name: str = "") -> Wish:
    """`effort=high,fast`. A word alone is switched on, or is an effort, or a window. Raises GatewayError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MAX_WISHES:
        raise _unreadable(name or text, f"more than {MAX_WISHES} parameters")
    wish = NO_WISH
    for part in parts:
        key, _, value = part.partition("=")
        wish = _with(wish, key.strip().lower(), value.strip().lower(), name or text, given="=" in part)
    return wish


def read_wishes(pairs: Mapping[str, str]) -> Wish:
    """The same from a table of settings."""
    return read_suffix(",".join(f"{key}={value}" for key, value in pairs.items()))


def wish_of(parameters: tuple[tuple[str, str], ...], *, max_mode: bool) -> Wish:
    """The wish that only a variant with these parameters fulfils."""
    wish = replace(NO_WISH, max_mode=max_mode)
    for key, value in parameters:
        wish = _with(wish, key, value, key, given=True)
    return wish


def _with(wish: Wish, key: str, value: str, name: str, *, given: bool) -> Wish:
    if key in EFFORT_IDS:
        return replace(wish, effort=effort_of(value))
    if key == "thinking" and effort_of(value) in SCALE and value not in _NO:
        return replace(wish, effort=effort_of(value), thinking=effort_of(value) != "none")
    if key == "thinking":
        return replace(wish, thinking=_switch(value, key, name))
    if key == "fast":
        return replace(wish, fast=_switch(value, key, name))
    if key in ("max", "max_mode"):
        return replace(wish, max_mode=_switch(value, key, name))
    if key in ("context", "window"):
        return replace(wish, context=value)
    if given:
        return replace(wish, other=(*wish.other, (key, value)))
    if effort_of(key) in SCALE:
        return replace(wish, effort=effort_of(key))
    if window(key):
        return replace(wish, context=key)
    raise _unreadable(name, f"`{key}` is no parameter")


def _switch(value: str, key: str, name: str) -> bool:
    if value in _YES:
        return True
    if value in _NO:
        return False
    raise _unreadable(name, f"`{key}` is true or false")


def _unreadable(name: str, what: str) -> GatewayError:
    return GatewayError(
        ErrorKind.BAD_REQUEST,
        f"The model name `{name[:200]}` cannot be read: {what}.",
        hint="Parameters are written as MODEL@effort=high,fast; /v1/models says what a model has.",
        param="model",
    )
