"""One row of the settings table: its flag and variable names, secrets (never shown, no flag), the error for a value
that is not valid, and the nearest name for a mistyped setting or word ("did you mean").

Knows names and wording, not which settings exist (settings.py) nor how values are written (kinds.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

from .kinds import ValueKind

PREFIX: Final = "CARETWAY_"
ADVANCED: Final = "advanced"
"""The section for settings that few people need, and their table in the TOML file."""


@dataclass(slots=True, eq=False)
class ConfigError(Exception):
    """A setting that is not valid. Its text is one line: where it came from, which one, what was expected."""

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
    """More variables to read, after the one with our prefix."""
    prefixed_env: bool = True
    """False: only `extra_env` is read, because the name with our prefix means something else."""
    secret: bool = False
    """Never shown, and has no flag: all users of the machine can read command lines."""
    exists: Literal["", "file", "directory"] = ""
    """What the path must be when the gateway starts."""
    advanced: bool = False
    """Few people need it: `--help` does not show it, and the reference lists it last."""

    @property
    def default(self) -> object:
        return self.make_default()

    @property
    def section(self) -> str:
        """The heading that it is listed under."""
        return ADVANCED if self.advanced else self.group

    @property
    def flag(self) -> str | None:
        return None if self.secret else "--" + self.name.replace("_", "-")

    @property
    def env_names(self) -> tuple[str, ...]:
        return (PREFIX + self.name.upper(), *self.extra_env) if self.prefixed_env else self.extra_env

    def show(self, value: object) -> str:
        """The value as text for people. Of a secret, only whether it is set."""
        if self.secret:
            return "not set" if value is None else "set"
        return "" if value is None else self.kind.show(value)

    def shown_default(self) -> str:
        return self.default_text or self.show(self.default) or "none"

    def read(self, given: object, origin: str) -> object:
        """The setting's value. Raises ConfigError when what was given is not valid."""
        try:
            return self.kind.read(given)
        except (ValueError, OverflowError):
            shown = "this value" if self.secret else _quoted(given)
            near = nearest(given.lower(), self.kind.choices) if isinstance(given, str) else ""
            problem = f"{self.name}: {shown} is not valid; expected {self.kind.expected}{near}"
            raise ConfigError(self.name, origin, problem) from None  # the cause would repeat a secret


def declared(group: str, kind: ValueKind, help_text: str, **more: Any) -> Mapping[str, object]:
    """The metadata of a dataclass field that is a setting; `more` are further fields of `Setting`."""
    return {"setting": partial(Setting, kind=kind, help=help_text, group=group, **more)}


def rows(declarations: Iterable[Field[Any]]) -> tuple[Setting, ...]:
    """The table, in the order of the fields; fields that are not settings are left out."""
    return tuple(
        item.metadata["setting"](name=item.name, make_default=_maker(item))
        for item in declarations
        if "setting" in item.metadata
    )


def _maker(item: Field[Any]) -> Callable[[], object]:
    if item.default_factory is not MISSING:
        return item.default_factory
    return lambda: item.default


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
    "agent_client_type": "client_type",
    "agent_timezone": "time_zone",
    "agent_checksum": "checksum",
    "cli_tools": "cli_tools",
}
_NOW_FIXED: Final = (
    *("trace_max_bytes", "fetch_images_timeout", "fetch_images_bytes", "sdk_start_timeout", "sdk_memory_limit"),
    *("sdk_idle_timeout", "mcp_retry_pause", "mcp_max_tools", "mcp_result_bytes", "cli_exit_grace", "cli_idle_timeout"),
    *("cli_max_line_bytes", "gather", "client_heartbeat", "exec_heartbeat", "max_frame_bytes", "max_header_bytes"),
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
    """For the unknown name of a setting, a variable or a flag: what replaces it, or the nearest known name."""
    removed = REMOVED.get(word.removeprefix("--").removeprefix("no-").replace("-", "_").lower())
    return f": {removed}" if removed else nearest(word, candidates, prefix)


def nearest(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """The end of a message: the most similar candidate, if any. `prefix` is shown before it."""
    from difflib import get_close_matches  # only a mistake pays for this import

    matches = get_close_matches(word, list(candidates), n=1)
    return f'; did you mean "{prefix}{matches[0]}"?' if matches else ""


def _quoted(given: object) -> str:
    text = f'"{given}"' if isinstance(given, str) else str(given)
    return text if len(text) <= 80 else text[:77] + "..."
