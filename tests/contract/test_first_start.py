"""The first `./scripts/serve` in a fresh checkout, killed at different places: the next start heals it.

Real environments and a real index, so it takes a while.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
NEEDED: Final = ("pyproject.toml", "requirements-dev.lock", "README.md", "LICENSE", "scripts", "src")

pytestmark = [pytest.mark.all, pytest.mark.timeout(600)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    place = tmp_path / "care way"  # with a space, as in many a home
    place.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place)
    return place


def start(checkout: Path, kill_at: str = "") -> tuple[int, str]:
    """Runs the script; at the first line that has these words it and all it started are killed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARETWAY_", "CURSOR_"))}
    process = subprocess.Popen(
        ["scripts/caretway", "--version"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=kept | {"PYTHON": sys.executable},
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        told = ""
        for line in process.stdout:
            told += line
            if kill_at and kill_at in line:
                os.killpg(process.pid, signal.SIGKILL)
                break
    return process.returncode, told


def healthy(checkout: Path) -> None:
    code, told = start(checkout)
    assert code == 0 and "\ncaretway " in "\n" + told, told
    assert not list(checkout.glob(".venv-*")), "nothing is left behind"
    assert start(checkout)[1].startswith("caretway "), "and the next start has nothing to do"


PLACES: Final = ("making .venv", "installing serve dependencies", "  installing ")


def test_starts_that_were_killed_heal(checkout: Path) -> None:
    for place in PLACES:
        code, told = start(checkout, place)
        assert code == -signal.SIGKILL, told
        assert not (checkout / ".venv").exists(), "an environment is there when it is whole"
    healthy(checkout)
    with (checkout / "requirements-dev.lock").open("a") as lock:
        lock.write("# changed\n")
    assert start(checkout, "installing serve dependencies")[0] == -signal.SIGKILL
    assert (checkout / ".venv" / ".unfinished").exists()
    healthy(checkout)


def test_an_environment_without_pip_is_made_anew(checkout: Path) -> None:
    """What an interrupted start of earlier versions left."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    assert start(checkout, "making .venv")[0] == -signal.SIGKILL
