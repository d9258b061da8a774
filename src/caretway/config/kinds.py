"""How values of settings are read and shown: switches, numbers and their bounds, durations (`15m`), sizes (`64MiB`),
paths, lists, tables, URLs. Knows no setting.

A `ValueKind` reads one object: the text of a flag or variable, a TOML value, or a value that is already right (reading
is idempotent). It knows nothing about names, files or the environment. It says what it expected, and row.py writes the
message.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct


class ValueKind(Struct, frozen=True):
    expected: str
    """Completes the sentence "expected ..."."""
    metavar: str
    read: Callable[[object], object]
    """Raises ValueError when the object is not valid."""
    show: Callable[[Any], str] = str
    choices: tuple[str, ...] = ()
    several: bool = False
    """The flag may be given more than once; `read` takes the list."""
    switch: bool = False
    """The flag takes no value: --name and --no-name."""


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError
    return given.strip()


def _filled(given: object) -> str:
    if not (text := _text(given)):
        raise ValueError
    return text


TEXT: Final = ValueKind("text", "TEXT", _text)
FILLED_TEXT: Final = ValueKind("text that is not empty", "TEXT", _filled)


def choice(values: tuple[str, ...]) -> ValueKind:
    def read(given: object) -> str:
        if (text := _text(given).lower()) not in values:
            raise ValueError
        return text

    return ValueKind(f"one of {', '.join(values)}", "|".join(values), read, choices=values)


_SWITCH_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _switch(given: object) -> bool:
    if isinstance(given, bool):
        return given
    if (value := _SWITCH_WORDS.get(_text(given).lower())) is None:
        raise ValueError
    return value


SWITCH: Final = ValueKind("true or false", "true|false", _switch, lambda value: str(value).lower(), switch=True)


def _bounds(low: float, high: float) -> str:
    return f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"


def integer(low: int, high: int | None = None) -> ValueKind:
    top = math.inf if high is None else high

    def read(given: object) -> int:
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError
        number = int(given)
        if not low <= number <= top:
            raise ValueError
        return number

    return ValueKind(f"a whole number {_bounds(low, top)}", "N", read)


_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)", re.ASCII)


def _quantity(given: object, units: Mapping[str, float], plain: float) -> float:
    """A number with an optional unit -> the amount in the base unit; a number alone counts in `plain`."""
    if isinstance(given, bool):
        raise ValueError
    if isinstance(given, int | float):
        amount = given * plain
    else:
        if (parts := _QUANTITY.fullmatch(_text(given))) is None:
            raise ValueError
        unit = parts[2]
        if unit and unit not in units:
            raise ValueError
        amount = float(parts[1]) * (units[unit] if unit else plain)
    if not math.isfinite(amount):
        raise ValueError
    return amount


_SECONDS: Final = MappingProxyType({"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0})


def show_duration(seconds: float) -> str:
    for unit in ("d", "h", "m"):
        count, rest = divmod(seconds, _SECONDS[unit])
        if count and not rest:
            return f"{count:g}{unit}"
    return f"{seconds:g}s"


def duration(*, zero: bool = False) -> ValueKind:
    """Seconds as a float. `zero`: 0 is allowed and means immediately."""

    def read(given: object) -> float:
        seconds = float(_quantity(given, _SECONDS, 1.0))
        if seconds < 0 or (seconds == 0 and not zero):
            raise ValueError
        return seconds

    limit = "0 or more" if zero else "more than 0"
    return ValueKind(
        f'a duration of {limit}: seconds, or with a unit as in "90s", "15m", "7d"', "TIME", read, show_duration
    )


def _milliseconds(given: object) -> int:
    amount = round(_quantity(given, {unit: factor * 1000 for unit, factor in _SECONDS.items()}, 1.0))
    if amount <= 0:
        raise ValueError
    return amount


MILLISECONDS: Final = ValueKind(
    'a duration of more than 0: milliseconds, or with a unit as in "5000ms", "5s"',
    "MS",
    _milliseconds,
    lambda value: f"{value}ms",
)

_BYTES: Final = MappingProxyType(
    {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
)


def show_size(count: int) -> str:
    for unit in ("GiB", "MiB", "KiB", "GB", "MB", "kB"):
        if count >= _BYTES[unit] and not count % _BYTES[unit]:
            return f"{count // _BYTES[unit]}{unit}"
    return f"{count}B"


def size(low: int = 1) -> ValueKind:
    """A number of bytes."""

    def read(given: object) -> int:
        amount = _quantity(given, _BYTES, 1.0)
        if amount != int(amount) or amount < low:
            raise ValueError
        return int(amount)

    return ValueKind(f'a size of at least {show_size(low)}: bytes, or as in "200kB", "64MiB"', "SIZE", read, show_size)


def _path(given: object) -> Path:
    return given if isinstance(given, Path) else Path(_filled(given))


def path(what: str = "a path") -> ValueKind:
    return ValueKind(what, "DIR" if "directory" in what else "FILE", _path)


def _sequence(given: object, separator: str) -> list[object]:
    if isinstance(given, str):
        return [part for part in given.split(separator) if part.strip()]
    if isinstance(given, list | tuple):
        return list(given)
    raise ValueError


def _paths(what: str, metavar: str) -> ValueKind:
    return ValueKind(
        f"{what}: a list, or text separated as in PATH",
        metavar,
        lambda given: tuple(_path(item) for item in _sequence(given, os.pathsep)),
        lambda value: os.pathsep.join(map(str, value)),
        several=True,
    )


PATHS: Final = _paths("directories", "DIR")
FILES: Final = _paths("files", "FILE")


def _tree(given: object) -> Mapping[str, object]:
    if isinstance(given, str):
        import json  # a table in a variable is rare

        given = json.loads(given)
    if not isinstance(given, Mapping):
        raise ValueError
    return given


TREE: Final = ValueKind("a table, or the same as JSON text", "JSON", _tree, lambda value: ", ".join(value))


def _words(given: object) -> tuple[str, ...]:
    found = (word for item in _sequence(given, ",") for word in _text(item).split(","))
    return tuple(dict.fromkeys(word.strip() for word in found if word.strip()))


WORDS: Final = ValueKind("a list, or text separated by commas", "A,B", _words, ",".join, several=True)


def _pairs(given: object) -> Mapping[str, str]:
    if isinstance(given, Mapping):
        pairs = [(_filled(name), _filled(value)) for name, value in given.items()]
    else:
        split = [word.partition("=") for word in _words(given)]
        if not all(equals for _, equals, _ in split):
            raise ValueError
        pairs = [(_filled(name), _filled(value)) for name, _, value in split]
    return MappingProxyType(dict(pairs))


MAX_CHAIN: Final = 4


def _chain(given: object) -> str:
    """A list becomes one text, which is read everywhere."""
    parts = [_filled(part) for part in (given if isinstance(given, list | tuple) else _text(given).split("|"))]
    if not 0 < len(parts) <= MAX_CHAIN:
        raise ValueError
    return "|".join(parts)


def _chains(given: object) -> Mapping[str, str]:
    pairs = given if isinstance(given, Mapping) else _pairs(given)
    return MappingProxyType({_filled(name): _chain(to) for name, to in pairs.items()})


PAIRS: Final = ValueKind(
    "a table of text to text, or as in a=b,c=d",
    "A=B",
    _pairs,
    lambda value: ",".join(f"{name}={target}" for name, target in value.items()),
    several=True,
)


ALIASES: Final = ValueKind(
    f"a table of names to a model or a list of up to {MAX_CHAIN}, or as in a=b,c=d|e",
    "A=B",
    _chains,
    PAIRS.show,
    several=True,
)


def _url(given: object) -> str:
    text = _filled(given).rstrip("/")
    parts = urlsplit(text)  # a bad port or address raises ValueError by itself
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    _ = parts.port
    return text


URL: Final = ValueKind("an http:// or https:// address", "URL", _url)
URL_OR_NONE: Final = ValueKind(
    "an http:// or https:// address, or nothing", "URL", lambda given: _url(given) if _text(given) else ""
)


def _redis_url(given: object) -> str:
    text = _filled(given)
    parts = urlsplit(text)
    if parts.scheme not in ("redis", "rediss", "unix") or parts.fragment:
        raise ValueError
    if not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise ValueError
    _ = parts.port
    return text


def show_redis_url(url: str) -> str:
    """The URL without its password."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return parts._replace(
        netloc=f"{user.partition(':')[0]}:...@{host}" if at and ":" in user else parts.netloc
    ).geturl()


REDIS_URL: Final = ValueKind("a redis://, rediss:// or unix:// address", "URL", _redis_url, show_redis_url)


def _name(given: object) -> str:
    text = _text(given)
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
        raise ValueError
    return text


NAME: Final = ValueKind("up to 64 letters, digits, dots, dashes and underscores", "NAME", _name)
