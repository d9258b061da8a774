"""Fixtures of the session engine's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from caretway.sessions.store import SqliteStore

from .storing import DAY, MB, Clock, Open


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversations.sqlite"


@pytest.fixture
def opened(path: Path, clock: Clock) -> Iterator[Open]:
    stores: list[SqliteStore] = []

    def make(where: Path | None = path, *, max_bytes: int = 64 * MB, patience_s: float = 0.5) -> SqliteStore:
        stores.append(SqliteStore(where, max_bytes=max_bytes, max_age_s=7 * DAY, clock=clock, patience_s=patience_s))
        return stores[-1]

    yield make
    for one in stores:
        one.close()
