"""Reads and shows values of settings: switches, numbers with bounds, durations (`15m`), sizes (`64MiB`), paths, lists,
tables, URLs.

A `ValueKind` reads one object: the text of a flag or variable, a TOML value, or a value that was already read (reading
is idempotent). It knows no names, files or environment. It states what it expected; a `Setting` writes the message.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct


class ValueKind(Struct, frozen=True):
    expected: str
    """Completes the sentence "expected ..."."""
    metavar: str
    read: Callable[[object], object]
    """Raises ValueError if the object is not valid."""
    show: Callable[[Any], str] = str
    choices: tuple[str, ...] = ()
    several: bool = False
    """The flag may be repeated; `read` takes the list."""
    switch: bool = False
    """The flag takes no value: `--name` or `--no-name`."""


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
    """Converts a number with an optional unit to the base unit; a number without a unit counts in `plain`."""
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
    """Joins a list into the text form, which `read` accepts as well."""
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
    parts = urlsplit(text)  # a bad port or address raises ValueError
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


# ---- one row of the table

# One row of the settings table: flag and variable names, secrets (never shown, no flag), the error for an invalid
# value, and the nearest name for a mistyped setting or word ("did you mean").

PREFIX: Final = "CARETWAY_"
ADVANCED: Final = "advanced"
"""The section for rarely needed settings, and their table in the TOML file."""


@dataclass(slots=True, eq=False)
class ConfigError(Exception):
    """An invalid setting. Its text is one line: the source, the setting, what was expected."""

    key: str
    origin: str
    problem: str

    def __post_init__(self) -> None:
        Exception.__init__(self, str(self))

    def __str__(self) -> str:
        return f"{self.origin}: {self.problem}"


class Setting(Struct, frozen=True):
    name: str
    kind: ValueKind
    help: str
    group: str
    make_default: Callable[[], object]
    default_text: str = ""
    """What to show when the default is computed or empty."""
    extra_env: tuple[str, ...] = ()
    """Variables that are read after the one with our prefix."""
    prefixed_env: bool = True
    """If False, only `extra_env` is read, because the name with our prefix has another meaning."""
    secret: bool = False
    """The value is never shown, and has no flag: all users of the machine can read command lines."""
    exists: Literal["", "file", "directory"] = ""
    """What must exist at the path when the gateway starts."""
    advanced: bool = False
    """The setting is rarely needed: `--help` omits it, and the reference lists it last."""

    @property
    def default(self) -> object:
        return self.make_default()

    @property
    def section(self) -> str:
        """The heading under which the setting is listed."""
        return ADVANCED if self.advanced else self.group

    @property
    def flag(self) -> str | None:
        return None if self.secret else "--" + self.name.replace("_", "-")

    @property
    def env_names(self) -> tuple[str, ...]:
        return (PREFIX + self.name.upper(), *self.extra_env) if self.prefixed_env else self.extra_env

    def show(self, value: object) -> str:
        """The value as text for people; for a secret only whether it is set."""
        if self.secret:
            return "not set" if value is None else "set"
        return "" if value is None else self.kind.show(value)

    def shown_default(self) -> str:
        return self.default_text or self.show(self.default) or "none"

    def read(self, given: object, origin: str) -> object:
        """Reads the setting's value. Raises ConfigError if the value is invalid."""
        try:
            return self.kind.read(given)
        except (ValueError, OverflowError):
            shown = "this value" if self.secret else _quoted(given)
            near = nearest(given.lower(), self.kind.choices) if isinstance(given, str) else ""
            problem = f"{self.name}: {shown} is not valid; expected {self.kind.expected}{near}"
            raise ConfigError(self.name, origin, problem) from None  # the cause would repeat a secret


def declared(
    group: str,
    default: object,
    help_text: str,
    kind: ValueKind | None = None,
    *,
    secret: bool = False,
    hidden: bool = False,
    **more: Any,
) -> Any:
    """A dataclass field that is a setting. A callable default makes the value. Without `kind` the field's type decides:
    a switch or a choice. `hidden`: not in the repr, like a secret. `more` has further fields of `Setting`."""
    make = default if callable(default) else lambda: default
    row = partial(Setting, help=help_text, group=group, make_default=make, secret=secret, **more)
    return field(default_factory=make, repr=not (secret or hidden), metadata={"setting": row, "kind": kind})


def rows(declarations: Iterable[Field[Any]]) -> tuple[Setting, ...]:
    """The table, in the order of the fields; fields that are not settings are left out."""
    return tuple(
        item.metadata["setting"](name=item.name, kind=item.metadata["kind"] or _kind_of(item.type))
        for item in declarations
        if "setting" in item.metadata
    )


def _kind_of(type_: object) -> ValueKind:
    return SWITCH if type_ is bool else choice(get_args(type_))


_FIXED: Final = "it is fixed now; delete it"
_QUIRKS: Final = {
    "system_delivery": "system",
    "sdk_system_delivery": "sdk_system",
    "history_carrier": "history",
    "replay_action": "replay",
    "replay_tool_names": "names",
    "agent_model_shape": "model",
    "agent_check_limits": "limits",
    "sibling_quiet": "sibling_quiet",
    "sibling_cap": "sibling_cap",
    "gather": "gather",
    "agent_client_type": "client_type",
    "agent_timezone": "time_zone",
    "agent_checksum": "checksum",
    "cli_tools": "cli_tools",
}
_NOW_FIXED: Final = (
    *("trace_max_bytes", "fetch_images_timeout", "fetch_images_bytes", "sdk_start_timeout", "sdk_memory_limit"),
    *("sdk_idle_timeout", "mcp_retry_pause", "mcp_max_tools", "mcp_result_bytes", "cli_exit_grace", "cli_idle_timeout"),
    *("cli_max_line_bytes", "client_heartbeat", "exec_heartbeat", "max_frame_bytes", "max_header_bytes"),
    *("max_headers", "max_json_values", "max_json_depth", "max_buffered_bytes", "max_messages", "max_text_bytes"),
    *("max_answer_bytes", "header_timeout", "body_idle_timeout", "body_timeout", "send_timeout", "store_max_bytes"),
    *("ledger_max_bytes", "local_shell_timeout", "local_output_bytes", "tool_progress_timeout"),
)
REMOVED: Final = {
    "update_check": "the gateway no longer looks for newer versions; delete it",
    "update_index": "the gateway no longer looks for newer versions; delete it",
    "login_url": "the login follows agent_url and api_url; delete it",
    "cli_aliases": "write them into model_aliases",
    "cli_force": 'write cli_mode = "force"',
    **{old: f"it is `{new}` in agent_quirks now" for old, new in _QUIRKS.items()},
    **dict.fromkeys(_NOW_FIXED, _FIXED),
}
"""Settings of earlier releases, and what replaces them."""


def hint(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """The hint for an unknown setting, variable or flag: its replacement, or the nearest known name."""
    removed = REMOVED.get(word.removeprefix("--").removeprefix("no-").replace("-", "_").lower())
    return f": {removed}" if removed else nearest(word, candidates, prefix)


def nearest(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """The end of a message: the most similar candidate, or an empty text. `prefix` is shown before the candidate."""
    from difflib import get_close_matches  # imported only after a mistake

    matches = get_close_matches(word, list(candidates), n=1)
    return f'; did you mean "{prefix}{matches[0]}"?' if matches else ""


def _quoted(given: object) -> str:
    text = f'"{given}"' if isinstance(given, str) else str(given)
    return text if len(text) <= 80 else text[:77] + "..."
