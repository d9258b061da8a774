"""Stored responses in their file: what waits is counted exactly, and what is deleted is gone or its owner is told."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from caretway.core.errors import GatewayError
from caretway.core.stored_response import StoredResponse
from caretway.dialects.openai_responses.store import ResponseStore
from caretway.sessions import response_file
from caretway.sessions.response_file import AccountResponses, ResponseFile


def file(path: Path) -> ResponseFile:
    return ResponseFile(path, max_bytes=2**20, max_age_s=1e9, clock=lambda: 1000.0)


def one(name: str, body: bytes = b'{"output":[]}') -> StoredResponse:
    return StoredResponse(name, "anna", body, b"[]")


def test_a_response_that_is_put_again_before_it_is_written_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_file, "MAX_WAITING_BYTES", 3000)
    kept = file(tmp_path / "responses")
    for round_ in range(10):
        with kept._using:  # the disk is slow
            kept.put("me", one("r", b"x" * 1000))
            kept.put("me", one("r", b"y" * (1000 + round_)))
        kept.remove("other")
        kept._write()
    assert kept._bytes == 0
    found = kept.get("me", "r")
    assert found is not None
    assert found.body == b"y" * 1009
    kept.close()


def test_a_response_that_cannot_be_deleted_is_not_told_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_file, "PATIENCE_S", 0.01)
    kept = file(tmp_path / "responses")
    store = ResponseStore(AccountResponses(kept, "me"))
    store.keep("resp_1", b'{"output":[]}', (), (), None)
    kept._write()
    with closing(sqlite3.connect(tmp_path / "responses", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # another gateway writes, and does not end
        with pytest.raises(GatewayError, match="could not be deleted"):
            store.discard("resp_1")
        other.execute("ROLLBACK")
    assert store.discard("resp_1")
    assert store.find("resp_1") is None
    kept.close()


def test_a_row_that_is_no_json_any_more_is_not_there(tmp_path: Path) -> None:
    kept = file(tmp_path / "responses")
    kept.put("me", one("r"))
    kept._write()
    with closing(sqlite3.connect(tmp_path / "responses")) as other, other:
        other.execute("UPDATE responses SET items = '[\"a'")
    assert kept.get("me", "r") is None
    kept.close()


def test_nobody_who_keeps_a_response_waits_for_the_file() -> None:
    """Responses are kept in the event loop, and looked up beside it."""
    asked, answer = Event(), Event()

    class Slow:
        def put(self, response: StoredResponse) -> None: ...

        def get(self, response_id: str) -> StoredResponse | None:
            asked.set()
            assert answer.wait(60)
            return None

        def holder(self, owner: str, item_id: str) -> StoredResponse | None:
            return self.get(item_id)

        def remove(self, response_id: str) -> bool:
            return self.get(response_id) is None

        def watch(self, gone: Callable[[str], None]) -> None: ...

    store = ResponseStore(Slow())
    for look in (store.find, store.holder, store.discard):
        asked.clear()
        answer.clear()
        store.keep("resp_1", b'{"output":[]}', (), (), None)
        thread = Thread(target=look, args=("resp_1" if look == store.discard else "resp_2",))
        thread.start()
        assert asked.wait(60)
        keeping = Thread(target=store.keep, args=("resp_3", b'{"output":[]}', (), (), None), daemon=True)
        keeping.start()
        keeping.join(20)
        waited = keeping.is_alive()
        answer.set()
        thread.join()
        assert not waited, look.__name__
