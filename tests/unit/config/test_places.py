"""Where each platform keeps settings and data."""

from pathlib import Path

import pytest

from caretway.config import data_directory, user_config_file

HOME = {"HOME": "/home/ada"}

PLACES = [
    ("linux", {}, "/home/ada/.config", "/home/ada/.local/share"),
    ("linux", {"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"}, "/c", "/d"),
    ("linux", {"XDG_CONFIG_HOME": "c", "XDG_DATA_HOME": ""}, "/home/ada/.config", "/home/ada/.local/share"),
    ("freebsd14", {}, "/home/ada/.config", "/home/ada/.local/share"),
    ("darwin", {}, "/home/ada/Library/Application Support", "/home/ada/Library/Application Support"),
]


@pytest.mark.parametrize(("platform", "environ", "config", "data"), PLACES)
def test_places(platform: str, environ: dict[str, str], config: str, data: str) -> None:
    assert user_config_file(HOME | environ, platform) == Path(config, "caretway", "config.toml")
    assert data_directory(HOME | environ, platform) == Path(data, "caretway")
