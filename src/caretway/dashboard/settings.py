"""Settings in the dashboard. It changes only aliases and budgets, immediately and in the settings file, and never a
setting that a flag or a variable sets.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from ..accounts.catalogue import ModelCatalogue
from ..config import SETTINGS, ConfigError, Settings, settings_file
from ..config.settings import BY_NAME
from ..core.errors import ErrorKind, GatewayError, bad_request
from ..storage.private_file import write_file
from ..usage.budget import BudgetScope, parse_budgets
from ..usage.charges import Budgets

CHANGEABLE: Final = ("model_aliases", "budgets")


class RunningSettings:
    """The settings of the running gateway; a few can be changed."""

    def __init__(self, settings: Settings, models: ModelCatalogue, budgets: Budgets) -> None:
        self.models = models
        """The newest sign-in's models, whose aliases are changed."""
        self._settings = settings
        self._budgets = budgets
        self._changed: dict[str, tuple[object, str]] = {}
        """Changed settings -> (value, origin)."""
        self._writing = asyncio.Lock()

    def file(self) -> Path:
        return self._settings.config or settings_file({})

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for one in SETTINGS:
            value, origin = getattr(self._settings, one.name), self._settings.origin(one.name)
            value, origin = self._changed.get(one.name, (value, origin))
            changeable = one.name in CHANGEABLE and origin.partition(" ")[0] not in ("flag", "environment")
            rows.append(
                {
                    "name": one.name,
                    "group": one.group,
                    "value": one.show(value),
                    "default": one.shown_default(),
                    "origin": origin,
                    "help": one.help,
                    "secret": one.secret,
                    "advanced": one.advanced,
                    "counts": "now" if one.name in CHANGEABLE else "restart",
                    "changeable": changeable,
                }
            )
        return rows

    async def change(self, name: str, text: str | None) -> None:
        """Writes the setting to the file and applies it; `None` restores the default. Raises GatewayError."""
        from ..config.editing import NotEditable, file_value, with_setting

        setting = BY_NAME.get(name)
        if setting is None:
            raise GatewayError(
                ErrorKind.NOT_FOUND, f"There is no setting {name[:80]!r}.", hint="See `caretway config`."
            )
        _check_changeable(name, self._settings.origin(name))
        try:
            value: Any = setting.default if text is None else setting.read(text, "the dashboard")
            budgets = parse_budgets(value, BudgetScope.EVERYBODY) if name == "budgets" else ()
            given = None if text is None else file_value(setting, text, Path.cwd())
        except (ConfigError, ValueError) as wrong:
            raise bad_request(str(wrong).rstrip(".") + ".", param="value") from wrong
        file = self.file()
        try:
            async with self._writing:
                before = file.read_text(encoding="utf-8") if file.exists() else ""
                written = with_setting(before, setting, given)
                if written != before:
                    await asyncio.to_thread(write_file, file, written, keep=True)
        except NotEditable as failure:
            raise _not_written(file, "it is written in a way that a program cannot change") from failure
        except OSError as failure:
            raise _not_written(file, failure.strerror or str(failure)) from failure
        except UnicodeError as failure:
            raise _not_written(file, "it is not UTF-8") from failure
        except ValueError as broken:
            raise _not_written(file, f"it is not TOML ({broken})") from broken
        if name == "budgets":
            self._budgets.change(budgets)
        else:
            await self.models.change_aliases(value)
        self._changed[name] = value, "default" if text is None else f"file {file}"


def _not_written(file: Path, why: str) -> GatewayError:
    return GatewayError(
        ErrorKind.IN_PROGRESS,
        f"{file} cannot be changed: {why}.",
        hint="Type: caretway config edit",
        code="file_not_changed",
        repeatable=False,
    )


def _check_changeable(name: str, origin: str) -> None:
    """Raises GatewayError if the setting cannot be changed."""
    if name not in CHANGEABLE:
        raise GatewayError(
            ErrorKind.BAD_REQUEST,
            f"{name} is not changed here.",
            hint=f"Type: caretway config set {name} VALUE, and start the gateway again.",
            code="not_changeable",
        )
    kind = origin.partition(" ")[0]
    if kind in ("flag", "environment"):
        raise GatewayError(
            ErrorKind.IN_PROGRESS,
            f"{name} is set by {origin.replace('environment', 'the variable')}, which wins over the file.",
            hint="Remove it there first, and start the gateway again.",
            code="set_elsewhere",
            repeatable=False,
        )
