"""Merges defaults < TOML file < environment < flags and records each value's source. Handles empty variables, `~`,
paths relative to the file, `[advanced]`, paths that must exist, and unknown CARETWAY_ variables.

`load` gets everything but the file's text as arguments. `load_from_process` and the functions after it read os.environ,
also for NO_COLOR and to detect a desktop.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from .kinds import ADVANCED, PREFIX, ConfigError, Setting, hint
from .places import data_directory, home_directory, user_config_file
from .settings import BY_NAME, SETTINGS, Settings, setting_named


def load(argv_values: Mapping[str, object], environ: Mapping[str, str], config_file: Path | None = None) -> Settings:
    """Merges the sources. `argv_values`: setting name -> the flag's value, None if the flag was not given.
    `config_file` is read unless --config or CARETWAY_CONFIG names another file, which must exist."""
    for name in argv_values:
        setting_named(name, "flags")
    home = home_directory(environ)
    file, file_origin = config_file, "default"
    for origin, given in _given(BY_NAME["config"], argv_values, environ):
        file, file_origin = _anchored(BY_NAME["config"].read(given, origin), Path(), home), origin
        break
    table: Mapping[str, object] = {} if file is None else _read_toml(file, file_origin)
    values: dict[str, Any] = {"config": file, "data_dir": data_directory(environ)}
    origins = dict.fromkeys(BY_NAME, "default") | {"config": file_origin}
    for name, setting in BY_NAME.items():
        if name == "config":
            continue
        for origin, given in _given(setting, argv_values, environ):
            values[name], origins[name] = _anchored(setting.read(given, origin), Path(), home), origin
            break
        else:
            if file is not None and name in table:
                origins[name] = f"file {file}"
                # A relative path in the file is relative to the file, wherever the gateway is started.
                values[name] = _anchored(setting.read(table[name], origins[name]), file.parent, home)
    return Settings(**values, origins=MappingProxyType(origins))


def _given(
    setting: Setting, argv_values: Mapping[str, object], environ: Mapping[str, str]
) -> Iterator[tuple[str, object]]:
    """The values of a setting from flags and environment, strongest first. Empty variables do not count."""
    given = argv_values.get(setting.name)
    if given is not None:
        flag = setting.flag or "--" + setting.name
        yield "flag " + (flag.replace("--", "--no-", 1) if given is False else flag), given
    for name in setting.env_names:
        if environ.get(name, "").strip():
            yield f"environment {name}", environ[name]


def _anchored(value: Any, base: Path, home: Path) -> Any:
    """Expands `~` to the home directory and makes relative paths start at `base`. Other values stay unchanged."""
    if isinstance(value, tuple):
        return tuple(_anchored(item, base, home) for item in value)
    if not isinstance(value, Path):
        return value
    return home.joinpath(*value.parts[1:]) if value.parts[:1] == ("~",) else base / value


def _read_toml(file: Path, origin: str) -> Mapping[str, object]:
    import tomllib  # needed only for a file

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError("config", origin, f"cannot read {file}: {failure.strerror or failure}") from failure
    except (ValueError, RecursionError) as failure:  # not TOML, or not UTF-8
        raise ConfigError("config", f"file {file}", f"this is not TOML: {failure}") from failure
    table = _flat(table, f"file {file}")
    if "config" in table:
        raise ConfigError("config", f"file {file}", "a file cannot name another one; use --config or CARETWAY_CONFIG")
    return table


def _flat(table: dict[str, object], origin: str) -> dict[str, object]:
    """The file's values by setting name. `[advanced]` may hold only advanced settings. For compatibility they may be
    outside it, but not in both places."""
    inner = table.pop(ADVANCED, {})
    if not isinstance(inner, dict):
        raise ConfigError(ADVANCED, origin, f"{ADVANCED} is a table of settings: write [{ADVANCED}]")
    for name in (*table, *inner):
        setting_named(name, origin)
    for name in inner:
        if not BY_NAME[name].advanced:
            raise ConfigError(name, origin, f"{name} is not an advanced setting; move it above [{ADVANCED}]")
        if name in table:
            raise ConfigError(name, origin, f"{name} is set twice, inside and outside of [{ADVANCED}]; keep one")
    return table | inner


def load_from_process(argv_values: Mapping[str, object]) -> Settings:
    """The settings of this process from its environment and the user's file; paths are checked on the disk."""
    usual = user_config_file()
    settings = load(argv_values, os.environ, usual if usual.is_file() else None)
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        for place in value if isinstance(value, tuple) else (value,):
            if setting.exists and place is not None and not _is_there(place, setting.exists):
                problem = f"{setting.name}: {place} does not exist or is not a {setting.exists}"
                raise ConfigError(setting.name, settings.origin(setting.name), problem)
    return settings


def _is_there(place: Path, what: str) -> bool:
    return place.is_file() if what == "file" else place.is_dir()


def unknown_variables(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """A warning for each variable with our prefix that is no setting: probably a typo."""
    names = [name.removeprefix(PREFIX) for setting in SETTINGS for name in setting.env_names if name.startswith(PREFIX)]
    words = [name.removeprefix(PREFIX) for name in sorted(environ) if name.startswith(PREFIX)]
    return tuple(f"{PREFIX}{word} is not a setting{hint(word, names, PREFIX)}" for word in words if word not in names)


def wants_colour(is_tty: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to use colour: on a terminal, unless the user disabled it (https://no-color.org)."""
    return is_tty and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def settings_file(argv_values: Mapping[str, object]) -> Path:
    """The file that this process reads, or would read if it existed. The content is not checked."""
    for origin, given in _given(BY_NAME["config"], argv_values, os.environ):
        return Path(_anchored(BY_NAME["config"].read(given, origin), Path(), home_directory()))
    return user_config_file()


def editor_command() -> list[str]:
    """The user's editor with its flags."""
    from shlex import split

    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    return split(named) or ["vi"]


def take_notify_socket() -> str:
    """The service manager's socket (sd_notify) or an empty text. Hides the variable from child processes."""
    return os.environ.pop("NOTIFY_SOCKET", "")


def own_variables(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The variables meant only for the gateway, including secrets, which programs that run a model's commands must not
    get. Paths of files are not secret, and a `caretway` started below needs them."""
    secret = {name for setting in SETTINGS if setting.secret for name in setting.env_names} | {"CURSOR_AUTH_TOKEN"}
    places = {name for place in ("config", "data_dir") for name in BY_NAME[place].env_names}
    return tuple(name for name in sorted(environ) if name in secret or (name.startswith(PREFIX) and name not in places))


def process_environment() -> dict[str, str]:
    """A copy of this process's environment, for the programs that it starts."""
    return dict(os.environ)


def has_desktop(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether a browser opened here is visible to the user: not over ssh, and not without a display."""
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    return platform == "darwin" or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


# ---- telemetry

# Whether traces and metrics go to an OpenTelemetry collector, by the standard `OTEL_` variables: which signals, with or
# without content, and unsupported requests. The OpenTelemetry SDK itself reads the other variables.

SPOKEN: Final = "http/protobuf"
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_WITH_CONTENT: Final = frozenset({"true", "span_only", "span_and_event"})


class TelemetryPlan(Struct, frozen=True):
    traces: bool = False
    metrics: bool = False
    content: bool = False
    """Export prompts and answers, too."""
    problems: tuple[str, ...] = ()
    """Requests that are not fulfilled, and the remedies."""

    @property
    def wanted(self) -> bool:
        return self.traces or self.metrics


def telemetry_plan(environ: Mapping[str, str] = os.environ) -> TelemetryPlan:
    if _variable(environ, "OTEL_SDK_DISABLED") == "true":
        return TelemetryPlan()
    problems = []
    wanted = {}
    for signal in ("TRACES", "METRICS"):
        wanted[signal], problem = _signal(environ, signal)
        if problem and problem not in problems:
            problems.append(problem)
    content = _variable(environ, _CONTENT) in _WITH_CONTENT
    return TelemetryPlan(wanted["TRACES"], wanted["METRICS"], content and wanted["TRACES"], tuple(problems))


def _signal(environ: Mapping[str, str], signal: str) -> tuple[bool, str]:
    """Whether the signal is sent, or why not although it was requested."""
    exporter = _variable(environ, f"OTEL_{signal}_EXPORTER")
    chosen = {word.strip() for word in exporter.split(",")} - {""}
    if chosen and "otlp" not in chosen:
        if chosen == {"none"}:
            return False, ""
        return False, f"OTEL_{signal}_EXPORTER={exporter} is not known here; set it to otlp or none."
    named = any(_variable(environ, f"OTEL_EXPORTER_OTLP_{which}ENDPOINT") for which in ("", f"{signal}_"))
    if not named and not chosen:
        return False, ""
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := _variable(environ, name):
            problem = f"{name}={protocol} is not spoken here; set it to {SPOKEN}, and the endpoint to that port (4318)."
            return (True, "") if protocol == SPOKEN else (False, problem)
    return True, ""


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()
