"""`caretway config`: shows the settings with values and sources (a secret only as set or not), as a table, JSON or the
Markdown of docs/settings.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from getpass import getpass
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import asdict

from ..config import (
    ADVANCED,
    GROUPS,
    SETTINGS,
    ConfigError,
    Setting,
    Settings,
    editor_command,
    load_from_process,
    settings_file,
)
from ..config.editing import NotEditable, file_value, with_setting
from ..config.quirks import QUIRKS, Quirks, shown_values
from ..config.settings import setting_named
from ..storage.private_file import write_file
from .flags import add_setting_flags, given, settings_from
from .process import CommandFailed, remark, say, typed_or_piped
from .terminal import GAP, Style, columns, folded, style_for, terminal_width

NAME: Final = "config"
SUMMARY: Final = "show or change the settings"
DESCRIPTION: Final = (
    "Show each setting, its value, and where the value came from: default, file,\n"
    "variable or flag. It takes all flags of `caretway serve`, so you can check a\n"
    "command line before you use it.\n"
    "  path              where the settings file is\n"
    "  get NAME          one value\n"
    "  set NAME VALUE    write it into the file; secrets are asked for\n"
    "  unset NAME        take it out of the file\n"
    "  edit              open the file in $EDITOR, then check it"
)
EXAMPLES: Final = """\
examples:
  caretway config --changed
  caretway config set port 8080
  caretway config --wide | grep timeout
  PORT=8080 caretway config --json
  caretway config --markdown > docs/settings.md
"""

Which = Literal["usual", "changed", "all"]
_LEAST_ROOM: Final = 20
"""The minimum width of a value, even on a narrow terminal."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "caretway config [path|get|set|unset|edit] [flags]"
    parser.add_argument("action", nargs="?", choices=ACTIONS, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="Print all settings as JSON.")
    form.add_argument("--wide", action="store_true", help="Print all settings, one long line each.")
    form.add_argument("--markdown", action="store_true", help="Print the reference of all settings, without values.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--changed", action="store_true", help="Only the settings that do not have their defaults.")
    which.add_argument("--all", action="store_true", help="Include the advanced settings that have their defaults.")
    add_setting_flags(parser, shown=("config",))


def run(arguments: argparse.Namespace) -> int:
    if arguments.action is not None:
        return act(arguments.action, arguments.words, given(arguments))
    if arguments.markdown:
        say([reference()])
        return 0
    settings = settings_from(arguments)
    style = style_for(sys.stdout)
    if arguments.json:
        say([as_json(settings)])
    elif arguments.wide:
        say(as_wide_table(settings, style))
    else:
        which: Which = "changed" if arguments.changed else "all" if arguments.all else "usual"
        say(as_table(settings, style, terminal_width(80), which))
    return 0


def as_table(settings: Settings, style: Style, width: int = 80, which: Which = "usual") -> list[str]:
    """A table for a terminal, by section, with folded values. `usual` only counts advanced settings with default
    values."""
    shown = [
        one
        for one in SETTINGS
        if which == "all" or (which == "usual" and not one.advanced) or settings.origin(one.name) != "default"
    ]
    if not shown:
        return ["every setting has its default"]
    sources = {one.name: _source(one, settings.origin(one.name)) for one in shown}
    names_end = max(len(one.name) for one in shown)
    values = {one.name: _shown(one, settings) for one in shown}
    room = max(_LEAST_ROOM, width - names_end - max(map(len, sources.values())) - 2 * len(GAP) - 1)
    room = min(room, max(map(len, values.values())))
    lines: list[str] = []
    for section in (*GROUPS, ADVANCED):
        members = [one for one in shown if one.section == section]
        lines += [*([""] if lines else []), style.bold(section)] if members else []
        for one in members:
            first, *rest = folded(values[one.name], room)
            source = sources[one.name]
            mark = style.dim if source == "default" else style.careful
            lines.append(f"{one.name.ljust(names_end)}{GAP}{first.ljust(room)}{GAP}{mark(source)}")
            lines += [f"{' ' * names_end}{GAP}{more}".rstrip() for more in rest]
    if which == "usual" and (left_out := len(SETTINGS) - len(shown)):
        lines += ["", f"{left_out} advanced settings have their defaults; --all shows them."]
    return lines


def as_wide_table(settings: Settings, style: Style) -> list[str]:
    """One line for each setting, however long."""
    rows = [(setting.name, _shown(setting, settings), settings.origin(setting.name)) for setting in SETTINGS]
    return columns(("setting", "value", "from"), rows, style)


def _source(setting: Setting, origin: str) -> str:
    """The source in a word, plus the variable's name if it differs from the setting's."""
    kind, _, what = origin.partition(" ")
    if kind != "environment":
        return kind
    return f"variable {what}" if what in setting.extra_env else "variable"


def _shown(setting: Setting, settings: Settings) -> str:
    return setting.show(getattr(settings, setting.name)) or f"({setting.shown_default()})"


def as_json(settings: Settings) -> str:
    table = {
        setting.name: {"value": _plain(setting, getattr(settings, setting.name)), "from": settings.origin(setting.name)}
        for setting in SETTINGS
    }
    return json.dumps(table, indent=2)


def _plain(setting: Setting, value: object) -> object:
    """The value in JSON's types; for a secret only whether it is set."""
    if setting.secret:
        return setting.show(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [str(item) for item in value]
    if isinstance(value, Quirks):
        return shown_values(value)
    return dict(value) if isinstance(value, Mapping) else value


_PREFACE: Final = """\
# Settings

<!-- Made by `caretway config --markdown`. Edit the table in src/caretway/config/settings.py instead. -->

Every setting has the same name everywhere: `agent_url` is the flag `--agent-url`, the variable `CARETWAY_AGENT_URL` and
the TOML key `agent_url`. Flags win over variables, variables over the file, the file over the defaults. An empty
variable counts as not set. `caretway config` shows the values in effect and where each one came from.

The settings file is the one that `--config` or `CARETWAY_CONFIG` names, otherwise `caretway/config.toml` in the user's
config directory (`$XDG_CONFIG_HOME` or `~/.config`; `~/Library/Application Support` on macOS). A relative path in it
starts at the file's own directory:

```toml
port = 8080
backend = "agent"
parked_timeout = "30m"
workspaces = ["~/src/one", "~/src/two"]

[model_aliases]
fast = "some-model-id"

[advanced]
agent_quirks = { system = "message" }
```

`--help` does not show the settings of the last section. In the file they belong in the table `[advanced]`; they also
work above it.

Durations are seconds or have a unit (`150ms`, `90s`, `15m`, `2h`, `7d`); sizes are bytes or have one (`200kB`,
`64MiB`). A secret has no flag, because other users of the machine can read command lines.

`CURSOR_API_KEY` (`api_key`) is your Cursor key, which the gateway sends to Cursor. `CARETWAY_API_KEY` (`gateway_key`,
or the file that `--api-key-file` names) is the gateway's own key, which clients send to the gateway."""


def reference() -> str:
    """The text of docs/settings.md; the same on every machine."""
    parts = [_PREFACE]
    for title in (*GROUPS, ADVANCED):
        members = [setting for setting in SETTINGS if setting.section == title]
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n" + "\n".join(_markdown_table(members)))
    parts.append(_ABOUT_QUIRKS + "\n".join(_quirk_table()))
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
        lines.append("| " + " | ".join([cell.replace("|", "\\|") for cell in cells]) + " |")
    return lines


_ABOUT_QUIRKS: Final = """\
### Quirks

What `agent_quirks` can override, as in `--agent-quirks system=message,history=typed`. Cursor does not refuse a wrong
value, but may ignore an instruction or miss a history. Set only what `caretway prove` prints.

"""


def _quirk_table() -> list[str]:
    lines = ["| name | default | values | what it does |", "|---|---|---|---|"]
    usual = asdict(Quirks())
    for name, quirk in QUIRKS.items():
        shown = quirk.kind.show(usual[name])
        values = " ".join(f"`{value}`" for value in quirk.kind.choices) or quirk.kind.expected.partition(": ")[0]
        lines.append(f"| `{name}` | {f'`{shown}`' if shown else 'none'} | {values} | {quirk.help} |")
    return lines


def _brief(setting: Setting) -> str:
    """The expected value, without the units that the preface explains."""
    what, colon, _units = setting.kind.expected.partition(": ")
    return what if colon and what.startswith(("a duration", "a size")) else setting.kind.expected


# ---- config file

# `caretway config path | get | set | unset | edit`: one value, and the settings file: its path, writing a checked value
# (never a secret from the command line), the user's editor.

ACTIONS: Final = ("path", "get", "set", "unset", "edit")
_SEE: Final = "see: caretway config --help"
_NEW_FILE: Final = """\
# Settings of Caretway. `caretway config --markdown` lists them all; `caretway config` shows what is in effect.
# port = 8080
"""


def act(action: str, words: Sequence[str], flags: Mapping[str, object]) -> int:
    """Runs `path`, `edit`, `get` or another action and returns the exit code. `flags`: the settings' flags on this
    command line."""
    file = settings_file(flags)
    if action in ("path", "edit"):
        _take(action, words, ())
        return _path(file) if action == "path" else _edit(file, flags)
    if action == "get":
        (name,) = _take(action, words, ("NAME",))
        return _get(load_from_process(flags), setting_named(name, "config get"))
    setting = setting_named(_take(action, words[:1], ("NAME",))[0], f"config {action}")
    if setting.name == "config":
        raise CommandFailed("a settings file cannot name another one", "use --config or CARETWAY_CONFIG", 2)
    if action == "unset":
        _take(action, words, ("NAME",))
        return _write(file, setting, None, flags)
    if setting.secret:
        if len(words) > 1:
            raise CommandFailed(f"{setting.name} is a secret, and other users can read command lines", _ASKS, 2)
        text = secret_text(setting)
    else:
        text = _take(action, words, ("NAME", "VALUE"))[1]
    return _write(file, setting, text, flags)


_ASKS: Final = "type the command without the value; it asks for it, or reads it from a pipe"


def _take(action: str, words: Sequence[str], wanted: Sequence[str]) -> Sequence[str]:
    if len(words) != len(wanted):
        takes = " ".join(wanted) or "no further words"
        raise CommandFailed(f"config {action} takes {takes}", _SEE, 2)
    return words


def _path(file: Path) -> int:
    say([str(file)])
    if not file.is_file():
        remark(["this file does not exist yet; `caretway config edit` makes it"])
    return 0


def _get(settings: Settings, setting: Setting) -> int:
    say([setting.show(getattr(settings, setting.name))])
    return 0


def secret_text(setting: Setting, ask: Callable[[str], str] = getpass) -> str:
    return typed_or_piped(ask, f"{setting.name}: ", sys.stdin)


def _write(file: Path, setting: Setting, text: str | None, flags: Mapping[str, object]) -> int:
    before = _text(file)
    try:
        after = with_setting(before, setting, None if text is None else file_value(setting, text, Path.cwd()))
    except NotEditable as failure:
        raise CommandFailed(f"{file} cannot be changed by a program here", "type: caretway config edit") from failure
    except ValueError as broken:
        raise CommandFailed(f"{file} is not TOML: {broken}", "type: caretway config edit", 2) from broken
    if after != before:
        replace_file(file, after)
    try:
        settings = load_from_process(flags)
    except ConfigError as wrong:
        if wrong.key == setting.name and after != before:  # the path does not exist
            replace_file(file, before)
        raise
    say([f"{file}: " + (after_words(setting, text) if after != before else "nothing to change")])
    if (origin := settings.origin(setting.name)).startswith("environment "):
        remark([f"the variable {origin.removeprefix('environment ')} wins over the file as long as it is set"])
    return 0


def after_words(setting: Setting, text: str | None) -> str:
    if text is None:
        return f"{setting.name} has its default again ({setting.shown_default()})"
    return f"{setting.name} is set" if setting.secret else f"{setting.name} = {text}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as failure:
        raise CommandFailed(f"cannot read {file}: {failure.strerror}") from failure
    except UnicodeDecodeError as failure:
        raise CommandFailed(f"{file} is not text", "type: caretway config edit", 2) from failure


def replace_file(file: Path, text: str) -> None:
    try:
        write_file(file, text, keep=True)
    except OSError as failure:
        raise CommandFailed(f"cannot write {file}: {failure.strerror}") from failure


def _edit(file: Path, flags: Mapping[str, object]) -> int:
    import subprocess

    editor = editor_command()
    if not file.exists():
        replace_file(file, _NEW_FILE)
    try:
        done = subprocess.run([*editor, str(file)], check=False)  # noqa: S603 (the user's own editor)
    except OSError as failure:
        hint = "name another one in the variable EDITOR"
        raise CommandFailed(f"cannot start {editor[0]}: {failure.strerror}", hint) from failure
    if done.returncode:
        raise CommandFailed(f"{editor[0]} ended with exit code {done.returncode}")
    try:
        load_from_process(flags)
    except ConfigError as mistake:
        raise CommandFailed(str(mistake), "type: caretway config edit", 2) from mistake
    changed = [setting.name for setting in SETTINGS if load_from_process(flags).origin(setting.name).startswith("file")]
    say([f"{file}: {', '.join(changed) or 'no settings'}; a running gateway takes them over when it starts again"])
    return 0
