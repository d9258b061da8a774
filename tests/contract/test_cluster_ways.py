"""How the gateways of a cluster reach Redis and each other: TLS with an authority of their own, a user of Redis with
few rights, one renewal of a sign-in for all, readers that are slow or gone, and two versions side by side.
"""

import asyncio
import json
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
import trustme

from caretway.accounts.login import invite, sign_in
from caretway.cluster import directory
from caretway.cluster.seal import SCHEMA, Seal
from caretway.core.errors import GatewayError
from caretway.upstream import sign_ins
from contract.gateways import CHAT, Client, gateway_to, result, simulated
from contract.test_accounts import cursor_with, no_sleep
from contract.test_cluster import KEY, SHELL, asked, beat, cluster, counts, of, runs, vanish
from contract.test_logins import switched
from patience import be_patient
from redis_server import RedisServer, free_port, redis_server

pytestmark = pytest.mark.all  # they need a redis-server

PASSWORD = "a-password-of-redis"
RIGHTS = "resetchannels ~caretway:* +@read +@write +@scripting +@connection -@dangerous +time"
"""As docs/cluster.md says them."""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@dataclass(frozen=True, slots=True)
class Certificate:
    cert: Path
    key: Path
    ca: Path
    other_ca: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    place = tmp_path_factory.mktemp("certificate")
    made = Certificate(*(place / name for name in ("cert.pem", "key.pem", "ca.pem", "other-ca.pem")))
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(str(made.cert))
    issued.private_key_pem.write_to_path(str(made.key))
    authority.cert_pem.write_to_path(str(made.ca))
    trustme.CA().cert_pem.write_to_path(str(made.other_ca))
    return made


# ---- TLS and users


@asynccontextmanager
async def secured(redis: RedisServer, certificate: Certificate, ca: Path) -> AsyncIterator[list[Client]]:
    """Two gateways that speak HTTPS, also to each other; `ca`: whom they trust."""
    given: dict[str, Any] = {"tls_cert": certificate.cert, "tls_key": certificate.key, "cluster_ca": ca}
    trusts = ssl.create_default_context(cafile=str(certificate.ca))
    async with cluster(redis, **given) as nodes, AsyncExitStack() as stack:
        clients = []
        for node in nodes:
            http = httpx.AsyncClient(base_url=node.gateway.base_url, timeout=60, trust_env=False, verify=trusts)
            clients.append(Client(node.gateway, node.simulator, await stack.enter_async_context(http)))
        yield clients


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_hop_over_tls(redis: RedisServer, certificate: Certificate, stream: bool) -> None:
    async with secured(redis, certificate, certificate.ca) as (first, second):
        assert of(first).directory.own.address.startswith("https://")
        for number in range(3):  # the connection is kept
            said, call = await asked(first)
            answer = await second.chat([*said, result(call, f"{number}.txt")], tools=SHELL, stream=stream)
            assert (answer.session, answer.text) == ("resumed", f"{number}.txt")
        assert counts(second)["out", "passed"] == 3 and runs(first.simulator) == 3
        (kept,) = of(second).hops._idle.values()
        (line,) = kept
        assert line._transport.get_extra_info("cipher"), "it is encrypted"


async def test_a_gateway_with_a_foreign_certificate_is_told_nothing(
    redis: RedisServer, certificate: Certificate
) -> None:
    async with secured(redis, certificate, certificate.other_ca) as (first, second):
        said, call = await asked(first)
        answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL)
        assert (answer.session, answer.text) == ("replayed", "a.txt")
        assert answer.headers["x-caretway-session-reason"] == "its replica is gone"
        assert counts(second)["out", "failed"] == 1 and ("in", "refused") not in counts(first)


@dataclass(frozen=True, slots=True)
class SecuredRedis:
    server: RedisServer
    """Through its plain port, which the gateways do not know."""
    tls_port: int

    def url(self, password: str = PASSWORD) -> str:
        return f"rediss://caretway:{password}@127.0.0.1:{self.tls_port}/0"


@pytest.fixture(scope="module")
def secured_redis(certificate: Certificate) -> Iterator[SecuredRedis]:
    port = free_port()
    tls = ("--tls-port", str(port), "--tls-cert-file", str(certificate.cert), "--tls-key-file", str(certificate.key))
    more = ("--tls-ca-cert-file", str(certificate.ca), "--tls-auth-clients", "no")
    with redis_server(*tls, *more, "--user", "caretway", "on", f">{PASSWORD}", *RIGHTS.split()) as server:
        yield SecuredRedis(server, port)


async def test_a_user_with_few_rights_over_tls_can_do_all_that_is_needed(
    secured_redis: SecuredRedis, certificate: Certificate
) -> None:
    """Turns, conversations, responses, budgets, limits and keys. Redis itself says that nothing was refused."""
    key = "cw-the-key-of-the-gateway-012345"
    given: dict[str, Any] = {"cluster": secured_redis.url(), "cluster_ca": certificate.ca, "gateway_key": key}
    headers = {"authorization": f"Bearer {key}"}
    async with cluster(secured_redis.server, budgets=("runs=50/day",), **given) as (first, second):
        said, call = await asked(first, headers=headers)
        said.append(result(call, "a.txt"))
        answer = await second.chat(said, tools=SHELL, headers=headers)
        assert (answer.session, answer.text) == ("resumed", "a.txt")
        said += [answer.message, {"role": "user", "content": "sim: say on"}]
        answer = await second.chat(said, tools=SHELL, headers=headers)
        assert (answer.session, answer.text) == ("continued", "on"), "the conversation came through Redis"
        body = {"model": "sim-auto", "input": "sim: say kept"}
        made = (await first.http.post("/v1/responses", json=body, headers=headers)).json()
        await vanish(first)
        found = await second.http.get(f"/v1/responses/{made['id']}", headers=headers)
        assert found.status_code == 200 and found.json()["output"] == made["output"]
        gone = await second.http.delete(f"/v1/responses/{made['id']}", headers=headers)
        assert gone.status_code == 200, gone.text
        (level, *_) = await second.gateway._services.budgets.levels(())
        assert level.spent == 3
        with secured_redis.server.client() as client:
            ours = [one for one in client.client_list() if one["name"] == "caretway"]
    assert {one["user"] for one in ours} == {"caretway"}
    with secured_redis.server.client() as client:
        assert client.acl_log() == []


@pytest.mark.parametrize("wrong", ["password", "authority"])
async def test_a_redis_that_refuses_or_is_not_trusted_is_named(
    secured_redis: SecuredRedis, certificate: Certificate, wrong: str
) -> None:
    url = secured_redis.url("another" if wrong == "password" else PASSWORD)
    ca = certificate.other_ca if wrong == "authority" else certificate.ca
    async with simulated() as (simulator, port):
        with pytest.raises(GatewayError) as refused:
            async with gateway_to(simulator, port, cluster=url, cluster_ca=ca, cluster_key=KEY):
                pass
    assert ("password are wrong" if wrong == "password" else "certificate") in str(refused.value).lower()
    assert PASSWORD not in str(refused.value)


# ---- a sign-in


async def test_a_sign_in_is_renewed_once_for_all_gateways(redis: RedisServer, tmp_path: Path) -> None:
    """A refresh token works once. Thirty requests at once find their token refused, at three gateways."""
    async with cursor_with(switched(rotates_refresh=True), tmp_path) as cursor, AsyncExitStack() as stack:
        cursor.now = time.time()
        account = await sign_in(invite(os.urandom(32), "u"), cursor.call, no_sleep, lambda: cursor.now)
        nodes = []
        for number in range(3):
            settings = cursor.settings(tmp_path / str(number), backend="agent")
            sign_ins(settings).keep(cursor.url, account)
            given: dict[str, Any] = {"access_token": None, "cluster": redis.url, "cluster_key": KEY}
            given |= {"cluster_drain": 0.0, "cluster_name": "signed-in", "data_dir": settings.data_dir}
            port = urlsplit(cursor.url).port or 0
            nodes.append(await stack.enter_async_context(gateway_to(cursor.simulator, port, **given)))
        assert [(await node.chat("sim: say hello")).status for node in nodes] == [200] * 3
        for renewals in (1, 2):
            before = cursor.counts[1]
            await cursor.revoke("session")
            answers = await asyncio.gather(*(nodes[at % 3].chat("sim: say hello") for at in range(30)))
            assert {answer.status for answer in answers} == {200}, [answer.error for answer in answers if answer.error]
            assert cursor.counts[1] - before == 1, f"renewal {renewals}"


# ---- clients that are slow, or gone


async def test_what_a_slow_reader_does_not_take_is_not_made(redis: RedisServer) -> None:
    """7 MB, through a hop. The simulated model tells how much it has said, piece by piece."""
    prompt = "\n".join(['sim: call shell {"command": "ls"}', *["sim: stream 100 1700"] * 40])
    async with cluster(redis, stream_buffer_bytes=64 * 1024) as (first, second):
        for node in (first, second):
            narrow_answers(node)
        said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        step = await first.chat(said, tools=SHELL)
        said += [step.message, result(step.calls[0], "a.txt")]
        body = {"model": "sim-auto", "messages": said, "tools": SHELL, "stream": True}
        reader, writer = await narrow(second.gateway.base_url, body)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"x-caretway-session: resumed" in head and b"x-caretway-passed-to" in head
        waiting = await settled(first)
        rest = await reader.read()
        writer.close()
        assert b'"finish_reason":"stop"' in rest[-2000:] and len(rest) > 6_800_000
        assert waiting < 0.75 * first.stats()["tokens_out"], "4 MB wait in the window of HTTP/2, hop or not"


def narrow_answers(node: Client) -> None:
    """The kernel would hide megabytes of a short answer."""
    listening = node.gateway._server._listening
    assert listening is not None
    for each in listening.sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)


async def narrow(address: str, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that takes little ahead, with this request sent."""
    parts = urlsplit(address)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (parts.hostname, parts.port))
    reader, writer = await asyncio.open_connection(sock=plain, limit=16 * 1024)
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}connection: close\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
    return reader, writer


async def settled(node: Client) -> int:
    """What the model has said when it says no more."""
    said, same = -1, 0
    async with asyncio.timeout(60):
        while same < 20:
            await asyncio.sleep(0.05)
            now = node.stats()["tokens_out"]
            said, same = now, same + 1 if now == said else 0
    return said


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_gives_up_ends_the_run_behind_the_hop(redis: RedisServer, stream: bool) -> None:
    prompt = 'sim: call shell {"command": "ls"}\nsim: say begun\nsim: wait 60000\nsim: say end'
    async with cluster(redis, disconnect_grace=0.0) as (first, second):
        said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        step = await first.chat(said, tools=SHELL)
        said += [step.message, result(step.calls[0], "a.txt")]
        asking = asyncio.create_task(second.chat(said, tools=SHELL, stream=stream))
        async with asyncio.timeout(30):
            while counts(first).get(("in", "answered")) != 1:
                await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.wait([asking])
            while first.gateway.tenants.live:
                await asyncio.sleep(0.01)


# ---- two versions


@asynccontextmanager
async def two_versions(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Client]]:
    """Two old ones, and one whose rows and hops are of the next schema."""
    given: dict[str, Any] = {"cluster": redis.url, "cluster_key": KEY, "cluster_drain": 0.0, "cluster_name": "rolling"}
    async with simulated() as (simulator, port), AsyncExitStack() as stack:
        olds = [await stack.enter_async_context(gateway_to(simulator, port, **given)) for _ in range(2)]
        with monkeypatch.context() as newer:
            newer.setattr(Seal.__init__, "__kwdefaults__", {"schema": SCHEMA + 1})
            newer.setattr(directory.Me.__init__, "__defaults__", (directory.SCHEMA + 1,))
            new = await stack.enter_async_context(gateway_to(simulator, port, **given))
        assert of(new).directory.own.schema == directory.SCHEMA + 1
        for node in (*olds, new):
            await beat(node)
        yield [*olds, new]


async def test_two_versions_replay_each_others_turns_and_conversations(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_versions(redis, monkeypatch) as (old, other, new):
        for owner, node in ((old, new), (new, old)):
            said, call = await asked(owner)
            said.append(result(call, "a.txt"))
            answer = await node.chat(said, tools=SHELL, stream=True)
            assert (answer.session, answer.text) == ("replayed", "a.txt")
            assert answer.headers["x-caretway-session-reason"] == "its replica has another version"
            said += [answer.message, {"role": "user", "content": "sim: say on"}]
            answer = await owner.chat(said, tools=SHELL)
            assert (answer.session, answer.text) == ("replayed", "on")
        said, call = await asked(old)
        answer = await other.chat([*said, result(call, "a.txt")], tools=SHELL)
        assert answer.session == "resumed", "the old ones still understand each other"


async def test_rows_of_a_later_version_that_say_more_are_understood(redis: RedisServer) -> None:
    async with cluster(redis, cluster_name="more") as (first, second):
        own = of(first).directory.own
        row = msgspec.json.encode({**msgspec.to_builtins(own), "zone": "eu-1", "load": {"runs": 3}})
        beating = of(first).directory._beating
        assert beating is not None
        beating.cancel()
        with redis.client() as client:
            place = f"caretway:more:replica:{own.id}"
            client.set(place, of(first).directory._seal.close(place.encode(), row), ex=60)
        await beat(second)
        said, call = await asked(first)
        answer = await second.chat([*said, result(call, "a.txt")], tools=SHELL)
        assert (answer.session, answer.text) == ("resumed", "a.txt")
