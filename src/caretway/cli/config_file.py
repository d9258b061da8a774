"""`caretway config path | get | set | unset | edit`: one value, and the settings file: which one it is, how a value is
written into it (checked first, secrets not from the command line), the user's editor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from getpass import getpass
from pathlib import Path
from typing import Final

from ..config import (
    SETTINGS,
    ConfigError,
    Setting,
    Settings,
    editor_command,
    load_from_process,
    settings_file,
)
from ..config.editing import NotEditable, file_value, with_setting
from ..config.settings import setting_named
from ..storage.private_file import write_file
from .process import CommandFailed, asked, remark, say

ACTIONS: Final = ("path", "get", "set", "unset", "edit")
_SEE: Final = "see: caretway config --help"
_NEW_FILE: Final = """\
# Settings of Caretway. `caretway config --markdown` lists them all; `caretway config` shows what is in effect.
# port = 8080
"""


def act(action: str, words: Sequence[str], flags: Mapping[str, object]) -> int:
    """`flags`: the settings' flags of this command line."""
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
    return asked(ask, f"{setting.name}: ") if sys.stdin.isatty() else sys.stdin.readline().strip()


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
        if wrong.key == setting.name and after != before:  # a path that does not exist
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
