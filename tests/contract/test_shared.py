"""What several gateways share in a real Redis: three gateways, one simulated Cursor, one Redis, all on real sockets."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from caretway.cluster.seal import SCHEMA, Seal
from caretway.cluster.spent import read_totals
from caretway.usage.budget import Spent
from caretway.usage.key_file import KeyFile, added
from caretway_sim import Simulator
from contract.gateways import Client, gateway_to, result, simulated, tool
from patience import be_patient
from redis_server import RedisServer, redis_server

pytestmark = pytest.mark.all  # they need a redis-server

KEY = "cw-the-key-of-this-cluster-0123456789"


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture
def freezing(monkeypatch: pytest.MonkeyPatch, _patient: None) -> None:
    """For tests in which Redis is there and does not answer."""
    be_patient(monkeypatch, answer_s=2.0)


@asynccontextmanager
async def cluster(redis: RedisServer, count: int = 3, **settings: Any) -> AsyncIterator[list[Client]]:
    """So many gateways of one account."""
    async with simulated() as (simulator, port), AsyncExitStack() as stack:
        yield [await join(stack, redis, simulator, port, **settings) for _ in range(count)]


async def join(stack: AsyncExitStack, redis: RedisServer, simulator: Simulator, port: int, **settings: Any) -> Client:
    given: dict[str, Any] = {"cluster": redis.url, "cluster_key": KEY, "cluster_drain": 0.0} | settings
    return await stack.enter_async_context(gateway_to(simulator, port, **given))


def says(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


# ---- conversations


async def test_a_conversation_goes_on_wherever_it_is_asked_for(redis: RedisServer, stream: bool) -> None:
    """Ten turns, each at another gateway, as soon as the one before is read: all of one conversation at Cursor."""
    async with cluster(redis) as gateways:
        history = [says("one")]
        for at in range(10):
            answer = await gateways[at % 3].chat(history, stream=stream)
            assert answer.session == ("fresh" if at == 0 else "continued"), (at, answer.headers)
            history += [answer.message, says(f"turn {at}")]


async def test_tool_steps_and_branches_are_continued_elsewhere(redis: RedisServer) -> None:
    async with cluster(redis) as (one, two, three):
        tools = [tool("lookup", "key")]
        history = [says('sim: call lookup {"key": "a"}\nsim: result')]
        asked = await one.chat(history, tools=tools)
        history += [asked.message, result(asked.calls[0], "42")]
        found = await one.chat(history, tools=tools)
        history.append(found.message)
        branches = await asyncio.gather(
            two.chat([*history, says("sim: say left")], tools=tools),
            three.chat([*history, says("sim: say right")], tools=tools),
        )
        assert [(branch.session, branch.text) for branch in branches] == [("continued", "left"), ("continued", "right")]
        history += [says("sim: say left"), branches[0].message, says("sim: say more")]
        other = await one.chat(history, tools=tools)
        assert (other.session, other.text) == ("continued", "more")


async def test_a_forgotten_conversation_is_forgotten_everywhere(redis: RedisServer) -> None:
    async with cluster(redis) as gateways:
        history = [says("sim: say one")]
        for gateway in gateways:
            history += [(await gateway.chat(history)).message, says("sim: say more")]
        await asyncio.gather(*(gateway.gateway._services.store.settle() for gateway in gateways))
        names = {name for gateway in gateways for name in kept(gateway)}
        assert len(names) == 1
        assert await gateways[0].gateway._services.store.forget(*names) == 3
        await until(lambda: not any(map(kept, gateways)))
        assert [(await gateway.chat(history)).session for gateway in gateways] == ["replayed"] * 3


def kept(gateway: Client) -> list[str]:
    """The conversations in the file of one gateway."""
    with closing(sqlite3.connect(gateway.gateway.settings.data_dir / "conversations.sqlite")) as db:
        return [name for (name,) in db.execute("SELECT conversation FROM conversations")]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.02)


# ---- responses


async def test_a_response_is_found_continued_and_deleted_anywhere(redis: RedisServer) -> None:
    async with cluster(redis) as (one, two, three):
        first = (await one.http.post(RESPONSES, json=asks("sim: say one"))).json()
        second = (await two.http.post(RESPONSES, json=asks("sim: recall", first["id"]))).json()
        assert "sim: say one" in str(second["output"]), second
        assert (await three.http.get(f"{RESPONSES}/{second['id']}")).json()["output"] == second["output"]
        listed = (await three.http.get(f"{RESPONSES}/{second['id']}/input_items")).json()
        assert len(listed["data"]) == 3
        refers = [{"type": "item_reference", "id": first["output"][0]["id"]}, says("sim: say that")]
        again = await three.http.post(RESPONSES, json=asks(refers))
        assert again.status_code == 200, again.text
        assert (await three.http.delete(f"{RESPONSES}/{first['id']}")).json()["deleted"] is True
        async with asyncio.timeout(30):  # at once in Redis; the others are told
            for gateway in (one, two):
                while (await gateway.http.get(f"{RESPONSES}/{first['id']}")).status_code != 404:
                    await asyncio.sleep(0.02)
            while (await two.http.post(RESPONSES, json=asks("more", first["id"]))).status_code != 400:
                await asyncio.sleep(0.02)  # what it has of it is not what it was asked for above


async def test_nobody_sees_a_response_of_another_key_or_account(redis: RedisServer, tmp_path: Path) -> None:
    named = {name: {"authorization": f"Bearer cw-the-key-of-{name}-0123456789"} for name in ("anna", "bert")}
    for name in named:
        KeyFile(tmp_path).change(partial(added, key=f"cw-the-key-of-{name}-0123456789", name=name, now=1.0))
    async with simulated() as (simulator, port), AsyncExitStack() as stack:
        async with AsyncExitStack() as first:
            one = await join(first, redis, simulator, port, data_dir=tmp_path)
            two = await join(stack, redis, simulator, port)
            other = await join(stack, redis, simulator, port, access_token="another-token")
            kept = (await one.http.post(RESPONSES, json=asks("sim: say one"), headers=named["anna"])).json()["id"]
            passed = await two.http.get(f"{RESPONSES}/{kept}", headers=named["bert"])
            assert passed.status_code == 404, "who asks is told to the gateway that made it"
        for gateway, name, status in ((two, "anna", 200), (two, "bert", 404), (other, "anna", 404)):  # in Redis
            found = await gateway.http.get(f"{RESPONSES}/{kept}", headers=named[name])
            assert found.status_code == status, (name, found.text)


RESPONSES = "/v1/responses"


def asks(given: object, previous: str | None = None) -> dict[str, Any]:
    return {"model": "sim-auto", "input": given} | ({"previous_response_id": previous} if previous else {})


# ---- budgets and rate limits


async def test_300_at_once_on_three_gateways_against_a_budget_of_50_runs(redis: RedisServer) -> None:
    async with cluster(redis, budgets=("runs=50/day",), max_concurrent=500) as gateways:
        answers = await asyncio.gather(
            *(gateways[at % 3].chat("sim: say hello", stream=at % 2 == 0) for at in range(300))
        )
        assert Counter(answer.status for answer in answers) == {200: 50, 402: 250}
        assert gateways[0].stats()["runs_opened"] == 50
        levels = [level for gateway in gateways for level in await gateway.gateway._services.budgets.levels(())]
        assert [level.spent for level in levels] == [50.0] * 3


@pytest.mark.usefixtures("freezing")
async def test_what_is_settled_while_redis_is_away_is_counted_once_when_it_is_back(redis: RedisServer) -> None:
    """A frozen Redis may have done what it did not answer to."""
    async with cluster(redis, 1, budgets=("tokens=1M/day",)) as (one,):
        spent = one.gateway._services.budgets.store
        assert (await one.chat("sim: say hello")).status == 200
        before = await spent.spent("everybody", "")
        redis.freeze()
        for _ in range(5):
            spent.settle(("everybody",), "2026-11-17", Spent(1, 100, 100, 0.5), 1.0)
            await asyncio.sleep(0.4)
        redis.thaw()
        expected = before + Spent(5, 500, 500, 2.5)
        async with asyncio.timeout(30):
            while (now := await spent.spent("everybody", "")) != expected:
                assert now.runs <= expected.runs, now
                await asyncio.sleep(0.1)
        await asyncio.sleep(2.5)
        assert await spent.spent("everybody", "") == expected


async def test_days_that_no_period_reaches_any_more_are_taken_out(redis: RedisServer) -> None:
    async with cluster(redis, 1, budgets=("runs=50",)) as (one,):
        spent, today = one.gateway._services.budgets.store, datetime.now(UTC).astimezone().date()
        days = [(today - timedelta(days=back)).isoformat() for back in (500, 401, 399)]
        for day in days:
            spent.settle(("everybody",), day, Spent(1, 100, 100, 0.5), 1.0)
        await until(lambda: days_spent(redis) == {*days, "all"})
        assert (await one.chat("sim: say hello")).status == 200
        await until(lambda: days_spent(redis) == {days[2], today.isoformat(), "all"})
        assert (await spent.spent("everybody", "")).runs == 4, "what is counted for ever stays"


def days_spent(redis: RedisServer) -> set[str]:
    with redis.client() as client:
        places = list(client.scan_iter("*:spent1:*"))
        return {field.split()[0].decode() for place in places for field in client.hkeys(place)}


@pytest.mark.usefixtures("freezing")
@pytest.mark.parametrize("when_away", ["refuse", "allow"])
async def test_a_budget_without_redis(redis: RedisServer, when_away: str) -> None:
    async with cluster(redis, 2, budgets=("runs=3",), cluster_budgets=when_away) as (one, two):
        assert (await one.chat("sim: say hello")).status == 200
        redis.freeze()
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(one.chat("sim: say hello") for _ in range(5)))
        redis.thaw()
        if when_away == "refuse":
            assert {answer.status for answer in answers} == {429}
            assert answers[0].error is not None
            assert "cannot look at its budgets: Redis" in answers[0].error["message"]
            assert "--cluster-budgets allow" in str(answers[0].error)
        else:
            assert {answer.status for answer in answers} == {200}
        if when_away == "allow":
            await until_told(two, 402)
        else:  # what a slow Redis has counted all the same is taken back
            spent = two.gateway._services.budgets.store
            await until(lambda: not one.gateway._services.budgets.store._void)  # type: ignore[attr-defined]
            assert (await spent.spent("everybody", "")).runs == 1
            statuses = [(await two.chat("sim: say hello")).status for _ in range(3)]
            assert statuses == [200, 200, 402]


async def until_told(gateway: Client, status: int) -> None:
    """What was let through is counted, soon after Redis is back."""
    async with asyncio.timeout(30):
        while (await gateway.chat("sim: say hello")).status != status:
            await asyncio.sleep(0.3)


async def test_a_key_has_its_requests_a_minute_once(redis: RedisServer) -> None:
    headers = {"authorization": f"Bearer {GATEWAY_KEY}"}
    limits: dict[str, Any] = {"gateway_key": GATEWAY_KEY, "max_requests_per_minute": 30}
    async with cluster(redis, **limits) as gateways:
        asking = [gateways[at % 3].http.get("/v1/models", headers=headers) for at in range(90)]
        answers = await asyncio.gather(*asking)
        counted = Counter(answer.status_code for answer in answers)
        assert 30 <= counted[200] <= 33, counted  # the bucket fills meanwhile
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "30 requests a minute" in refused.text
        assert refused.headers["retry-after"]


GATEWAY_KEY = "cw-the-key-of-the-gateway-012345"


async def test_a_key_has_its_places_once_and_a_dead_gateway_gives_them_back(redis: RedisServer) -> None:
    headers = {"authorization": f"Bearer {GATEWAY_KEY}"}
    limits: dict[str, Any] = {"gateway_key": GATEWAY_KEY, "max_concurrent_per_key": 4}
    async with cluster(redis, 2, **limits) as (one, two):
        held = [asyncio.ensure_future(one.chat("sim: wait 60000", headers=headers, stream=True)) for _ in range(4)]
        leases = next_key(redis, "leases")
        await until(lambda: redis_size(redis, leases) == 4)
        busy = await two.chat("sim: say hello", headers=headers)
        assert busy.status == 429 and busy.error is not None and "4 requests of this key" in busy.error["message"]
        with redis.client() as client:  # what a gateway that died does not renew
            for lease in client.zrange(leases(), 0, -1):
                client.zadd(leases(), {lease: 1.0})
        assert (await two.chat("sim: say hello", headers=headers)).status == 200
        for one_of_them in held:
            one_of_them.cancel()
        await asyncio.gather(*held, return_exceptions=True)


def next_key(redis: RedisServer, kind: str) -> Callable[[], bytes]:
    def find() -> bytes:
        with redis.client() as client:
            return next(iter(client.scan_iter(f"*:{kind}:*")), b"none")

    return find


def redis_size(redis: RedisServer, place: Callable[[], bytes]) -> int:
    with redis.client() as client:
        return int(client.zcard(place()))


# ---- keys


@pytest.mark.usefixtures("freezing")
async def test_keys_of_the_cluster_are_known_to_all_at_once(redis: RedisServer, tmp_path: Path) -> None:
    """Made and revoked by the command on a machine that has no gateway."""
    async with cluster(redis) as gateways:
        made = await key_command(redis, tmp_path, "new", "--name", "anna", "--budget", "runs=50/day")
        assert made.returncode == 0, made.stderr
        anna = {"authorization": f"Bearer {made.stdout.strip()}"}
        for gateway in gateways:
            await until_status(gateway, anna, 200, other={})
        listed = await key_command(redis, tmp_path, "list", "--json")
        found = json.loads(listed.stdout)["keys"][0]
        assert (found["name"], found["runs"], found["budgets"][0]["spent"]) == ("anna", 3, 3)
        redis.freeze()
        for gateway in gateways:
            assert (await gateway.chat("sim: say hello")).status == 401, "keys that were known go on"
        redis.thaw()
        assert (await key_command(redis, tmp_path, "revoke", "anna")).returncode == 0
        for gateway in gateways:
            await until_status(gateway, anna, 401)
    redis.stop()
    alone = await key_command(redis, tmp_path, "list")
    assert alone.returncode != 0 and "keys of the cluster could not be read: Redis" in alone.stderr


async def until_status(
    gateway: Client, headers: dict[str, str], status: int, other: dict[str, str] | None = None
) -> None:
    """`other`: headers with which nobody comes in any more."""
    async with asyncio.timeout(30):
        if other is not None:
            while (await gateway.http.get("/v1/models", headers=other)).status_code != 401:
                await asyncio.sleep(0.02)
        while (await gateway.http.get("/v1/models", headers=headers)).status_code != (200 if status == 200 else 401):
            await asyncio.sleep(0.02)
    answer = await gateway.chat("sim: say hello", headers=headers)
    assert answer.status == status, answer.error


async def key_command(redis: RedisServer, data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "caretway", "key", *words, "--data-dir", str(data), "--cluster", redis.url]
    return await asyncio.to_thread(
        subprocess.run,
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "CARETWAY_CLUSTER_KEY": KEY},
    )


# ---- what Redis holds


async def test_nobody_reads_a_word_in_redis(redis: RedisServer, tmp_path: Path) -> None:
    secret = "cw-PLANTED-KEY-of-anna-0123456789"
    KeyFile(tmp_path).change(partial(added, key=secret, name="PLANTEDNAME", now=1.0, budgets=("runs=9",)))
    headers = {"authorization": f"Bearer {secret}"}
    async with cluster(redis, 1, data_dir=tmp_path, access_token="PLANTED-TOKEN") as (one,):
        talk = await one.chat("sim: say PLANTED-PROMPT", headers=headers)
        more = [says("sim: say PLANTED-PROMPT"), talk.message, says("sim: recall PLANTED-MORE")]
        assert (await one.chat(more, headers=headers)).session == "continued"
        response = await one.http.post(RESPONSES, json=asks("sim: say PLANTED-INPUT"), headers=headers)
        assert response.status_code == 200
        await until(lambda: kinds(redis) >= {"turn", "talk", "response", "item", "spent1", "totals1", "keys", "bucket"})
        held = redis.all_bytes()
    assert len(held) > 2000
    for word in (b"PLANTED", b"sim-auto", b"everybody", sha256(secret.encode()).hexdigest().encode()):
        assert word.lower() not in held.lower(), word
    assert response.json()["id"].encode() not in held


def kinds(redis: RedisServer) -> set[str]:
    with redis.client() as client:
        return {key.decode().split(":")[2] for key in client.scan_iter("*")}


async def test_rows_of_another_version_or_key_are_not_there(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling upgrade: two versions that write other rows replay each other's conversations, and nothing fails."""
    async with simulated() as (simulator, port), AsyncExitStack() as stack, AsyncExitStack() as first:
        old = await join(first, redis, simulator, port)
        rekeyed = await join(stack, redis, simulator, port, cluster_key=KEY[::-1])
        monkeypatch.setattr(Seal.__init__, "__kwdefaults__", {"schema": SCHEMA + 1})
        new = await join(stack, redis, simulator, port)
        monkeypatch.undo()
        history = [says("sim: say one")]
        for gateway, session in ((old, "fresh"), (new, "replayed"), (old, "replayed"), (rekeyed, "replayed")):
            answer = await gateway.chat(history)
            assert (answer.status, answer.session) == (200, session)
            history += [answer.message, says("sim: say more")]
        response = (await old.http.post(RESPONSES, json=asks("sim: say one"))).json()["id"]
        await first.aclose()  # or it would be asked itself
        assert (await new.http.get(f"{RESPONSES}/{response}")).status_code == 404


async def test_totals_of_all_gateways(redis: RedisServer) -> None:
    async with cluster(redis) as gateways:
        await asyncio.gather(*(gateway.chat("sim: say hello") for gateway in gateways * 4))
        shared = gateways[0].gateway._services.cluster
        assert shared is not None
        today = datetime.now(UTC).date()
        async with asyncio.timeout(30):
            while True:
                rows = await read_totals(shared.link, shared.seal, today - timedelta(days=1), today)
                if sum(row.runs for row in rows) == sum(row.responses for row in rows) == 12:
                    break
                await asyncio.sleep(0.1)
        assert {row.model for row in rows} == {"sim-auto"}
        assert sum(row.input for row in rows) > 0


def linked(gateway: Client) -> bool:
    assert gateway.gateway._services.cluster is not None
    return not gateway.gateway._services.cluster.link.away


# ---- trouble


TROUBLE: dict[str, Callable[[RedisServer], None]] = {
    "killed": lambda redis: redis.stop(signal.SIGKILL),
    "frozen": lambda redis: redis.freeze(),
    "full": lambda redis: command(redis, "CONFIG", "SET", "maxmemory", "1"),
    "read-only": lambda redis: command(redis, "REPLICAOF", "127.0.0.1", "1"),
}


def command(redis: RedisServer, *words: str) -> None:
    with redis.client() as client:
        client.execute_command(*words)


@pytest.mark.usefixtures("freezing")
@pytest.mark.parametrize("trouble", TROUBLE)
async def test_requests_go_on_without_redis(redis: RedisServer, trouble: str) -> None:
    """First prompts, tool steps and turns that go on at the same gateway need nothing of it; others are replayed. A
    response is found as long as the gateway that made it lives."""
    headers = {"authorization": f"Bearer {GATEWAY_KEY}"}
    async with cluster(redis, 2, gateway_key=GATEWAY_KEY) as (one, two):
        history = [says("sim: say one")]
        history += [(await one.chat(history, headers=headers)).message, says("sim: say two")]
        TROUBLE[trouble](redis)
        async with asyncio.timeout(60):
            fresh = await one.chat("sim: say hello", headers=headers)
            goes_on = await one.chat(history, headers=headers)
            elsewhere = await two.chat([*history, goes_on.message, says("sim: say three")], headers=headers)
            kept = await one.http.post(RESPONSES, json=asks("sim: say one"), headers=headers)
            found = await one.http.get(f"{RESPONSES}/{kept.json()['id']}", headers=headers)
            passed = await two.http.get(f"{RESPONSES}/{kept.json()['id']}", headers=headers)
            missing = await two.http.get(f"{RESPONSES}/resp_{'0' * 32}", headers=headers)
        assert (fresh.session, goes_on.session, elsewhere.session) == ("fresh", "continued", "replayed")
        assert [one.status_code for one in (kept, found, passed, missing)] == [200, 200, 200, 404]


async def test_a_redis_that_comes_back_empty_is_filled_again(redis: RedisServer) -> None:
    async with cluster(redis, 2) as (one, two):
        history = [says("sim: say one")]
        history += [(await one.chat(history)).message, says("sim: say two")]
        redis.stop(signal.SIGKILL)
        await until(lambda: not any(map(linked, (one, two))))
        redis.start()
        await until(lambda: all(map(linked, (one, two))))
        history += [(await one.chat(history)).message, says("sim: say three")]
        await until(lambda: "turn" in kinds(redis))
        assert (await two.chat(history)).session == "continued"
