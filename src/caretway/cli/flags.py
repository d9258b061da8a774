"""The settings table as command line flags, and back: what was given, by setting name.

Values stay text here. The config room reads them, so that a mistake is described the same way wherever it was made.
"""

import argparse
from collections.abc import Iterable
from functools import partial
from typing import Final

from ..config import CURSOR, GROUPS, SETTINGS, Setting, Settings, load_from_process, unknown_variables

_DEST: Final = "setting "  # with a space: no other argument can have such a name

HelpFormatter = partial(argparse.RawDescriptionHelpFormatter, max_help_position=34)

REACHING_CURSOR: Final = tuple(
    setting for setting in SETTINGS if setting.group == CURSOR or setting.name in ("config", "data_dir", "workspace")
)
"""What commands need that talk to Cursor and serve nothing."""


def add_setting_flags(parser: argparse.ArgumentParser, settings: Iterable[Setting] = SETTINGS) -> None:
    """One argument group for each group of settings."""
    wanted = tuple(settings)
    for title in GROUPS:
        members = [setting for setting in wanted if setting.group == title]
        if members:
            group = parser.add_argument_group(title, _about_secrets(members))
            for setting in members:
                _add(group, setting)


def _about_secrets(members: Iterable[Setting]) -> str | None:
    told = [f"{setting.env_names[-1]} (variable, no flag): {setting.help}" for setting in members if setting.secret]
    return "\n".join(told) or None


def _note(setting: Setting) -> str:
    return f"[default: {setting.shown_default()}; env: {', '.join(setting.env_names)}]"


def _add(group: argparse._ArgumentGroup, setting: Setting) -> None:
    if setting.flag is None:
        return
    text = f"{setting.help} {_note(setting)}".replace("%", "%%")
    dest = _DEST + setting.name
    if setting.kind.switch:
        group.add_argument(setting.flag, dest=dest, default=None, help=text, action=argparse.BooleanOptionalAction)
    elif setting.kind.several:
        group.add_argument(
            setting.flag,
            dest=dest,
            metavar=setting.kind.metavar,
            action="append",
            help=f"{text} May be given several times.",
        )
    else:
        group.add_argument(setting.flag, dest=dest, metavar=setting.kind.metavar, help=text)


def given(arguments: argparse.Namespace) -> dict[str, object]:
    """Setting name -> what its flag was given; flags that were left out are not in it."""
    return {
        name.removeprefix(_DEST): value
        for name, value in vars(arguments).items()
        if name.startswith(_DEST) and value is not None
    }


def settings_from(arguments: argparse.Namespace) -> tuple[Settings, tuple[str, ...]]:
    """The settings of this run, and remarks about variables that look like a mistake."""
    return load_from_process(given(arguments)), unknown_variables()
