"""A private file is replaced whole, is its owner's alone, and is on the disk before the old one is gone."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from caretway.storage.private_file import try_lock, write_file

HOLD = """
import os, sys
from caretway.storage.private_file import try_lock
handle = os.open(sys.argv[1], os.O_RDWR)
print(try_lock(handle), flush=True)
sys.stdin.readline()
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    handle = os.open(file, os.O_RDWR)
    command = [sys.executable, "-c", HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not try_lock(handle)
        other.kill()
    assert try_lock(handle)
    os.close(handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        try_lock(handle)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_and_its_directory_are_the_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "file"
    write_file(file, "ä")
    assert (mode(file), mode(file.parent), file.read_bytes()) == (0o600, 0o700, "ä".encode())
    assert list(file.parent.iterdir()) == [file]


def test_an_open_file_becomes_private_and_a_link_is_replaced(tmp_path: Path) -> None:
    other, file, link = tmp_path / "other", tmp_path / "file", tmp_path / "link"
    for path in (other, file):
        path.write_text("old")
        path.chmod(0o644)
    link.symlink_to(other)
    write_file(file, b"new")
    write_file(link, b"new")
    assert (mode(file), file.read_text(), mode(link), link.is_symlink()) == (0o600, "new", 0o600, False)
    assert (mode(other), other.read_text()) == (0o644, "old")


def test_a_file_that_people_edit_keeps_its_link_and_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o664)  # more than the umask leaves
    link.symlink_to(real)
    write_file(link, "new", keep=True)
    assert (link.is_symlink(), real.read_text(), mode(real)) == (True, "new", 0o664)
    write_file(tmp_path / "first", "new", mode=0o644, keep=True)
    assert mode(tmp_path / "first") == 0o644


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_file(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "file"
    write_file(file, "old")
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space"):
        write_file(file, "new")
    assert (file.read_text(), list(tmp_path.iterdir())) == ("old", [file])


def test_the_content_is_on_the_disk_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"{os.fstat(handle).st_size} bytes")
        fsync(handle)

    def replaced(old: Path, new: Path) -> None:
        steps.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_file(tmp_path / "file", "12345")
    assert steps == ["5 bytes", "replace", "directory"]


def test_what_a_killed_process_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f".file.{os.getpid()}.new").write_text("half")
    write_file(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
