"""The words that this room shares: which gateway and models a client is pointed at, how one is started, which of its
files are written.
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
"""What clients send where the gateway asks for no key: they want something."""
KEY_VARIABLE: Final = "CARETWAY_API_KEY"
"""Where files that are written once look for the gateway's key: no file of a client gets to hold it."""
AUTOMATIC: Final = ("default", "auto", "sim-auto")
"""Names under which an account lists the automatic choice."""
FILES: Final = "{files}"
"""Stands for the directory with `LaunchPlan.files`, in arguments and variables."""


class OfferedModel(Struct, frozen=True):
    """A model of the account, as clients are told of it."""

    id: str
    name: str = ""
    window: int | None = None
    """None: unknown, and then nothing is made up."""
    images: bool = False
    reasoning: bool = False


def with_automatic_window(models: Iterable[OfferedModel]) -> tuple[OfferedModel, ...]:
    """The automatic choice may take any model of the list, so it is sure to have the smallest window of them. Without
    a number some clients warn, and none knows when to compact."""
    listed = tuple(models)
    least = min((model.window for model in listed if model.window), default=None)
    return tuple(
        replace(model, window=least) if model.id in AUTOMATIC and model.window is None else model for model in listed
    )


class Target(Struct, frozen=True):
    """The gateway that a client is pointed at."""

    url: str
    """Its root, without /v1."""
    key: str
    models: tuple[OfferedModel, ...]
    model: str
    """The one that is used unless the user chooses another."""
    keyed: bool = False
    """The gateway requires a key."""

    @property
    def openai(self) -> str:
        return self.url + "/v1"

    @property
    def listed(self) -> tuple[OfferedModel, ...]:
        """The models, with the chosen one even if the list does not name it."""
        known = any(model.id == self.model for model in self.models)
        return self.models if known else (OfferedModel(self.model), *self.models)

    @property
    def window(self) -> int | None:
        return next((model.window for model in self.models if model.id == self.model), None)


class LaunchPlan(Struct, frozen=True):
    """How a client is started, for one process. Values may hold `{files}`."""

    arguments: tuple[str, ...] = ()
    """Before those of the user."""
    environment: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables that do not replace the user's own."""
    without: tuple[str, ...] = ()
    """Variables of the user that would lead elsewhere."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> text, for files that live as long as the process."""
    mirror: str = ""
    """A directory of the client, seen from home: its entries are linked into `{files}`, except those in `files`."""


class Surroundings(Struct, frozen=True):
    """What decides where a client keeps its files."""

    home: Path
    environment: Mapping[str, str]
    exists: Callable[[Path], bool]
    platform: str = "linux"

    def config_home(self) -> Path:
        named = Path(self.environment.get("XDG_CONFIG_HOME", ""))
        return named if named.is_absolute() else self.home / ".config"

    def first(self, candidates: Sequence[Path]) -> Path:
        """The first that exists, else the last: clients that read several names write the last one."""
        return next((path for path in candidates if self.exists(path)), candidates[-1])


class Entry(Struct, frozen=True):
    """One of our values in a client's file, at this path; all others are the user's."""

    path: tuple[str, ...]
    value: Any


class FilePlan(Struct, frozen=True):
    """A client's file, and our part of it."""

    path: Path
    kind: str
    """A row of `edits.KINDS`."""
    entries: tuple[Entry, ...] = ()
    text: str = ""
    """The whole file, where it is ours alone (kind `whole`)."""
    mark: str = ""
    """How our items begin in a list (kind `yaml-list`)."""
