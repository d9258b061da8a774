"""`caretway config`: every setting, its value, and where that came from. Also writes docs/settings.md."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ..config import GROUPS, SETTINGS, Setting, Settings
from .flags import add_setting_flags, settings_from
from .process import remark, say
from .terminal import Style, columns, style_for

NAME: Final = "config"
SUMMARY: Final = "show every setting and where its value came from"
DESCRIPTION: Final = (
    "Show every setting with its value and where that came from: default, file, environment or flag.\n"
    "Takes the flags of `caretway serve`, so a command line can be checked before it is used."
)
EXAMPLES: Final = """\
examples:
  caretway config
  PORT=8080 caretway config --json
  caretway config --markdown > docs/settings.md
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print the reference of all settings, without values")
    add_setting_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        say([reference()])
        return 0
    settings, remarks = settings_from(arguments)
    remark(remarks)
    say([as_json(settings)] if arguments.json else as_table(settings, style_for(sys.stdout)))
    return 0


def as_table(settings: Settings, style: Style) -> list[str]:
    rows = [(setting.name, _shown(setting, settings), settings.origin(setting.name)) for setting in SETTINGS]
    return columns(("setting", "value", "from"), rows, style)


def _shown(setting: Setting, settings: Settings) -> str:
    return setting.show(getattr(settings, setting.name)) or f"({setting.shown_default()})"


def as_json(settings: Settings) -> str:
    told = {
        setting.name: {"value": _plain(setting, getattr(settings, setting.name)), "from": settings.origin(setting.name)}
        for setting in SETTINGS
    }
    return json.dumps(told, indent=2)


def _plain(setting: Setting, value: object) -> object:
    """The value in JSON's types; of a secret only whether there is one."""
    if setting.secret:
        return setting.show(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


_PREFACE: Final = """\
# Settings

<!-- Made by `caretway config --markdown`. Edit the table in src/caretway/config/settings.py instead. -->

Every setting has the same name everywhere: `agent_url` is the flag `--agent-url`, the variable `CARETWAY_AGENT_URL` and
the TOML key `agent_url`. Flags win over variables, variables over the file, the file over the defaults. An empty
variable counts as not set. `caretway config` shows what is in effect and where each value came from.

The file is the one named by `--config` or `CARETWAY_CONFIG`, otherwise `caretway/config.toml` in the user's config
directory if it exists (`$XDG_CONFIG_HOME` or `~/.config`; `~/Library/Application Support` on macOS; `%APPDATA%` on
Windows). Its keys are flat; relative paths in it are seen from the file:

```toml
port = 8080
backend = "agent"
parked_timeout = "30m"
workspaces = ["~/src/one", "~/src/two"]

[model_aliases]
fast = "some-model-id"
```

Durations are seconds or have a unit (`150ms`, `90s`, `15m`, `2h`, `7d`); sizes are bytes or have one (`200kB`,
`64MiB`). Secrets are no flags, because command lines can be read by other users of the machine.

Two keys, two doors: `CURSOR_API_KEY` (`api_key`) is your Cursor key, which the gateway shows to Cursor.
`CARETWAY_API_KEY` (`gateway_key`, or keys in the file of `--api-key-file`) is the gateway's own key, which clients show
to the gateway."""


def reference() -> str:
    """docs/settings.md: the same on every machine."""
    parts = [_PREFACE]
    for title in GROUPS:
        members = [setting for setting in SETTINGS if setting.group == title]
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n" + "\n".join(_markdown_table(members)))
    return "\n\n".join(parts)


def _markdown_table(members: Iterable[Setting]) -> list[str]:
    lines = ["| setting | default | values | also read from | what it does |", "|---|---|---|---|---|"]
    for setting in members:
        default = setting.shown_default()
        cells = (
            f"`{setting.name}`" + (" (secret)" if setting.secret else ""),
            default if setting.default_text or default in ("none", "not set") else f"`{default}`",
            " ".join(f"`{value}`" for value in setting.kind.choices) or _brief(setting),
            " ".join(f"`{name}`" for name in setting.extra_env),
            setting.help,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _brief(setting: Setting) -> str:
    """What is expected, without the units that the preface explains."""
    what, colon, _units = setting.kind.expected.partition(": ")
    return what if colon and what.startswith(("a duration", "a size")) else setting.kind.expected
