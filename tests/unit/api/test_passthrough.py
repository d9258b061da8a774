"""Which key a request brings, and the tenants that keys open: one opening for a crowd, bounded, forgotten when idle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from caretway.api.passthrough import REFUSED_FOR_S, TenantPerKey, client_key
from caretway.api.tenant import AccountUse, AccountWatch, Tenant
from caretway.core.errors import ErrorKind, GatewayError
from caretway.dialects.registry import dialects
from caretway.processes.tasks import spawn
from caretway.server.exchange import HttpRequest

KEYS = [
    ({}, None),
    ({"authorization": "Bearer k-1"}, "k-1"),
    ({"authorization": "bearer  k-1 "}, "k-1"),
    ({"authorization": "Basic k-1"}, None),
    ({"authorization": "k-1"}, None),
    ({"x-api-key": "k-2"}, "k-2"),
    ({"authorization": "Bearer k-1", "x-api-key": "k-2"}, "k-1"),
    ({"authorization": "Bearer ours", "x-api-key": "k-2"}, "k-2"),
    ({"authorization": "Bearer ours"}, None),
]


@pytest.mark.parametrize(("headers", "key"), KEYS)
def test_the_key_of_a_request(headers: dict[str, str], key: str | None) -> None:
    assert client_key(headers, lambda word: word == "ours") == key


@pytest.mark.parametrize("odd", ["two words", "k\u00e9y", "k\ty", "k" * 4097])
def test_what_cannot_be_a_key(odd: str) -> None:
    with pytest.raises(GatewayError) as refused:
        client_key({"x-api-key": odd}, lambda _: False)
    assert refused.value.kind is ErrorKind.SIGNED_OUT and odd not in str(refused.value)


def make_tenant(live: int = 0) -> Tenant:
    sessions = SimpleNamespace(live=live, parked=0)
    return Tenant(
        account=AccountWatch(None),
        dialects=dialects(),
        responder=cast(Any, None),
        sessions=cast(Any, sessions),
        models=cast(Any, None),
        health=cast(Any, None),
    )


class House:
    """Opens tenants, and counts."""

    def __init__(self, limit: int = 2) -> None:
        self.now = 0.0
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.gate: asyncio.Event | None = None
        self.resolver = TenantPerKey(
            make_tenant(), self.open, limit=limit, clock=lambda: self.now, is_ours=lambda _: False
        )

    @asynccontextmanager
    async def open(self, key: str) -> AsyncIterator[Tenant]:
        self.opened.append(key)
        if self.gate is not None:
            await self.gate.wait()
        if key.startswith("bad"):
            raise GatewayError(ErrorKind.SIGNED_OUT, "no")
        if key.startswith("down"):
            raise GatewayError(ErrorKind.UPSTREAM_DOWN, "no answer")
        try:
            yield make_tenant(live=1 if key.startswith("busy") else 0)
        finally:
            self.closed.append(key)

    async def ask(self, key: str, account: AccountUse = AccountUse.REQUIRED) -> Tenant:
        request = HttpRequest("GET", "/", {"x-api-key": key} if key else {})
        async with self.resolver.resolve(request, account) as tenant:
            return tenant


async def test_one_opening_for_a_crowd() -> None:
    house = House()
    tenants = await asyncio.gather(*(house.ask("a") for _ in range(10)), house.ask("b"))
    assert sorted(house.opened) == ["a", "b"]
    assert len(set(map(id, tenants))) == 2 and house.resolver.default not in tenants
    await house.resolver.aclose()
    assert sorted(house.closed) == ["a", "b"]


async def test_the_first_one_may_hang_up() -> None:
    house = House()
    house.gate = asyncio.Event()
    first, second = spawn(house.ask("a"), "first"), spawn(house.ask("a"), "second")
    while not house.opened:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    house.gate.set()
    assert isinstance(await second, Tenant) and house.opened == ["a"]
    await house.resolver.aclose()


async def test_refused_keys_are_not_offered_again_for_a_while() -> None:
    house = House(limit=1)
    for _ in range(3):
        with pytest.raises(GatewayError, match="no"):
            await house.ask("bad-1")
    assert house.opened == ["bad-1"]
    house.now += REFUSED_FOR_S
    with pytest.raises(GatewayError):
        await house.ask("bad-1")
    assert len(house.opened) == 2
    for _ in range(2):
        with pytest.raises(GatewayError):
            await house.ask("down-1")
    assert len(house.opened) == 4, "what may pass is tried at every request"
    await house.ask("busy-1")  # none of them holds the only place
    await house.resolver.aclose()


async def test_idle_tenants_make_room_and_busy_ones_do_not() -> None:
    house = House(limit=2)
    for key in ("a", "b", "a", "c"):
        await house.ask(key)
    await asyncio.sleep(0)
    assert house.closed == ["b"], "the one that was not used for longest"
    await house.ask("busy-1")
    await house.ask("busy-2")
    with pytest.raises(GatewayError) as full:
        await house.ask("d")
    assert full.value.kind is ErrorKind.OVERLOADED and "max_accounts" in full.value.hint
    assert house.resolver.live == 2
    await house.resolver.aclose()


async def test_what_concerns_no_account_needs_no_key() -> None:
    house = House()
    for account in (AccountUse.NONE, AccountUse.IF_SENT):
        assert await house.ask("", account) is house.resolver.default
    for any_key in ("a", "two words"):
        assert await house.ask(any_key, AccountUse.NONE) is house.resolver.default
    assert house.opened == []
    with pytest.raises(GatewayError):
        await house.ask("two words", AccountUse.IF_SENT)
    assert await house.ask("a", AccountUse.IF_SENT) is not house.resolver.default
    with pytest.raises(GatewayError) as none:
        await house.ask("")
    assert none.value.kind is ErrorKind.SIGNED_OUT
    await house.resolver.aclose()


async def test_closing_ends_an_opening() -> None:
    house = House()
    house.gate = asyncio.Event()
    waiting = spawn(house.ask("a"), "waiting")
    while not house.opened:
        await asyncio.sleep(0)
    await house.resolver.aclose()
    await asyncio.wait([waiting])
    error = waiting.exception()
    assert isinstance(error, GatewayError) and error.kind is ErrorKind.CANCELLED
