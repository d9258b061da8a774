"""Several gateways on one Redis act as one: a turn is found through any node, and one that died is replayed once."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from caretway.cluster.membership import Cluster
from caretway.cluster.seal import challenge, met, signed, signing_key
from caretway.core.passing import Asker
from caretway_sim import Simulator
from contract.gateways import CHAT, Client, gateway_to, result, simulated, tool
from patience import be_patient
from redis_server import RedisServer, redis_server

KEY = "cw-cluster-0123456789abcdef"
SHELL = [tool("shell", "command")]
PROMPT = 'sim: call shell {"command": "ls"}\nsim: result'


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@asynccontextmanager
async def cluster(redis: RedisServer, count: int = 2, **settings: Any) -> AsyncIterator[list[Client]]:
    """So many gateways, in front of one simulator."""
    given: dict[str, Any] = {"cluster": redis.url, "cluster_key": KEY, "cluster_drain": 0.0} | settings
    async with simulated() as (simulator, port), AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(gateway_to(simulator, port, **given)) for _ in range(count)]
        for node in nodes:
            await beat(node)
        yield nodes


def of(node: Client) -> Cluster:
    found = node.gateway._services.cluster
    assert found is not None
    return found


async def beat(node: Client) -> None:
    """What its heartbeat does every two seconds."""
    of(node).directory._next_list = 0.0
    await of(node).directory._beat()


def counts(node: Client) -> dict[tuple[str, str], int]:
    return dict(of(node).hops.counts)


async def vanish(node: Client) -> None:
    """As `kill -9` does it: it answers nobody, and has told nobody."""
    server = node.gateway._server
    assert server._listening is not None
    server._listening.close()
    server.cut()
    beating = of(node).directory._beating
    assert beating is not None
    beating.cancel()


async def asked(node: Client, **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A turn that waits for the result of one call."""
    said: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
    answer = await node.chat(said, tools=SHELL, **more)
    assert answer.finish == "tool_calls", answer
    return [*said, answer.message], answer.calls[0]


def runs(simulator: Simulator) -> int:
    return int(simulator.stats.as_dict()["runs_opened"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_results_find_their_turn_through_another_node(redis: RedisServer, stream: bool) -> None:
    async with cluster(redis) as (first, second):
        said, call = await asked(first, stream=stream)
        assert call["id"].removeprefix("call_").startswith(of(first).directory.id)
        answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL, stream=stream)
        assert (answer.finish, answer.session) == ("stop", "resumed") and "a.txt" in answer.text
        assert runs(first.simulator) == 1
        assert counts(second)["out", "passed"] == 1 and counts(first)["in", "answered"] == 1


@pytest.mark.all
async def test_a_step_without_foreign_tickets_asks_nobody(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other gateway is on the path of a request whose turn is here, and nothing waits for Redis before its answer
    has begun. Redis hears of the end."""
    async with cluster(redis) as (first, _):
        prompt = 'sim: call shell {"command": "ls"}\nsim: say begun\nsim: wait 300\nsim: say end'
        said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        step = await first.chat(said, tools=SHELL)
        said += [step.message, result(step.calls[0], "a.txt")]
        link, shared, askers = of(first).link, of(first), list[str]()
        assert shared is not None
        do, ask = link.run_each, shared.outbox.ask

        async def noted(work: Any) -> Any:
            task = asyncio.current_task()
            assert task is not None
            askers.append(task.get_name())
            return await do(work)

        async def waited(commands: Any) -> Any:
            askers.append("a request that waits")
            return await ask(commands)

        monkeypatch.setattr(link, "run_each", noted)
        monkeypatch.setattr(shared.outbox, "ask", waited)
        body = {"model": "sim-auto", "messages": said, "tools": SHELL, "stream": True}
        async with first.http.stream("POST", CHAT, json=body) as response:
            assert response.headers["x-caretway-session"] == "resumed"
            async for line in response.aiter_lines():
                if "begun" in line:
                    before = set(askers)
        assert before <= BESIDE and not counts(first)
        async with asyncio.timeout(30):
            while "write-to-redis" not in askers:
                await asyncio.sleep(0.01)


BESIDE = {"heartbeat of the cluster", "news of the cluster", "write-to-redis"}
"""Tasks that talk to Redis beside requests."""


async def test_the_whole_loop_is_one_run_whatever_node_is_used(redis: RedisServer) -> None:
    prompt = "\n".join(f'sim: call shell {{"command": "step {n}"}}' for n in range(6)) + "\nsim: say done"
    async with cluster(redis, 3) as nodes:
        said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        for step in range(7):
            answer = await nodes[step % 3].chat(said, tools=SHELL, stream=step % 2 == 0)
            assert answer.error is None and answer.session == ("resumed" if step else "fresh")
            said += [answer.message, *[result(call, f"result {step}") for call in answer.calls]]
        assert answer.text == "done" and runs(nodes[0].simulator) == 1


@pytest.mark.all
async def test_a_dead_gateways_turn_is_replayed_once_and_then_found_through_every_node(redis: RedisServer) -> None:
    async with cluster(redis, 3) as (dead, second, _):
        said, call = await asked(dead)
        await vanish(dead)
        said.append(result(call, "a.txt"))
        answer = await second.chat(said, tools=SHELL, stream=True)
        assert (answer.session, answer.text) == ("replayed", "a.txt")
        assert answer.headers["x-caretway-session-reason"] == "its replica is gone"
        assert counts(second)["claim", "won"] == 1


@pytest.mark.all
async def test_a_repeated_request_goes_to_whoever_replays_it(redis: RedisServer) -> None:
    """The client's first try is still being answered: a second run beside it would run its calls twice."""
    prompt = 'sim: call shell {"command": "ls"}\nsim: call shell {"command": "pwd"}\nsim: say done'
    async with cluster(redis, 3) as (dead, second, third):
        said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        first = await dead.chat(said, tools=SHELL)
        said += [first.message, result(first.calls[0], "a.txt")]
        await vanish(dead)
        one = await second.chat(said, tools=SHELL)
        other = await third.chat(said, tools=SHELL)
        assert one.calls and one.calls == other.calls, "the same calls, not another run's"
        assert counts(third)["claim", "lost"] == 1 and runs(third.simulator) == 2
        said += [one.message, result(one.calls[0], "/home")]
        last = await third.chat(said, tools=SHELL)
        assert (last.session, last.text) == ("resumed", "done")


@pytest.mark.all
async def test_a_dead_winners_claim_is_taken_over(redis: RedisServer) -> None:
    async with cluster(redis, 3) as (dead, winner, third):
        said, call = await asked(dead)
        await vanish(dead)
        assert await of(winner).hops._claims.claim(call["id"][9:25], of(winner).directory.id)
        await vanish(winner)
        answer = await third.chat([*said, result(call, "a.txt")], tools=SHELL)
        assert (answer.session, answer.text) == ("replayed", "a.txt")


@pytest.mark.all
async def test_a_client_that_hangs_up_is_seen_by_the_owner(redis: RedisServer) -> None:
    prompt = 'sim: call shell {"command": "ls"}\nsim: say begun\nsim: wait 60000\nsim: say end'
    async with cluster(redis, disconnect_grace=0.0) as (first, second):
        said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        answer = await first.chat(said, tools=SHELL)
        said += [answer.message, result(answer.calls[0], "a.txt")]
        body = {"model": "sim-auto", "messages": said, "tools": SHELL, "stream": True}
        async with second.http.stream("POST", CHAT, json=body) as response:
            async for line in response.aiter_lines():
                if "begun" in line:
                    break
            assert first.gateway.tenants.live == 1
        async with asyncio.timeout(30):
            while first.gateway.tenants.live:
                await asyncio.sleep(0.01)


@pytest.mark.all
async def test_another_version_is_replayed_and_never_an_error(redis: RedisServer) -> None:
    async with cluster(redis) as (first, second):
        said, call = await asked(first)
        of(first).directory.own = msgspec.structs.replace(of(first).directory.own, schema=3)
        await beat(first)
        await beat(second)
        answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL)
        assert answer.headers["x-caretway-session-reason"] == "its replica has another version"
        assert answer.text == "a.txt"


@pytest.mark.all
async def test_a_hop_that_is_forged_repeated_or_for_another_is_refused(redis: RedisServer) -> None:
    async with cluster(redis) as (first, _):
        body = msgspec.json.encode({"model": "sim-auto", "messages": [{"role": "user", "content": "hello"}]})
        own = of(first).directory.own
        good: dict[str, Any] = {"schema": own.schema, "to": own.id, "address": own.address, "sender": "abcd"}
        good["nonce"] = "0" * 32
        key = signing_key(KEY)
        for change, words in (
            ({"to": "ffff"}, "it is for ffff"),
            ({"address": "http://127.0.0.1:9"}, "it is for"),
            ({"schema": 9}, "version 9"),
            ({"key": signing_key("cw-another-0123456789abcdef")}, "signature"),
        ):
            asked = challenge(**{"key": key, **good, **change})
            answer = await first.http.get("/healthz", headers={"x-caretway-challenge": asked})
            assert answer.status_code == 401 and words in answer.headers["x-caretway-hop"], (change, answer.text)
        asked = challenge(key, **good)
        answer = await first.http.get("/healthz", headers={"x-caretway-challenge": asked})
        assert answer.status_code == 204
        session = met(key, asked, answer.headers["x-caretway-challenge"])
        hop: dict[str, Any] = {"method": "POST", "target": CHAT, "digest": hashlib.sha256(body).hexdigest()}
        taken = signed(session, asker=Asker(), **hop)
        for proof, words in (
            (taken, ""),
            (taken, "it was sent before"),
            (signed(session, asker=Asker(), **{**hop, "target": "/v1/responses"}), "signature"),
            (signed(session, asker=Asker(), **{**hop, "digest": "0" * 64}), "another body"),
            (taken.replace(session.name, "0" * 32), "session is not known"),
            (taken.rpartition("=")[0] + "=\xe4", "signature"),
        ):
            headers = httpx.Headers({"x-caretway-hop": proof}, encoding="latin-1")
            answer = await first.http.post(CHAT, content=body, headers=headers)
            assert words in answer.text and answer.status_code == (401 if words else 200), (proof, answer.text)


@pytest.mark.all
async def test_redis_away_nothing_hangs_and_turns_are_still_found() -> None:
    with redis_server() as own:
        async with cluster(own) as (first, second):
            said, call = await asked(first)
            own.stop(signal.SIGKILL)
            answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL)
            assert (answer.session, answer.text) == ("resumed", "a.txt"), "the last list is believed"
            said, call = await asked(second)
            await vanish(second)
            answer = await first.chat([*said, result(call, "b.txt")], tools=SHELL)
            assert answer.headers["x-caretway-session-reason"] == "its replica is gone, and Redis is away"
            own.start()
            async with asyncio.timeout(30):
                while of(first).link.away:
                    await asyncio.sleep(0.05)


@pytest.mark.all
async def test_a_redis_that_comes_back_empty_does_not_make_living_gateways_dead() -> None:
    with redis_server() as own:
        async with cluster(own) as (first, second):
            said, call = await asked(first)
            beating = of(first).directory._beating
            assert beating is not None
            beating.cancel()  # its next heartbeat is late
            own.restart(signal.SIGKILL)
            async with asyncio.timeout(30):
                while of(second).link.away or not listed(own):
                    await asyncio.sleep(0.05)
            await beat(second)
            assert listed(own) == {of(second).directory.id}
            answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL)
            assert (answer.session, answer.text) == ("resumed", "a.txt") and runs(first.simulator) == 1


def listed(redis: RedisServer) -> set[str]:
    with redis.client() as client:
        return {one.decode() for one in client.smembers("caretway:default:replicas")}


@pytest.mark.all
async def test_draining_keeps_parked_turns_reachable_and_gives_new_ones_away(redis: RedisServer) -> None:
    async with cluster(redis, cluster_drain=20.0) as (first, second):
        (said, call), (others, waits) = await asked(first), await asked(first)
        stopping = asyncio.create_task(first.gateway.drain())
        while (await first.http.get("/readyz")).status_code != 503:
            await asyncio.sleep(0.01)
        assert (await second.http.get("/readyz")).json() == {"status": "ready"}
        new = await first.chat("sim: say hello")
        assert new.text == "hello" and counts(first)["out", "passed"] == 1
        own = await first.chat([*others, result(waits, "b.txt")], tools=SHELL)
        assert (own.session, own.text) == ("resumed", "b.txt"), "what waits here is not given away"
        answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL)
        assert (answer.session, answer.text) == ("resumed", "a.txt")
        await stopping
        with pytest.raises(httpx.ConnectError):
            await first.http.get("/readyz")


@pytest.mark.all
async def test_metrics_name_the_replica_and_count_its_hops(redis: RedisServer) -> None:
    async with cluster(redis) as (first, second):
        said, call = await asked(first)
        await second.chat([*said, result(call, "a.txt")], tools=SHELL)
        text = (await second.http.get("/metrics")).text
        assert f'caretway_replica_info{{replica="{of(second).directory.id}"' in text
        assert 'caretway_hops_total{way="out",outcome="passed"} 1' in text and "caretway_redis_up 1" in text


@pytest.mark.all
async def test_status_shows_the_gateways_and_what_they_used(redis: RedisServer) -> None:
    async with cluster(redis, cluster_name="shown") as (first, second):
        await asyncio.gather(*(node.chat("sim: say hello") for node in (first, second)))
        await of(second).directory.drain()
        asked = ("--cluster", redis.url, "--cluster-name", "shown")
        async with asyncio.timeout(60):  # counts are written a moment later
            while True:
                found = json.loads((await status(*asked, "--json")).stdout)
                if sum(row["runs"] for row in found["totals"]) == 2:
                    break
        assert found["redis"]["there"] is True
        assert [(one["id"], one["address"], one["draining"]) for one in found["replicas"]] == [
            (of(first).directory.id, of(first).directory.own.address, False),
            (of(second).directory.id, of(second).directory.own.address, True),
        ]
        shown = (await status(*asked)).stdout
        assert "shown, 2 gateways" in shown and "draining" in shown and "sim-auto" in shown
        assert max(map(len, shown.splitlines())) <= 80
    empty = await status(*asked)
    assert (empty.returncode, empty.stdout.splitlines()[0]) == (1, "cluster  shown, no gateways")


async def status(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "caretway", "status", *words]
    variables = os.environ | {"CARETWAY_CLUSTER_KEY": KEY, "COLUMNS": "80"}
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=60, env=variables
    )
