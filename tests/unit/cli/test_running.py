"""Notes of running gateways: what is read back, what is removed, which address is dialled."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from caretway.cli.doctor import check_gateways
from caretway.cli.running import FOLDER, RunningGateway, _noted, dialled, noted_gateways

NOTE = RunningGateway("http://127.0.0.1:8080", os.getpid(), "1.0", "agent", False, "cw-a", 100.0)


def gone() -> int:
    """The id of a process that has ended and was waited for."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_a_note_is_there_while_it_runs_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    with _noted(tmp_path / FOLDER, NOTE):
        assert noted_gateways(tmp_path) == [NOTE]
        assert [file.stat().st_mode & 0o777 for file in (tmp_path / FOLDER).iterdir()] == [0o600]
    assert noted_gateways(tmp_path) == []


def test_a_pipe_among_the_notes_is_not_waited_for(tmp_path: Path) -> None:
    with _noted(tmp_path / FOLDER, NOTE):
        os.mkfifo(tmp_path / FOLDER / "1-2.json")
        assert noted_gateways(tmp_path) == [NOTE]


def test_the_newest_comes_first(tmp_path: Path) -> None:
    later = replace(NOTE, url="http://127.0.0.1:8081", started=200.0)
    with _noted(tmp_path / FOLDER, later), _noted(tmp_path / FOLDER, NOTE):
        assert noted_gateways(tmp_path) == [later, NOTE]


@pytest.mark.parametrize(
    "left",
    [
        json.dumps(asdict(replace(NOTE, pid=gone()))),
        '{"url": "http://127.0.0.1:80',
        "[]",
        '{"url": "of another version"}',
        json.dumps(asdict(replace(NOTE, pid=10**30))),
    ],
    ids=["killed", "half written", "no table", "other fields", "no process id"],
)
def test_what_is_of_no_use_is_removed(left: str, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / f"{gone()}-2.json").write_text(left)
    assert noted_gateways(tmp_path) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "left",
    [
        '{"url": "http://127.0.0.1:80',
        "[" * 3000,
        json.dumps(asdict(NOTE) | {"more": 1}),
        json.dumps(asdict(NOTE) | {"started": "soon"}),
        json.dumps(asdict(NOTE) | {"url": "http://127.0.0.1:99999"}),
        json.dumps(asdict(NOTE) | {"url": None}),
        json.dumps(asdict(NOTE) | {"pid": "x"}),
    ],
    ids=["half written", "nested", "other fields", "no time", "no port", "no address", "no process id"],
)
def test_what_cannot_be_read_is_left_to_the_process_that_wrote_it(left: str, tmp_path: Path) -> None:
    file = tmp_path / FOLDER / f"{os.getpid()}-2.json"
    file.parent.mkdir()
    file.write_text(left)
    assert noted_gateways(tmp_path) == []
    assert file.exists()


def test_a_place_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("a file")
    with _noted(tmp_path / FOLDER, NOTE):
        assert "other commands cannot find this gateway" in caplog.text


@pytest.mark.parametrize(
    ("listening", "dialled_as"),
    [
        ("http://0.0.0.0:32124", "http://127.0.0.1:32124"),
        ("http://[::]:32124", "http://[::1]:32124"),
        ("https://127.0.0.1:8443", "https://127.0.0.1:8443"),
        ("http://[::1]:5", "http://[::1]:5"),
        ("http://box.localhost:5", "http://box.localhost:5"),
    ],
)
def test_addresses(listening: str, dialled_as: str) -> None:
    assert dialled(listening) == dialled_as


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells when a process was started")
def test_an_id_that_another_process_has_now_is_not_told_to_be_stopped(tmp_path: Path) -> None:
    """After a crash or a new start of the machine somebody else has the number: nobody should kill that."""
    dead = replace(NOTE, url="http://127.0.0.1:9", started=time.time() - 7 * 86_400)
    fresh = replace(dead, started=time.time())
    with _noted(tmp_path / FOLDER, dead):
        assert check_gateways(tmp_path, "agent") == []
    with _noted(tmp_path / FOLDER, fresh):
        assert [finding.ok for finding in check_gateways(tmp_path, "agent")] == [False]
