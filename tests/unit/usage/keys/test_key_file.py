"""The file of keys, on a real disk, and what a running gateway notices of it."""

import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from caretway.core.errors import GatewayError
from caretway.usage.key_file import CLUSTER_COPY, FILE, LOCK, KeyFile, KeyRegistry, added, digest_of, renamed, revoked

KEY, OTHER = "cw-0123456789abcdef", "cw-fedcba9876543210"


def make(file: KeyFile, key: str, name: str) -> None:
    file.change(lambda keys: added(keys, key, name, 10.0))


def test_it_is_the_owners_alone_and_holds_no_key(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "new" / "data")
    assert (file.read(), file.stamp()) == ((), None)
    make(file, KEY, "anna")
    assert [key.name for key in KeyFile(tmp_path / "new" / "data").read()] == ["anna"]
    assert KEY not in file.path.read_text()
    assert sorted(os.listdir(file.path.parent)) == [FILE, LOCK]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.path.chmod(0o644)
    file.read()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(GatewayError, match="not a regular file"):
        KeyFile(tmp_path).read()


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    writers = [
        threading.Thread(target=partial(make, KeyFile(tmp_path), f"cw-key-number-{at:04}", f"n{at}"))
        for at in range(20)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(KeyFile(tmp_path).read()) == 20


def test_a_writer_that_never_ends_is_not_waited_for_long(tmp_path: Path) -> None:
    holds = f"""
import sys
from pathlib import Path
from caretway.usage.key_file import KeyFile
def wait(keys):
    print("locked", flush=True)
    sys.stdin.read()
    return keys
KeyFile(Path({str(tmp_path)!r})).change(wait)
"""
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"locked"
        with pytest.raises(GatewayError, match="another process has been changing them"):
            make(KeyFile(tmp_path, patience_s=0.1), KEY, "anna")
        other.communicate(b"")
    make(KeyFile(tmp_path), KEY, "anna")


def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    make(file, KEY, "anna")
    before = file.stamp()
    with pytest.raises(GatewayError, match="already"):
        make(file, OTHER, "anna")
    assert file.stamp() == before


def test_a_broken_file_is_told_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    for attempt in (KeyFile(tmp_path).read, partial(make, KeyFile(tmp_path), KEY, "anna")):
        with pytest.raises(GatewayError, match="Cannot read the gateway's keys"):
            attempt()
    with pytest.raises(GatewayError, match="Cannot read"):
        KeyRegistry(KeyFile(tmp_path))
    assert (tmp_path / FILE).read_text() == "{"


def test_a_running_gateway_notices_every_change(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    book = KeyRegistry(KeyFile(tmp_path))
    assert book.current() is None
    make(file, KEY, "anna")
    known = book.current()
    assert known is not None
    assert known[digest_of(KEY)].name == "anna"
    assert book.current() is known
    file.change(lambda keys: renamed(keys, "anna", "bob"))
    assert [key.name for key in (book.current() or {}).values()] == ["bob"]
    assert book.named("anna") is None
    file.change(lambda keys: revoked(keys, "bob"))
    assert book.current() == {}, "none is left, and every request is refused"
    assert KeyRegistry(KeyFile(tmp_path)).current() == {}, "also after a restart"
    file.path.unlink()
    assert book.current() == {}, "a running gateway is not opened"
    assert KeyRegistry(KeyFile(tmp_path)).current() is None


def test_a_copy_of_a_cluster_that_never_had_a_key_requires_none(tmp_path: Path) -> None:
    copy = KeyFile(tmp_path, name=CLUSTER_COPY)
    copy.keep(0, ())
    assert KeyRegistry(copy).current() is None
    copy.keep(2, ())
    assert KeyRegistry(copy).current() == {}, "the last one was revoked"


def test_keys_that_were_known_survive_a_broken_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(KeyFile(tmp_path), KEY, "anna")
    book = KeyRegistry(KeyFile(tmp_path))
    (tmp_path / FILE).write_text("not json")
    assert digest_of(KEY) in (book.current() or {})
    assert digest_of(KEY) in (book.current() or {})
    assert caplog.text.count("go on working") == 1


def test_keys_of_a_cluster_never_go_back_to_a_lower_number(tmp_path: Path) -> None:
    file = KeyFile(tmp_path)
    assert file.numbered() == (0, ())
    anna = added((), KEY, "anna", 10.0)
    file.keep(3, anna)
    file.keep(2, ())
    assert KeyFile(tmp_path).numbered() == (3, anna)


def test_a_key_of_a_cluster_that_was_revoked_does_not_come_back_with_a_higher_number(tmp_path: Path) -> None:
    file = KeyFile(tmp_path, name=CLUSTER_COPY)
    both = added(added((), "cw-kept-0123456789abcdef", "kept", 0.0), "cw-gone-0123456789abcdef", "gone", 0.0)
    file.keep(1, both)
    file.keep(2, both[:1])
    file.keep(7, both)
    assert file.numbered() == (7, both[:1])
