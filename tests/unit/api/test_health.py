"""The gateway's state: asked for once a minute, never waited for long, and told to probes in one word."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from caretway import __version__
from caretway.api.health import Health
from caretway.core.turn import BackendStatus
from unit.api.parts import Backend

IN, OUT, MUTE, AWAY = (
    BackendStatus(True),
    BackendStatus(False, "log in"),
    BackendStatus(None, "it does not say"),
    BackendStatus(None, reachable=False),
)


def health(status: BackendStatus = IN, standing: str = "official", **more: Any) -> tuple[Backend, Health]:
    backend = Backend()
    backend.standing = standing
    backend.answers = status
    return backend, Health(cast(Any, backend), **({"check_timeout": 5.0} | more))


@pytest.mark.parametrize(
    ("status", "code", "word", "auth", "probe"),
    [
        (IN, 200, "ok", "authenticated", b'{"status":"ready"}'),
        (OUT, 200, "ok", "not_authenticated", b'{"status":"alive"}'),
        (MUTE, 200, "ok", "unknown", b'{"status":"alive"}'),
        (AWAY, 503, "error", "unknown", b'{"status":"alive"}'),
    ],
)
async def test_states(status: BackendStatus, code: int, word: str, auth: str, probe: bytes) -> None:
    _, subject = health(status)
    answered, body = await subject.render(parked=1, live=2)
    told = msgspec.json.decode(body)
    assert (answered, told["status"], told["auth"], told["detail"]) == (code, word, auth, status.detail)
    assert told["version"] == __version__
    assert told["backend"] == {"name": "sim", "standing": "official"}
    assert told["sessions"] == {"live": 2, "parked": 1}
    assert await subject.alive() == probe


async def test_a_simulator_signs_nobody_in() -> None:
    _, subject = health(standing="simulated")
    told = msgspec.json.decode((await subject.render(parked=0, live=0))[1])
    assert (told["auth"], told["backend"]["standing"]) == ("simulated", "simulated")


async def test_a_crowd_asks_once() -> None:
    backend, subject = health()
    await asyncio.gather(*(subject.status() for _ in range(20)))
    assert backend.asked == 1


async def test_what_is_old_is_asked_for_again() -> None:
    backend, subject = health(fresh_for=0.0)
    for _ in range(3):
        await subject.status()
    assert backend.asked == 3


async def test_a_cursor_that_does_not_answer_is_not_waited_for() -> None:
    class Silent(Backend):
        async def status(self) -> BackendStatus:
            await asyncio.Event().wait()
            raise AssertionError

    status = await Health(cast(Any, Silent()), check_timeout=0.01).status()
    assert (status.reachable, status.detail) == (False, "Cursor did not answer in time.")


async def test_tools_of_the_gateway() -> None:
    class Tools:
        def health(self) -> dict[str, object]:
            return {"enabled": True}

        def listing(self) -> dict[str, object]:
            return {"data": ["a"]}

    _, subject = health(tools=Tools())
    assert msgspec.json.decode((await subject.render(parked=0, live=0))[1])["mcp"] == {"enabled": True}
    assert msgspec.json.decode(subject.render_tools()) == {"data": ["a"]}
    assert msgspec.json.decode(health()[1].render_tools())["data"] == []
