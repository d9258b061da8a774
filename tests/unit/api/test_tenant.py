"""What answers for one account, and the resolver of a gateway with one owner."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from caretway import __version__
from caretway.api.tenant import AccountUse, Health, SingleTenant
from caretway.core.errors import GatewayError
from caretway.core.turn import BackendStatus
from caretway.dialects.registry import dialects
from caretway.server.exchange import HttpRequest
from unit.api.parts import Backend, Parts

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


def test_dialects_by_name() -> None:
    tenant = Parts().tenant
    for dialect in dialects():
        assert tenant.dialect(dialect.name).name == dialect.name
    assert tenant.dialect("").name == dialects()[0].name


def test_a_dialect_says_by_which_header_its_clients_are_known() -> None:
    tenant = Parts().tenant
    for dialect in dialects():
        if dialect.mark:
            assert tenant.dialect_of({dialect.mark: "x"}) is tenant.dialects[dialect.name]
    assert tenant.dialect_of({}).name == dialects()[0].name
    marks = [dialect.mark for dialect in dialects() if dialect.mark]
    assert len(marks) == len(set(marks))


async def test_a_model_that_is_there_and_one_that_is_not() -> None:
    tenant = Parts().tenant
    assert (await tenant.known_model("sim-auto")).id == "sim-auto"
    with pytest.raises(GatewayError) as caught:
        await tenant.known_model("nope")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("account", AccountUse)
async def test_one_owner_answers_everything(account: AccountUse) -> None:
    tenant = Parts().tenant
    resolver = SingleTenant(tenant)
    async with resolver.resolve(HttpRequest("GET", "/", {}), account) as resolved:
        assert resolved is tenant
    assert (resolver.live, resolver.parked) == (3, 2)
