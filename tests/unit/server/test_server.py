"""The listening side without a socket: how many may come, who is looked at, and how it stops."""

import asyncio
from typing import Any, cast

import pytest

from caretway.server.connection import LINGER_S
from caretway.server.request_reader import Bodies, BodyLimits, ConnectionLimits
from caretway.server.server import RESERVED, Server, connections_that_fit, fitting, raise_soft_limit, soft_limit

resource = pytest.importorskip("resource")


@pytest.mark.parametrize(
    ("wanted", "soft", "fit"),
    [(2048, None, 2048), (2048, 2**20, 2048), (2048, 1024, 1024 - RESERVED), (2048, 100, 16), (8, 1024, 8)],
)
def test_what_fits(wanted: int, soft: int | None, fit: int) -> None:
    assert fitting(wanted, soft) == fit


def test_the_soft_limit_is_raised_and_what_does_not_fit_is_said(caplog: pytest.LogCaptureFixture) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        assert connections_that_fit(2048) == 512 - RESERVED
        assert "max_connections" in caplog.text and "512" in caplog.text
        raise_soft_limit(300)
        assert soft_limit() == 300 + RESERVED
        raise_soft_limit(100)  # never lowered
        assert connections_that_fit(300) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Connection:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def check(self, now: float) -> None:
        self.seen.append("check")

    def retire(self) -> None:
        self.seen.append("retire")

    def abort(self) -> None:
        self.seen.append("abort")


def server(**limits: Any) -> Server:
    return Server(cast(Any, None), ConnectionLimits(**limits), Bodies(BodyLimits()), None)


def joined(subject: Server, count: int) -> tuple[list[Any], list[bool]]:
    made: list[Any] = [Connection() for _ in range(count)]
    return made, [subject.joined(each) for each in made]


async def test_too_many_are_turned_away_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    subject = server(connections=2)
    made, let_in = joined(subject, 4)
    assert let_in == [True, True, False, False]
    assert caplog.text.count("no more are taken") == 1
    for connection in made:
        subject.left(connection)
    assert joined(subject, 1)[1] == [True]


async def test_everybody_is_looked_at_now_and_then() -> None:
    subject = server(look_every=0.001)
    made, _ = joined(subject, 2)
    async with asyncio.timeout(10):
        while not all(len(connection.seen) > 2 for connection in made):
            await asyncio.sleep(0.001)
    for connection in made:
        subject.left(connection)


async def test_stopping_retires_waits_and_cuts() -> None:
    subject = server()
    made, _ = joined(subject, 2)
    subject.retire()
    assert subject.stopping
    assert not await subject.emptied(0.0)
    subject.left(made[0])
    subject.cut()
    assert [connection.seen for connection in made] == [["retire"], ["retire", "abort"]]
    subject.left(made[1])
    assert await subject.emptied(10.0)


@pytest.mark.parametrize(("patience", "left"), [(20.0, LINGER_S), (0.5, 0.5)])
async def test_who_joins_a_stopping_server_says_soon_what_it_wants(patience: float, left: float) -> None:
    subject = server(head_timeout=patience)
    subject.drain()
    assert subject.limits.head_timeout == patience
    subject.retire()
    assert subject.limits.head_timeout == left


async def test_nobody_is_waited_for_when_nobody_is_there() -> None:
    assert await server().emptied(10.0)


async def test_a_date_is_made_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 784111777.0
    monkeypatch.setattr("caretway.server.server.time.time", lambda: now)
    subject = server()
    first = subject.date()
    assert first == b"Sun, 06 Nov 1994 08:49:37 GMT"
    assert subject.date() is first
    now += 1
    assert subject.date() == b"Sun, 06 Nov 1994 08:49:38 GMT"
