"""Values shared by this room: the gateway and models for a client, how a client is started, which of its files are
written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

NAME: Final = "caretway"
"""The name of our providers, profiles and files in the clients' configurations."""
TITLE: Final = "Caretway"
NO_KEY: Final = "local"
"""The key that clients send if the gateway requires none, because they need some text."""
KEY_VARIABLE: Final = "CARETWAY_API_KEY"
"""The variable with the gateway's key for files written by `setup`: no client's file contains the key."""
AUTOMATIC: Final = ("default", "auto", "sim-auto")
"""Names of an account's automatic choice."""
FILES: Final = "{files}"
"""Stands for the directory of `LaunchPlan.files` in arguments and variables."""


class OfferedModel(Struct, frozen=True):
    """A model of the account as clients see it."""

    id: str
    name: str = ""
    window: int | None = None
    """The context window in tokens; None if unknown."""
    images: bool = False
    reasoning: bool = False


def with_automatic_window(models: Iterable[OfferedModel]) -> tuple[OfferedModel, ...]:
    """Gives the automatic choice the smallest window of the list, because it may use any model. Without a window some
    clients warn, and none knows when to compact."""
    listed = tuple(models)
    least = min((model.window for model in listed if model.window), default=None)
    return tuple(
        replace(model, window=least) if model.id in AUTOMATIC and model.window is None else model for model in listed
    )


class Target(Struct, frozen=True):
    """The gateway, key and models for a client."""

    url: str
    """The gateway's root, without /v1."""
    key: str
    models: tuple[OfferedModel, ...]
    model: str
    """The model that is used unless the user chooses another."""
    keyed: bool = False
    """The gateway requires a key."""

    @property
    def openai(self) -> str:
        return self.url + "/v1"

    @property
    def listed(self) -> tuple[OfferedModel, ...]:
        """The models, including the chosen one even if it is not listed."""
        known = any(model.id == self.model for model in self.models)
        return self.models if known else (OfferedModel(self.model), *self.models)

    @property
    def window(self) -> int | None:
        return next((model.window for model in self.models if model.id == self.model), None)


class LaunchPlan(Struct, frozen=True):
    """How to start a client for one process. Values may contain `{files}`."""

    arguments: tuple[str, ...] = ()
    """Arguments before those of the user."""
    environment: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables that do not override the user's."""
    without: tuple[str, ...] = ()
    """Variables of the user to remove, because they select another provider."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> text of files that are deleted with the process."""
    mirror: str = ""
    """A directory of the client whose entries are linked into `{files}`, except those in `files`."""


class Surroundings(Struct, frozen=True):
    """The facts that decide where a client keeps its files."""

    home: Path
    environment: Mapping[str, str]
    exists: Callable[[Path], bool]
    platform: str = "linux"

    def config_home(self) -> Path:
        named = Path(self.environment.get("XDG_CONFIG_HOME", ""))
        return named if named.is_absolute() else self.home / ".config"

    def folder(self, variable: str, below_home: str) -> Path:
        """The directory that the variable names, else one in the home directory."""
        named = self.environment.get(variable)
        return Path(named) if named else self.home / below_home

    def first(self, candidates: Sequence[Path]) -> Path:
        """The first existing path, else the last: clients that read several names write the last one."""
        return next((path for path in candidates if self.exists(path)), candidates[-1])


class Entry(Struct, frozen=True):
    """One of our values in a client's file, with its path. All other values are the user's."""

    path: tuple[str, ...]
    value: Any


class FilePlan(Struct, frozen=True):
    """A client's file and our part of it."""

    path: Path
    kind: str
    """A row of `edits.KINDS`."""
    entries: tuple[Entry, ...] = ()
    text: str = ""
    """The text of a file that is entirely ours (kind `whole`)."""
    mark: str = ""
    """The beginning of our items in a list (kind `yaml-list`)."""
