"""Small things that HTTP clients, probes and proxies count on, over real sockets."""

import asyncio
import socket
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec
import pytest
import uvloop

from contract.echo_server import echo_server
from contract.gateways import CHAT, Client, gateway, gateway_to, simulated
from contract.raw_http import address, post, read_answer, say
from contract.test_security import HELLO, KEY

HANG = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: hang"}]}
TELL = {"model": "sim-auto", "stream": True, "messages": [{"role": "user", "content": "sim: stream 40 10 10"}]}


async def _half_closed(client: Client, body: object) -> bytes:
    """As `nc -N` does: everything is said, one half is closed, the other one is read to the end."""
    reader, writer = await asyncio.open_connection(*address(client))
    try:
        writer.write(post(msgspec.json.encode(body)).replace(b"Connection: close\r\n", b""))
        writer.write_eof()
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


async def test_a_client_that_closed_its_half_gets_its_answer() -> None:
    async with gateway() as client:
        whole = await _half_closed(client, HELLO)
        last = whole[whole.rindex(b"HTTP/1.1 ") :]
        assert read_answer(last).status == 200
        assert b'"content":"hello"' in last
        streamed = await _half_closed(client, TELL)
        assert streamed.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("body", [HANG, HANG | {"stream": True}], ids=["whole", "stream"])
async def test_a_client_that_is_gone_is_noticed(body: object) -> None:
    async with gateway(disconnect_grace=0, first_event_patience=0.1) as client:
        _, writer = await asyncio.open_connection(*address(client))
        writer.write(post(msgspec.json.encode(body)))
        async with asyncio.timeout(10):
            while client.gateway.tenants.live < 1:
                await asyncio.sleep(0.01)
            writer.close()
            while client.gateway.tenants.live:
                await asyncio.sleep(0.01)


async def test_a_head_gets_no_body_even_when_it_is_refused_unread() -> None:
    async with gateway() as client:
        refused = await say(client, b"HEAD /v1/models HTTP/1.1\r\n\r\n")
        assert (refused.status, refused.body) == (400, b"")
        told = await say(client, b"GET /v1/models HTTP/1.1\r\n\r\n")
        assert b"content-length: %d" % len(told.body) in refused.head


async def test_every_answer_has_a_date() -> None:
    async with gateway() as client:
        for path in ("/health", "/nothing", "/v1/models"):
            parsedate_to_datetime((await client.http.get(path)).headers["date"])
        async with client.http.stream("POST", CHAT, json=TELL) as response:
            parsedate_to_datetime(response.headers["date"])
        reader, writer = await asyncio.open_connection(*address(client))
        writer.write(b"rubbish\r\n\r\n")
        assert b"date: " in read_answer(await reader.read()).head
        writer.close()


async def test_http_1_0_keeps_its_connection_when_it_asks() -> None:
    async with gateway() as client:
        reader, writer = await asyncio.open_connection(*address(client))
        for _ in range(3):
            writer.write(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert b" 200 " in head and b"connection: keep-alive" in head
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b"connection: close" in (await reader.read()).lower()
        writer.close()


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
async def test_no_separator_of_lines_in_an_event(path: str) -> None:
    """Python's own `splitlines` ends a line at each of these, and so do clients that are made with it."""
    said = "one\u2028two\u2029three\u0085four"
    body = {"model": "sim-auto", "stream": True, "max_tokens": 9}
    talk = [{"role": "user", "content": f"sim: say {said}"}]
    async with gateway() as client:
        answer = await client.http.post(path, json=body | {"input" if "responses" in path else "messages": talk})
    assert not any(mark in answer.text for mark in "\u2028\u2029\u0085")
    assert answer.text.splitlines() == answer.text.split("\n")[:-1]
    told = [msgspec.json.decode(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]
    assert all(word in str(told) for word in ("one", "two", "three", "four"))
    assert "\\u2028" in str(told) or "\u2028" in str(told)


@pytest.mark.seed("B01")
async def test_health_says_by_its_status_that_cursor_is_away(tmp_path: Path) -> None:
    async with simulated() as (simulator, port), gateway_to(simulator, port, data_dir=tmp_path) as client:
        assert (await client.http.get("/health")).status_code == 200
        assert (await client.http.get("/healthz")).json() == {"status": "ready"}
    async with gateway_to(simulator, port, data_dir=tmp_path) as client:  # nobody listens there any more
        health = await client.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "error")
        alive = await client.http.get("/healthz")
        assert (alive.status_code, alive.json()) == (200, {"status": "alive"})


async def test_a_probe_needs_no_key_and_learns_nothing() -> None:
    async with gateway(gateway_key=KEY) as client:
        for method in ("GET", "HEAD"):
            assert (await client.http.request(method, "/healthz")).status_code == 200
        assert (await client.http.get("/healthz")).json() == {"status": "ready"}
        assert (await client.http.post("/healthz")).status_code == 401
        for path in ("/health", "/healthz/x", "/v1/healthz", "/metrics"):
            assert (await client.http.get(path)).status_code == 401


async def test_too_many_connections_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(max_connections=1) as client:
        streams = [await asyncio.open_connection(*address(client)) for _ in range(5)]
        for reader, writer in streams[1:]:
            assert read_answer(await reader.read()).status == 429
            writer.close()
        streams[0][1].close()
    assert caplog.text.count("no more are taken") == 1


def test_clients_that_come_together_are_let_in_together() -> None:
    """libuv lets in one per turn of the event loop, so the last of many waited for as many turns."""
    clients, most_turns = 40, 8

    async def work() -> int:
        async with echo_server() as (_server, port):
            waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(clients)]
            for client in waiting:
                client.sendall(b"no request\r\n\r\n")
                client.setblocking(False)
            turns = 0
            while waiting:
                await asyncio.sleep(0)
                turns += 1
                for client in list(waiting):
                    with suppress(BlockingIOError):
                        assert client.recv(12) == b"HTTP/1.1 400"
                        waiting.remove(client)
                        client.close()
            return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(work()) <= most_turns
