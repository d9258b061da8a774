"""Where cursor-agent's files may lie on each system, and what `doctor` says about them."""

import shutil
from pathlib import Path

import pytest

from caretway.cli.doctor import check_agent_files
from caretway.config import Settings
from caretway.config.places import cursor_agent_files
from caretway.dashboard.health import check_ledger
from unit.usage.ledger.told import kept, response

PLACES = [
    ("linux", {}, ["/h/.config/cursor", "/h/.cursor"]),
    ("linux", {"XDG_CONFIG_HOME": "/x"}, ["/h/.config/cursor", "/x/cursor", "/h/.cursor"]),
    ("darwin", {}, ["/h/.cursor", "/h/.config/cursor"]),
]


@pytest.mark.seed("D16", "D17")
@pytest.mark.parametrize(("platform", "more", "folders"), PLACES)
def test_every_known_place_is_looked_at(platform: str, more: dict[str, str], folders: list[str]) -> None:
    found = cursor_agent_files({"HOME": "/h"} | more, platform)
    wanted = [Path(folder) / name for folder in folders for name in ("cli-config.json", "auth.json")]
    assert list(found) == wanted


@pytest.mark.seed("D18")
def test_a_file_is_named_and_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    assert check_agent_files([path]).detail == "has no files here yet"
    path.write_text("{}")
    finding = check_agent_files([path])
    assert finding.ok
    assert str(path) in finding.detail
    assert "signed in" not in finding.detail


def test_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    assert "not created yet" in check_ledger(settings).detail
    path = kept(tmp_path, response())
    assert check_ledger(settings).ok and "caretway usage" in check_ledger(settings).detail
    assert "0" in check_ledger(Settings(data_dir=tmp_path, ledger_max_age=0)).detail
    full = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert (check_ledger(settings).ok, check_ledger(settings).hint) == (False, "Free some space.")
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"\xff"))
    assert "Move it away" in check_ledger(settings, whole=True).hint, "a damaged page"
    path.write_bytes(b"no database at all" * 100)
    assert "Move it away" in check_ledger(settings).hint
