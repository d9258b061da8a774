"""Locations of files by platform (XDG, macOS): settings and data, other programs' Cursor sign-ins, cursor-agent's
files. By default those of this process. Creates nothing.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PLACES: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    # platform -> purpose -> (variable that names the directory, else the path below the home directory)
    "darwin": {"config": ("", "Library/Application Support"), "data": ("", "Library/Application Support")},
    "linux": {"config": ("XDG_CONFIG_HOME", ".config"), "data": ("XDG_DATA_HOME", ".local/share")},
}


def home_directory(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))


def _place(purpose: str, environ: Mapping[str, str], platform: str) -> Path:
    variable, below_home = _PLACES.get(platform, _PLACES["linux"])[purpose]
    named = Path(environ.get(variable, ""))
    # The XDG specification: relative paths in these variables are ignored.
    return (named if named.is_absolute() else home_directory(environ) / below_home) / "caretway"


def data_directory(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    return _place("data", environ, platform)


def user_config_file(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    return _place("config", environ, platform) / "config.toml"


def cursor_sign_in_files(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> tuple[Path, ...]:
    """The sign-in files of Cursor's programs: cursor-agent first, then the official SDK."""
    home = home_directory(environ)
    below_config = _place("config", environ, platform).parent
    agent = home / ".cursor" if platform == "darwin" else below_config / "cursor"
    return agent / "auth.json", home / ".cursor" / "sdk" / "auth.json"


def cursor_agent_files(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> tuple[Path, ...]:
    """Possible locations of cursor-agent's files. A file does not imply a valid sign-in."""
    home = home_directory(environ)
    below_config = _place("config", environ, platform).parent
    folders = (
        (home / ".cursor", home / ".config" / "cursor")
        if platform == "darwin"
        else (home / ".config" / "cursor", below_config / "cursor", home / ".cursor")
    )
    return tuple(folder / name for folder in dict.fromkeys(folders) for name in ("cli-config.json", "auth.json"))
