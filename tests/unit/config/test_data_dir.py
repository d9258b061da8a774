"""Whose the data directory is: what is trusted, what is closed, and what is refused, with what to type next."""

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from caretway.config import ConfigError
from caretway.config.data_dir import Verdict, close_data_dir, judge, look
from caretway.dashboard.health import check_data_dir

DIRECTORY = stat.S_IFDIR
VERDICTS = [
    (DIRECTORY | 0o700, 7, Verdict.FINE),
    (DIRECTORY | 0o500, 7, Verdict.FINE),
    (DIRECTORY | 0o750, 7, Verdict.OPEN),
    (DIRECTORY | 0o755, 7, Verdict.OPEN),
    (DIRECTORY | 0o711, 7, Verdict.OPEN),
    (DIRECTORY | 0o770, 7, Verdict.WRITABLE),
    (DIRECTORY | 0o777, 7, Verdict.WRITABLE),
    (DIRECTORY | 0o1777, 7, Verdict.WRITABLE),
    (DIRECTORY | 0o700, 8, Verdict.FOREIGN),
    (DIRECTORY | 0o777, 0, Verdict.FOREIGN),
    (stat.S_IFREG | 0o600, 7, Verdict.NO_DIRECTORY),
]


@pytest.mark.parametrize(("mode", "owner", "verdict"), VERDICTS)
def test_verdicts(mode: int, owner: int, verdict: Verdict) -> None:
    assert judge(mode, owner, 7) is verdict


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_an_open_directory_is_closed_and_that_is_said(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(mode)
    finding = check_data_dir(tmp_path)
    assert not finding.ok
    assert f"chmod 700 {tmp_path}" in finding.hint
    with caplog.at_level(logging.WARNING):
        close_data_dir(tmp_path, "flag --data-dir")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    assert "private now" in caplog.text
    assert check_data_dir(tmp_path).ok


def test_what_is_fine_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o700)
    close_data_dir(tmp_path, "default")
    close_data_dir(tmp_path / "not" / "there", "default")
    assert not (tmp_path / "not").exists()
    assert not caplog.text


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match="not a directory"):
        close_data_dir(file, "flag --data-dir")


def test_a_directory_of_another_user_is_refused() -> None:
    """As root: by a program of yet another user. As a user: the root directory is somebody else's."""
    if os.geteuid() != 0:
        with pytest.raises(ConfigError, match=r"belongs to another user.*sudo chown"):
            close_data_dir(Path("/"), "flag --data-dir")
        return
    code = (
        "from pathlib import Path\nfrom caretway.config.data_dir import close_data_dir\n"
        "import os; os.setuid(54321)\nclose_data_dir(Path('/'), 'flag --data-dir')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "belongs to another user" in ran.stderr
    assert "sudo chown -R 54321 /" in ran.stderr


def test_nothing_is_known_of_what_cannot_be_seen(tmp_path: Path) -> None:
    assert look(tmp_path / "nowhere") is Verdict.FINE
