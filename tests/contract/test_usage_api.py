"""What an account has used, asked on real sockets over both transports: plan, pools, seats of teams, single runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from caretway.backends.agent.backend import AgentBackend
from caretway.config import Settings
from caretway.core.account_usage import OnDemand, PlanInfo, PlanUsage, TeamSeat
from caretway.core.errors import ErrorKind, GatewayError
from caretway.cursor.transport.h2_transport import open_transport
from caretway.cursor.transport.usage_api import PAGE_SIZE, UsageApi
from caretway.upstream import open_backend
from caretway_sim.accounts import Accounts
from caretway_sim.manners import CLASSIC, Manners
from caretway_sim.shared import BilledRun, Shared
from contract.gateways import gateway_to, simulated


@asynccontextmanager
async def dashboard(port: int, mode: str = "auto", key: str = "crsr_key") -> AsyncIterator[UsageApi]:
    known: dict[str, Any] = {"agent_url": f"http://127.0.0.1:{port}", "agent_transport": mode, "api_key": key}
    with TemporaryDirectory() as data_dir:
        async with open_backend(Settings(backend="agent", data_dir=Path(data_dir), **known)) as backend:
            assert isinstance(backend, AgentBackend)
            yield backend.usage


async def test_u5_plan_and_pools(transport: str) -> None:
    async with simulated() as (_, port), dashboard(port, transport, "crsr_key plan=ultra spent=46") as api:
        told = await api.account()
        ends = told.period.ends_at
        assert told.plan == PlanInfo("Ultra", 40_000.0, "$200/mo", ends, on_demand_allowed=False)
        assert told.period.plan == PlanUsage(23.0, 46.0, 34.5, 18_400.0, 18_400.0, 0.0, 21_600.0, 40_000.0)
        assert told.period.starts_at is not None and ends is not None
        assert told.period.starts_at <= time.time() < ends == told.period.starts_at + 30 * 86400
        assert (told.teams, told.period.team) == ((), None)


async def test_u5_a_spent_pool_and_a_gift() -> None:
    async with simulated() as (_, port), dashboard(port, key="crsr_key spent=160") as api:
        plan = (await api.period()).plan
        assert plan is not None
        assert (plan.spent, plan.included_spent, plan.bonus, plan.remaining) == (3200.0, 2000.0, 1200.0, 0.0)
        assert plan.other_models_spent and not plan.cursor_models_spent


async def test_u7_a_seat_is_asked_for_with_its_team(transport: str) -> None:
    async with simulated() as (_, port), dashboard(port, transport, "crsr_key team=42 spent=10") as api:
        alone = await api.period()
        assert alone.tells_nothing and alone.starts_at == alone.ends_at
        assert (await api.current()).team == 42
        told = await api.account()
        assert told.teams == (TeamSeat(42, "Simulated team", "TEAM_ROLE_MEMBER"),)
        assert told.period.team == 42 and told.period.plan is not None
        assert told.period.on_demand == OnDemand(True, 5000.0, 0.0, 5000.0)
        assert (told.plan.name, told.plan.on_demand_allowed) == ("Team", True)
        with pytest.raises(GatewayError) as stranger:
            await api.period(team=43)
        assert stranger.value.kind is ErrorKind.FORBIDDEN


async def test_u7_everybody_has_a_seat_by_a_switch() -> None:
    async with simulated(Manners(team_seats=True)) as (_, port), dashboard(port) as api:
        assert (await api.account()).period.team == 7


async def test_u7_what_each_conversation_cost(transport: str) -> None:
    async with (
        simulated() as (simulator, port),
        gateway_to(simulator, port, transport, access_token=None, api_key="crsr_mine") as client,
        dashboard(port, transport, "crsr_mine") as mine,
        dashboard(port, transport, "crsr_other") as other,
    ):
        since = time.time() - 60
        question = {"role": "user", "content": "sim: say one"}
        first = await client.chat([question])
        history = [question, first.message, {"role": "user", "content": "sim: say two"}]
        assert (await client.chat(history)).session == "continued"
        await client.chat("sim: say another conversation")
        told = await mine.events(since, time.time() + 60)
        assert told.complete and len(told.events) == 3
        newest, second, oldest = told.events
        assert second.conversation == oldest.conversation != newest.conversation
        assert told.of(oldest.conversation) == (second, oldest)
        assert all(event.cents and event.headless for event in told.events)
        assert sum(event.output_tokens or 0 for event in told.events) == client.stats()["tokens_out"]
        assert sum(event.cache_read_tokens or 0 for event in told.events) == client.stats()["tokens_in_cached"]
        assert oldest.charged_cents is None, "the plan includes it"
        assert (await other.events(since, time.time() + 60)).events == (), "another account's usage is not ours"
        assert (await mine.events(since - 60, since)).events == ()


async def test_u4_a_run_may_tell_its_own_cost(stream: bool) -> None:
    async with (
        simulated(Manners(tells_cost=True)) as (simulator, port),
        gateway_to(simulator, port, access_token=None, api_key="crsr_mine") as client,
        dashboard(port, key="crsr_mine") as api,
    ):
        answer = await client.chat("sim: say one", stream=stream)
        (event,) = (await api.events(0.0, time.time() + 60)).events
        assert answer.usage is not None
        run = answer.usage["caretway"]["run"]
        assert (run["cents"], run["charged_cents"]) == (event.cents, 0.0)


async def test_u7_an_event_shows_up_late() -> None:
    async with (
        simulated(Manners(usage_lag_s=600)) as (simulator, port),
        gateway_to(simulator, port, access_token=None, api_key="crsr_mine") as client,
        dashboard(port, key="crsr_mine") as api,
    ):
        await client.chat("sim: say one")
        assert (await api.events(0.0, time.time() + 60)).events == ()


@pytest.mark.parametrize("behaving", [CLASSIC, Manners(events_ignore_dates=True)], ids=["dates", "dates ignored"])
async def test_many_pages_of_events(behaving: Manners) -> None:
    owner = Accounts(Shared()).person("crsr_mine").name
    count = 2 * PAGE_SIZE + 40
    async with simulated(behaving) as (simulator, port), dashboard(port, key="crsr_mine") as api:
        for second in range(count):
            simulator.billed.add(BilledRun(owner, (second + 1) * 1000, "m", f"c-{second}", 1, 0, 1))
        everything = await api.events(0.0, count + 1.0)
        assert everything.complete and len(everything.events) == count
        assert [event.at for event in everything.events] == [float(at) for at in range(count, 0, -1)]
        newest = await api.events(count - 9.0, count + 1.0)
        assert newest.complete and len(newest.events) == 10
        oldest = await api.events(1.0, 10.0)
        assert oldest.complete and len(oldest.events) == 10
        cut = await api.events(0.0, count + 1.0, max_pages=2)
        assert not cut.complete and len(cut.events) == 2 * PAGE_SIZE


async def test_a_refused_token_is_replaced_once() -> None:
    async with simulated() as (simulator, port), dashboard(port) as api:
        await api.period()
        transport = open_transport(f"http://127.0.0.1:{port}")
        try:
            await transport.call("POST", "/_sim/revoke", {}, b'{"type": "session"}')
        finally:
            await transport.aclose()
        assert (await api.period()).plan is not None
        assert simulator.stats.token_exchanges == 2


async def test_a_key_that_is_not_accepted_is_said_so() -> None:
    async with simulated() as (_, port), dashboard(port, key="bad-key") as api:
        with pytest.raises(GatewayError) as refused:
            await api.account()
        assert refused.value.kind is ErrorKind.SIGNED_OUT and "CURSOR_API_KEY" in refused.value.hint


PAGES = [
    (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>", ErrorKind.UPSTREAM_PROTOCOL),
    (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", ErrorKind.UPSTREAM_PROTOCOL),
    (b"HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n", ErrorKind.UPSTREAM_DOWN),
]


@pytest.mark.parametrize(("page", "kind"), PAGES)
async def test_a_host_that_has_no_dashboard(page: bytes, kind: ErrorKind) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        token = b'{"accessToken": "t"}'
        is_key = b"exchange_user_api_key" in head
        answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(token) + token
        writer.write(answer if is_key else page)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, dashboard(server.sockets[0].getsockname()[1], "http1") as api:
        with pytest.raises(GatewayError) as failed:
            await api.account()
        assert failed.value.kind is kind
