"""When `auto` takes this backend."""

from pathlib import Path

import pytest

from caretway.config import Settings
from caretway.upstream import choose_backend
from contract.cursor_cli.stand_in import StandIn


def test_auto_takes_the_program_when_there_is_no_other_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    alone = Settings(data_dir=tmp_path / "data")
    assert choose_backend(alone) == "simulator"
    program = StandIn(tmp_path).install().program
    monkeypatch.setenv("PATH", str(program.parent))
    assert choose_backend(alone) == "cli"
    assert choose_backend(Settings(data_dir=tmp_path / "data", access_token="token")) == "agent"
    monkeypatch.setenv("PATH", "")
    assert choose_backend(Settings(data_dir=tmp_path / "data", agent_bin="somewhere")) == "cli"
