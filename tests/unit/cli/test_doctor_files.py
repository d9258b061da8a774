"""Where cursor-agent's files may lie on each system, and what `doctor` says about them."""

from pathlib import Path

import pytest

from caretway.cli.doctor import check_agent_files
from caretway.config.places import cursor_agent_files

PLACES = [
    ("linux", {}, ["/h/.config/cursor", "/h/.cursor"]),
    ("linux", {"XDG_CONFIG_HOME": "/x"}, ["/h/.config/cursor", "/x/cursor", "/h/.cursor"]),
    ("darwin", {}, ["/h/.cursor", "/h/.config/cursor"]),
]


@pytest.mark.parametrize(("platform", "more", "folders"), PLACES)
def test_every_known_place_is_looked_at(platform: str, more: dict[str, str], folders: list[str]) -> None:
    found = cursor_agent_files({"HOME": "/h"} | more, platform)
    wanted = [Path(folder) / name for folder in folders for name in ("cli-config.json", "auth.json")]
    assert list(found) == wanted


def test_a_file_is_named_and_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    assert check_agent_files([path]).detail == "has no files here yet"
    path.write_text("{}")
    finding = check_agent_files([path])
    assert finding.ok
    assert str(path) in finding.detail
    assert "signed in" not in finding.detail
