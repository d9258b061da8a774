"""A second program that may read and write Redis, and knows no cluster key: it learns no prompt and no key, changes no
answer, and no gateway ends because of what it wrote. It can deny service; that is not tried here.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from caretway.cluster.hop import GONE, HopConnection
from caretway.cluster.keys import ClusterKeys
from caretway.core.errors import GatewayError
from caretway.usage.budget import Spent
from caretway.usage.charges import EVERYBODY
from caretway.usage.key_file import CLUSTER_COPY, KeyFile, added, dump, revoked
from contract.gateways import CHAT, Client, result
from contract.test_cluster import SHELL, asked, beat, cluster, counts, of, runs
from patience import be_patient
from redis_server import RedisServer, redis_server

pytestmark = pytest.mark.all  # they need a redis-server

ROWS = "caretway:default:"
SECRET = "the-result-nobody-else-may-see"


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


class Stranger:
    """Its own server. It passes every byte on to a gateway and back if it has one, and answers like one if not."""

    def __init__(self) -> None:
        self.heard = b""
        self.address = ""
        self.relays_to: int | None = None
        self.answer = (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-caretway-challenge: nonce=00;sig=00\r\n"
            b'content-length: 13\r\n\r\n{"forged": 1}'
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.relays_to is not None:
                there, onward = await asyncio.open_connection("127.0.0.1", self.relays_to)
                back = asyncio.create_task(_pumped(there, writer))
                await self._hear(reader, onward)
                onward.close()
                await back
            else:
                await self._hear(reader, None, writer)
        finally:
            writer.close()

    async def _hear(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter | None, own: Any = None) -> None:
        while data := await reader.read(65_536):
            self.heard += data
            if onward is not None:
                onward.write(data)
            elif b"\r\n\r\n" in self.heard:
                own.write(self.answer)


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def stranger() -> AsyncIterator[Stranger]:
    one = Stranger()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    async with server:
        one.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield one


def plain(node: Client, **changes: Any) -> bytes:
    """The row of this gateway as version 0.2 wrote it."""
    return msgspec.json.encode({**msgspec.to_builtins(of(node).directory.own), **changes})


async def still(node: Client) -> None:
    """It heartbeats and answers."""
    beating = of(node).directory._beating
    assert beating is not None and not beating.done()
    await beat(node)
    assert (await node.chat("sim: say on")).text == "on"


FORGED = ["plain", "plain-schema-1", "garbage", "not-utf-8", "huge", "swapped", "another-type", "bad-address"]


@pytest.mark.parametrize("how", FORGED)
async def test_a_forged_row_of_a_gateway(redis: RedisServer, how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(redis) as (first, second), stranger() as other:
        said, call = await asked(first)
        own = of(first).directory.own.id
        heartbeat = of(first).directory._beating
        assert heartbeat is not None
        heartbeat.cancel()  # so that the forged row stays
        with redis.client() as client:
            place = f"{ROWS}replica:{own}"
            if how == "another-type":
                client.delete(place)
                client.rpush(place, b"1")
            else:
                client.set(
                    place,
                    {
                        "plain": plain(first, address=other.address),
                        "plain-schema-1": plain(first, address=other.address, schema=1),
                        "garbage": b"garbage",
                        "not-utf-8": b"\xff\xfe" * 20,
                        "huge": plain(first, address=other.address) + b" " * (100 * 2**20),
                        "swapped": client.get(f"{ROWS}replica:{of(second).directory.id}"),
                        "bad-address": plain(first, address="http://[::1"),
                    }[how],
                )
            client.sadd(f"{ROWS}replicas", b"\xff\xfe\xfd", b"x" * 10_000, own)
        of(second).directory._incomplete_until = 0.0  # what it knew from before the row was forged
        await beat(second)
        answer = await second.chat([*said, result(call, SECRET)], tools=SHELL, headers={"x-caretway-key": "cw-secret"})
        assert (answer.session, answer.text) == ("replayed", SECRET)
        assert answer.headers["x-caretway-session-reason"] == GONE
        assert other.heard == b""
        assert how == "another-type" or place in caplog.text
        await still(second)


async def test_a_server_at_an_address_that_a_gateway_has_left(redis: RedisServer) -> None:
    """An old row, put back: its address belongs to a stranger now, who plays the gateway, or passes on to it."""
    async with cluster(redis) as (first, second), stranger() as other:
        for relays in (False, True):
            said, call = await asked(first)
            directory = of(first).directory
            true = directory.own
            other.relays_to = int(true.address.rpartition(":")[2]) if relays else None
            directory.own = msgspec.structs.replace(true, address=other.address)
            await beat(first)  # a row that was true once
            directory.own = true
            of(second).directory._gone.clear()
            await beat(second)
            found = of(second).directory.find(true.id)
            assert found is not None and found.address == other.address
            headers = {"x-caretway-key": "cw-a-client-key", "authorization": "Bearer cw-a-client-key"}
            answer = await second.chat([*said, result(call, SECRET)], tools=SHELL, headers=headers)
            assert (answer.session, answer.text) == ("replayed", SECRET), relays
            assert b"x-caretway-challenge" in other.heard
            assert not any(word in other.heard for word in (b"cw-a-client-key", SECRET.encode(), CHAT.encode()))
            await beat(first)
            await still(second)
        assert counts(first)["in", "refused"] == 1, "it was for another address"


async def test_what_a_stranger_answers_is_readable_in_the_log(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its words would set the title of the terminal and colour it."""
    caplog.set_level(logging.INFO, "caretway")
    async with cluster(redis) as (first, second), stranger() as other:
        other.answer = b"HTTP/1.1 401 No\r\nx-caretway-hop: \x1b]0;title\x07\x1b[31m no \xff\r\n\r\n"
        said, call = await asked(first)
        of(first).directory.own = msgspec.structs.replace(of(first).directory.own, address=other.address)
        await beat(first)
        await beat(second)
        answer = await second.chat([*said, result(call, SECRET)], tools=SHELL)
        assert (answer.session, answer.text) == ("replayed", SECRET)
        assert r"\x1b]0;title\x07\x1b[31m no \xff" in caplog.text
        assert all(line.isprintable() for line in caplog.messages)


async def test_what_travels_with_a_hop_and_that_a_copy_of_it_is_refused(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []
    ask = HopConnection.ask

    async def copied(self: HopConnection, head: bytes, *rest: Any) -> None:
        heads.append(head)
        await ask(self, head, *rest)

    monkeypatch.setattr(HopConnection, "ask", copied)
    async with cluster(redis) as (first, second):
        for _ in range(2):
            said, call = await asked(first)
            body = [*said, result(call, SECRET)]
            headers = {"x-caretway-key": "cw-a-client-key", "x-api-key": "cw-another"}
            answer = await second.chat(body, tools=SHELL, headers=headers)
            assert (answer.session, answer.text) == ("resumed", SECRET)
        assert len(heads) == 2 and not any(b"cw-a" in head for head in heads)
        before = runs(first.simulator)
        lines = [line.partition(": ") for line in heads[0].decode("latin-1").split("\r\n")[1:-2]]
        sent = {name: value for name, _, value in lines if name.startswith("x-caretway") or name == "content-type"}
        again = await first.http.post(CHAT, json={"model": "sim-auto", "messages": body, "tools": SHELL}, headers=sent)
        assert again.status_code == 401 and "sent before" in again.headers["x-caretway-hop"]
        assert runs(first.simulator) == before


async def test_an_address_without_tls_is_not_dialled(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caretway")
    async with cluster(redis) as (first, second):
        said, call = await asked(first)
        directory = of(first).directory
        for address, words in (("http://192.0.2.1:80", "is not encrypted"), ("http://[::1", "no connection")):
            directory.own = msgspec.structs.replace(directory.own, address=address)
            await beat(first)
            of(second).directory._gone.clear()
            await beat(second)
            answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL)
            assert answer.session == "replayed" and words in caplog.text


@pytest.mark.parametrize("how", ["garbage", "not-utf-8", "huge", "another-type", "of another turn"])
async def test_a_forged_claim_counts_for_nothing(
    redis: RedisServer, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(redis) as (first, second):
        _, call = await asked(first)
        sid = call["id"][9:25]
        place = f"{ROWS}claim:{sid}"
        await of(first).hops._claims.claim("0" * 16, of(first).directory.id)
        with redis.client() as client:
            if how == "another-type":
                client.rpush(place, b"1")
            else:
                rows: dict[str, Any] = {"garbage": of(first).directory.id, "not-utf-8": b"\xff", "huge": b"1" * 10**8}
                rows["of another turn"] = client.get(f"{ROWS}claim:{'0' * 16}")
                client.set(place, rows[how])
        assert await of(second).hops._claims.claim(sid, of(second).directory.id) == of(second).directory.id
        assert await of(first).hops._claims.claim(sid, of(first).directory.id) == of(second).directory.id
        assert how == "another-type" or place in caplog.text
        await still(second)


async def test_an_old_row_of_keys_does_not_bring_a_revoked_key_back(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    kept, gone = "cw-kept-0123456789abcdef", "cw-gone-0123456789abcdef"
    async with cluster(redis) as (first, second):
        shared = of(first)
        keys = keys_of(first)
        await keys.change(lambda known: added(added(known, kept, "kept", 0.0), gone, "gone", 0.0))
        with redis.client() as client:
            old = client.get(f"{ROWS}keys")
            await keys.change(lambda known: revoked(known, "gone"))
            await refused(first, gone)
            await refused(second, gone)
            for forged in (old, None, b"garbage", b"\xff" * 100):
                client.delete(f"{ROWS}keys") if forged is None else client.set(f"{ROWS}keys", forged)
                await shared.link.run([shared.news.telling("keys")])
                async with asyncio.timeout(30):
                    while not any(words in caplog.text for words in ("these are put back", "known go on working")):
                        await asyncio.sleep(0.01)
                if forged in (old, None):
                    async with asyncio.timeout(30):
                        while client.get(f"{ROWS}keys") in (old, None):
                            await asyncio.sleep(0.01)
                await refused(second, gone)
                answer = await second.chat("sim: say on", headers={"authorization": f"Bearer {kept}"})
                assert answer.text == "on"
                assert f"{ROWS}keys" in caplog.text or forged == b"\xff" * 100, "a row is named once"
                caplog.clear()
        serial, known = KeyFile(Path(second.gateway.settings.data_dir), name=CLUSTER_COPY).numbered()
        assert serial >= 3 and [key.name for key in known] == ["kept"]


@pytest.mark.parametrize("how", ["ids are used up", "a new stream begins before the last id"])
async def test_a_revoked_key_is_refused_where_it_was_revoked_though_the_news_are_held_back(
    redis: RedisServer, how: str
) -> None:
    gone = "cw-gone-0123456789abcdef"
    async with cluster(redis) as (first, second):
        keys = keys_of(first)
        await keys.change(lambda known: added(known, gone, "gone", 0.0))
        await refused(first, "cw-none-0123456789abcdef")
        await refused(second, "cw-none-0123456789abcdef")
        last, place = "18446744073709551615-18446744073709551615", f"{ROWS}news1"
        with redis.client() as client:
            client.xadd(place, {b"s": b"x"}, id=last)
            async with asyncio.timeout(30):
                while of(first).news._last != last.encode():
                    await asyncio.sleep(0.01)
            if how != "ids are used up":
                client.delete(place)
        with suppress(GatewayError):  # where the news could not be told
            await keys.change(lambda known: revoked(known, "gone"))
        assert (await first.chat("sim: say on", headers={"authorization": f"Bearer {gone}"})).status == 401


async def test_a_revoked_key_stays_so_whatever_number_a_row_has(redis: RedisServer) -> None:
    """Somebody builds on an old row with the command, on a machine that does not know what was revoked since."""
    gone = "cw-gone-0123456789abcdef"
    async with cluster(redis) as (first, second):
        keys = keys_of(first)
        await keys.change(lambda known: added(known, gone, "gone", 0.0))
        both = await keys.read() or ()
        await keys.change(lambda known: revoked(known, "gone"))
        await refused(first, gone)
        await refused(second, gone)
        shared, place = of(first), f"{ROWS}keys"
        later = added(both, "cw-later-0123456789abcdef", "later", 0.0)
        with redis.client() as client:
            client.set(place, shared.seal.close(place.encode(), dump(later, 9)))
        await shared.link.run([shared.news.telling("keys")])
        async with asyncio.timeout(30):
            while [key.name for key in await keys.read() or ()] != ["later"]:
                await asyncio.sleep(0.01)
        await refused(second, gone)


def keys_of(node: Client) -> ClusterKeys:
    """As `caretway key` on the machine of this gateway."""
    shared = of(node)
    copy = KeyFile(Path(node.gateway.settings.data_dir), name=CLUSTER_COPY)
    return ClusterKeys(shared.link, shared.seal, shared.news, copy)


async def refused(node: Client, key: str) -> None:
    async with asyncio.timeout(30):
        while (await node.chat("sim: say on", headers={"authorization": f"Bearer {key}"})).status != 401:
            await asyncio.sleep(0.01)


async def test_counts_that_are_none_are_never_a_500(redis: RedisServer) -> None:
    """They may be wrong, and refuse what they should not."""
    async with cluster(redis, budgets=("runs=100/day",)) as (first, second):
        await first.chat("sim: say on")
        with redis.client() as client:
            for value in (b"garbage", b"\xff", b"inf", b"-1e308", b"nan"):
                for place in client.scan_iter(f"{ROWS}*"):
                    if client.type(place) == b"hash":
                        for field in client.hkeys(place):
                            client.hset(place, field, value)
                        client.hset(place, b"\xff\xfe", value)
                for node in (first, second):
                    assert (await node.chat("sim: say on")).status != 500
                    found = await of(node).spent.spent(EVERYBODY, "2020-01-01")
                    assert isinstance(found, Spent)
        for node in (first, second):
            beating = of(node).directory._beating
            assert beating is not None and not beating.done()


@pytest.mark.parametrize("how", ["swapped", "garbage", "huge"])
async def test_rows_of_conversations_that_were_forged_are_replayed(
    redis: RedisServer, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(redis) as (first, second):
        said = []
        for word in ("one", "two"):
            history = [{"role": "user", "content": f"sim: say {word}"}]
            said.append([*history, (await first.chat(history)).message, {"role": "user", "content": "sim: say on"}])
        held = redis.all_bytes()
        assert not any(word in held for word in (b"sim: say", of(first).directory.own.address.encode()))
        with redis.client() as client:
            places = sorted(client.scan_iter(f"{ROWS}turn:*"))
            rows = [client.get(place) for place in places]
            assert len(places) == 2
            for place, row in zip(places, reversed(rows), strict=True):
                client.set(place, {"swapped": row, "garbage": b"\xff", "huge": b"1" * 10**8}[how])
        for history in said:
            answer = await second.chat(history)
            assert (answer.session, answer.text) == ("replayed", "on")
        assert all(place.decode() in caplog.text for place in places)
        await still(second)
