"""Parses a model's name into its words, its version, and words for effort, thinking, speed or a context window; a date
is not part of the version. Also parses parameters after the name (`model@effort=high,fast`), and compares versions.
Pure.

Makers, clients and Cursor spell one model in many ways: `claude-sonnet-4-5-20250929`, `claude-4.5-sonnet`,
`sonnet-4.5`. Two names mean the same model if their words and versions are equal. Words of effort, thinking and speed
(`-high`, `-thinking`, `-fast`) select a variant of a model, unless they are part of the model's own name. A `Wish` is
the parameters that one place asks for: the name, the request's body or the settings. For each parameter the first of
these places that names it counts.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError

SCALE: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Effort levels from the lowest to the highest."""
RUNGS: Final = frozenset({*SCALE, "thinking", "fast"})
EFFORT_IDS: Final = ("effort", "reasoning", "reasoning_effort")
"""Ids of the parameter for effort, by maker."""
THOUGHT_IDS: Final = frozenset({"thinking", *EFFORT_IDS})
"""Ids of parameters that decide whether, or how much, a model thinks."""
_SILENT: Final = frozenset(
    {"claude", "cursor", "anthropic", "openai", "google", "xai", "latest", "preview", "model", "reasoning"}
)
"""Words that only some spellings of a name have."""
_TOKEN: Final = re.compile(r"\d+[km](?![a-z0-9])|[a-z]+|\d+")
_EXTRA_HIGH: Final = re.compile(r"extra[-_ ]?high|(?<![a-z])x[-_]high")
_DATED: Final = 4
"""Numbers of at least this many digits are a date or a build, not a version."""
MAX_NAME_CHARS: Final = 256
MAX_WISHES: Final = 16
_YES: Final = frozenset({"", "true", "on", "yes", "1"})
_NO: Final = frozenset({"false", "off", "no", "0"})


class Name(Struct, frozen=True):
    words: frozenset[str]
    version: tuple[int, ...]
    context: str = ""
    """A context window in the name, such as `1m`."""

    @property
    def stem(self) -> frozenset[str]:
        """The words of the name without effort, thinking and speed."""
        return self.words - RUNGS


def read_name(text: str) -> Name:
    plain = _EXTRA_HIGH.sub("xhigh", text[:MAX_NAME_CHARS].lower().rpartition("/")[2])
    words: set[str] = set()
    version: list[int] = []
    context = ""
    for token in _TOKEN.findall(plain):
        if token.isdigit():
            if len(token) < _DATED:
                version.append(int(token))
        elif token[0].isdigit():
            context = token
        else:
            words.add(token)
    while version and version[-1] == 0:
        version.pop()  # 5.0 equals 5
    return Name(frozenset(words - _SILENT or words), tuple(version), context)


def effort_of(word: str) -> str:
    """The effort in the words of `SCALE`; the word itself if it has none."""
    plain = _EXTRA_HIGH.sub("xhigh", word.lower())
    return "none" if plain in ("off", "disabled") else plain


def closest_version(wanted: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """A sort key: the same version first, then the next newer one, then the newest of the older ones."""
    if found >= wanted:
        return 0, found
    return 1, tuple(-number for number in found)


# ---- parameters


@lru_cache(maxsize=256)
def spelled(model: str, parameters: tuple[tuple[str, str], ...], max_mode: bool) -> str:
    """A model and all its parameters as one id, including default values, which may change."""
    parts = [f"{key}={value}" for key, value in parameters]
    if max_mode:
        parts.append("max=true")
    return f"{model}@{','.join(parts)}" if parts else model


def window(value: str) -> int | None:
    """`200k` -> 200000; None if the text is no window."""
    number, unit = value[:-1], value[-1:].lower()
    if not number.isascii() or not number.isdigit() or len(number) > 6 or unit not in ("k", "m"):
        return None
    return int(number) * (1000 if unit == "k" else 1_000_000)


# ---- wishes


class Wish(Struct, frozen=True):
    """Requested parameters; None and empty values mean no request."""

    effort: str | None = None
    thinking: bool | None = None
    fast: bool | None = None
    context: str | None = None
    max_mode: bool | None = None
    other: tuple[tuple[str, str], ...] = ()
    """(parameter id, value) of parameters without a field here."""

    def over(self, weaker: "Wish") -> "Wish":
        """This wish, completed by a weaker one."""
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
    """Parses `effort=high,fast`. A single word is a switch, an effort or a window. Raises GatewayError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MAX_WISHES:
        raise _unreadable(name or text, f"more than {MAX_WISHES} parameters")
    wish = NO_WISH
    for part in parts:
        key, _, value = part.partition("=")
        wish = _with(wish, key.strip().lower(), value.strip().lower(), name or text, given="=" in part)
    return wish


def read_wishes(pairs: Mapping[str, str]) -> Wish:
    """Parses wishes from a table of settings."""
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
