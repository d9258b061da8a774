"""Changes one setting in the text of a settings file and leaves everything else as it is, comments included. Pure."""

from collections.abc import Mapping
from pathlib import Path

from ..storage.toml_text import put_value
from .kinds import ADVANCED, Setting


class NotEditable(Exception):
    """The file has a form that this module does not support."""


def with_setting(text: str, setting: Setting, value: object | None) -> str:
    """The file's text with this value, as `file_value` returns it; None removes the setting."""
    import tomllib

    before = tomllib.loads(text)
    name = setting.name
    outside = name in before or not setting.advanced
    after = {**before, ADVANCED: {**before.get(ADVANCED, {})}}
    after[ADVANCED].pop(name, None)
    after.pop(name, None)
    if value is not None:
        (after if outside else after[ADVANCED])[name] = value
    try:
        written = put_value(text, "" if outside else ADVANCED, name, value)
        result = tomllib.loads(written)
    except ValueError as broken:
        raise NotEditable(name) from broken
    if {ADVANCED: {}, **result} != {ADVANCED: {}, **after}:
        raise NotEditable(name)
    return written


def file_value(setting: Setting, text: str, here: Path) -> object:
    """The value to write for a user's text. Relative paths become absolute: the file has its own base."""
    value = setting.read(text, "the command line")
    if isinstance(value, bool) or (isinstance(value, int) and text.strip().lstrip("-").isdigit()):
        return value
    if isinstance(value, Path):
        return _place(value, here)
    if isinstance(value, tuple):
        return [_place(one, here) if isinstance(one, Path) else str(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else text.strip()


def _place(path: Path, here: Path) -> str:
    return str(path if path.parts[:1] == ("~",) else here / path)
