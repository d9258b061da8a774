"""What the tests of the conversation store share: a clock that is set by hand, and short ways to say things."""

import hashlib
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from caretway.core.turn import Snapshot
from caretway.sessions.store import SqliteStore

MB: Final = 2**20
DAY: Final = 86400.0

Open = Callable[..., SqliteStore]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def key(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def piece(text: str, size: int = 0) -> tuple[bytes, bytes]:
    data = text.encode().ljust(size, b".")
    return hashlib.sha256(data).digest(), data


def snapshot(name: str, *pieces: tuple[bytes, bytes], parent: bytes | None = None) -> Snapshot:
    return Snapshot("agent", f"state of {name}".encode(), dict(pieces), parent=parent)


def recalled(store: SqliteStore, name: object) -> Snapshot:
    found = store.recall(key(name))
    assert found is not None
    return found


def count(path: Path, what: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
