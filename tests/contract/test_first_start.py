"""The first `./scripts/serve` in a fresh checkout, killed at different places: the next start heals it. A checkout that
was moved, one that cannot be written, and machines with several Pythons.

Real environments and a real index, so it takes a while.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
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


def start(checkout: Path, kill_at: str = "", **given: str) -> tuple[int, str]:
    """Runs the script; at the first line that has these words it and all it started are killed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARETWAY_", "CURSOR_"))}
    process = subprocess.Popen(
        ["scripts/caretway", "--version"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=kept | ({"PYTHON": sys.executable} | given),
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


def test_a_checkout_that_was_moved(checkout: Path) -> None:
    healthy(checkout)
    moved = checkout.rename(checkout.with_name("else where"))
    code, told = start(moved)
    assert code == 0 and "the checkout has moved" in told, told
    healthy(moved)


def test_a_python_is_found_that_can_make_an_environment(checkout: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, does in {
        "python3.14": "echo not here >&2; exit 127",
        "python3.13": 'case $2 in *ensurepip*) exit 1 ;; *) exec "$REAL" "$@" ;; esac',
        "python3.12": 'touch "$CHOSEN"; exec "$REAL" "$@"',
        "python3": "exit 1",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    chosen = tmp_path / "chosen"
    path = f"{programs}:/usr/bin:/bin"
    code, told = start(checkout, PYTHON="", PATH=path, REAL=sys.executable, CHOSEN=str(chosen))
    assert (code, chosen.exists()) == (0, True), told


def test_a_checkout_that_cannot_be_written() -> None:
    with TemporaryDirectory() as place:
        checkout = Path(place) / "shared"
        shutil.copytree(ROOT / "scripts", checkout / "scripts")
        for name in ("pyproject.toml", "requirements-dev.lock"):
            shutil.copy(ROOT / name, checkout)
        for path in (Path(place), checkout):
            path.chmod(0o555)
        someone = 65534 if os.getuid() == 0 else None  # root may write everywhere
        done = subprocess.run(
            [checkout / "scripts" / "caretway", "--version"], user=someone, capture_output=True, text=True, check=False
        )
        Path(place).chmod(0o755)
        checkout.chmod(0o755)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr and "pipx install" in done.stderr
