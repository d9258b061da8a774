"""Everything that leaves the machine goes through the proxy: a stand-in over TLS refuses whoever does not come from it.

Both transports, models, login, renewal, doctor and pictures; HTTP, HTTPS and SOCKS5 proxies, with and without a
password; and what is said when the proxy wants a password, is down, or closes in the middle.
"""

import asyncio
import json
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from caretway.config import Settings
from caretway.core.errors import GatewayError
from caretway.gateway import Gateway
from caretway.upstream import open_backend
from caretway_sim import Simulator
from caretway_sim.manners import LIVE
from caretway_sim.proxy import ONLY_THERE, SimProxy
from contract.gateways import CHAT, Client
from contract.proxied.sites import Site, ask, listening, run, site, told
from contract.subjects import WAYS as SUBJECTS
from contract.test_chat import PIXEL

SECRET = "p@ss:w/rd%"
QUOTED = "p%40ss%3Aw%2Frd%25"


def user(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]


WAYS = [
    ("HTTPS_PROXY", "http://127.0.0.1:{}", "connect cursor.test"),
    ("https_proxy", "127.0.0.1:{}", "connect cursor.test"),
    ("HTTPS_PROXY", "https://localhost:{}", "connect cursor.test"),
    ("ALL_PROXY", "socks5h://127.0.0.1:{}", "socks name cursor.test"),
    ("all_proxy", "http://127.0.0.1:{}", "connect cursor.test"),
    ("CARETWAY_PROXY", "socks5h://127.0.0.1:{}", "socks name cursor.test"),
]


@pytest.mark.parametrize("carrier", ["h2", "http1"])
@pytest.mark.parametrize(("variable", "value", "asked"), WAYS, ids=[f"{way[0]} {way[1][:8]}" for way in WAYS])
async def test_a5_a_run_goes_through_the_proxy_and_nowhere_else(
    variable: str,
    value: str,
    asked: str,
    carrier: str,
    authority: tuple[trustme.CA, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(authority, SimProxy(), tls=value.startswith("https")) as there:
        given = value.format(there.proxy_port)
        if variable == "CARETWAY_PROXY":
            settings = there.settings(agent_transport=carrier, proxy=given)
        else:
            monkeypatch.setenv(variable, given)
            settings = there.settings(agent_transport=carrier)
        answer = await ask(settings)
        assert (answer.status, answer.text) == (200, "through"), answer.error
        assert {line.rpartition(":")[0] for line in there.proxy.asked} == {asked}
        assert there.turned_away == 0
        assert there.proxy.up > 500 and there.proxy.down > 500


async def test_the_transport_is_still_found_out_by_itself(
    authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(authority, SimProxy()) as there:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{there.proxy_port}")
        async with open_backend(there.settings()) as backend:
            assert (await backend.status()).detail == "over h2"


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_a_password(kind: str, authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(authority, SimProxy("me", SECRET)) as there:
        address = f"127.0.0.1:{there.proxy_port}"
        monkeypatch.setenv("HTTPS_PROXY", f"{kind}://me:{QUOTED}@{address}")
        assert (await ask(there.settings())).text == "through"
        for wrong, says in [
            ("me:wr0ng@", "does not accept the user and password"),
            ("", "wants a user and a password"),
        ]:
            there.proxy.refused = 0
            monkeypatch.setenv("HTTPS_PROXY", f"{kind}://{wrong}{address}")
            answer = await ask(there.settings(agent_retries=2))
            status, code, message = told(answer)
            assert (status, code) == (503, "proxy_password")
            assert f"the proxy {address} {says}" in message
            assert f"Write them into HTTPS_PROXY: {kind}://USER:PASSWORD@{address}" in message
            assert "wr0ng" not in message
            assert answer.headers["x-should-retry"] == "false"
            assert there.proxy.refused == 2, (
                "offered once for the model list and once for the run: proxies lock accounts"
            )


TROUBLE = [
    ("closes", "http", "proxy_broke_off", "closed the connection before", "NO_PROXY=cursor.test"),
    ("closes", "socks5h", "proxy_broke_off", "closed the connection before", "NO_PROXY=cursor.test"),
    ("closes_later", "http", "upstream_unavailable", "through the proxy", "Check the proxy in HTTPS_PROXY"),
    ("garbage", "http", "proxy_unknown", "not a proxy that speaks HTTP", "socks5h://"),
    ("garbage", "socks5h", "proxy_unknown", "not a proxy that speaks SOCKS5", "http://"),
    ("forbids", "http", "proxy_refused", "HTTP 403 Not for you", "NO_PROXY=cursor.test"),
    ("forbids", "socks5h", "proxy_refused", "its rules forbid it", "NO_PROXY=cursor.test"),
    ("negotiate", "http", "proxy_password", "wants a user", "cntlm"),
]


@pytest.mark.parametrize(("fault", "kind", "code", "says", "hint"), TROUBLE)
async def test_trouble_with_the_proxy_is_named(
    fault: Any,
    kind: str,
    code: str,
    says: str,
    hint: str,
    authority: tuple[trustme.CA, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(authority, SimProxy(fault=fault)) as there:
        monkeypatch.setenv("HTTPS_PROXY", f"{kind}://127.0.0.1:{there.proxy_port}")
        status, found, message = told(await ask(there.settings()))
        assert (status, found) == (503, code)
        assert says in message and hint in message, message
        assert f"127.0.0.1:{there.proxy_port}" in message
        assert there.turned_away == 0


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_a_proxy_that_says_nothing(kind: str, authority: tuple[trustme.CA, Path]) -> None:
    async with site(authority, SimProxy(fault="silent")) as there:
        proxy = f"{kind}://127.0.0.1:{there.proxy_port}"
        status, code, message = told(await ask(there.settings(proxy=proxy, connect_timeout=0.2)))
        assert (status, code) == (503, "upstream_unavailable")
        assert f"through the proxy 127.0.0.1:{there.proxy_port}: no connection within 0.2 s" in message
        assert "Check the proxy in CARETWAY_PROXY" in message and "CARETWAY_PROXY=off" in message


@pytest.mark.parametrize("kind", ["http", "https", "socks5", "socks5h"])
async def test_a_proxy_that_is_down(
    kind: str, authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(authority, SimProxy()) as there:
        monkeypatch.setenv("ALL_PROXY", f"{kind}://127.0.0.1:9")
        more = {"agent_url": f"https://127.0.0.1:{there.url.rpartition(':')[2]}"} if kind == "socks5" else {}
        status, code, message = told(await ask(there.settings(proxy_loopback=True, **more)))
        assert (status, code) == (503, "proxy_down")
        assert "cannot connect to the proxy 127.0.0.1:9" in message
        assert "correct ALL_PROXY" in message and "CARETWAY_PROXY=off" in message


@pytest.mark.parametrize("carrier", ["h2", "http1"])
async def test_a_proxy_that_closes_in_the_middle_of_an_answer(
    carrier: str, authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(authority, SimProxy()) as there:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{there.proxy_port}")
        settings = there.settings(agent_transport=carrier)
        asked = {"model": "sim-auto", "stream": True, "messages": user("sim: say begun\nsim: hang")}
        async with (
            Gateway(settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, timeout=60, trust_env=False, verify=False) as http,
        ):
            told = ""
            async with http.stream("POST", CHAT, json=asked) as response:
                async for line in response.aiter_lines():
                    if "begun" in line:
                        there.proxy.hang_up()
                    told += line
            assert f"(through the proxy 127.0.0.1:{there.proxy_port}) was closed" in told
            assert "caretway doctor" in told
            client = Client(gateway, there.simulator, http)
            assert (await client.chat("sim: say again")).text == "again"


async def test_a_run_survives_a_proxy_that_hangs_up(
    authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    async with site(authority, SimProxy()) as there:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{there.proxy_port}")
        settings = there.settings(agent_transport=transport, agent_retries=2)
        async with (
            Gateway(settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, timeout=60, trust_env=False, verify=False) as http,
        ):
            client = Client(gateway, there.simulator, http)
            asking = asyncio.create_task(client.chat("sim: say one\nsim: wait 300\nsim: say two", stream=True))
            while there.simulator.open_runs == 0:
                await asyncio.sleep(0.01)
            there.proxy.hang_up()
            assert (await asking).text == "one\ntwo"
            assert there.turned_away == 0


# ---- where the request comes from


@pytest.mark.parametrize(
    ("symptom", "code", "says"),
    [
        ("bare", "refused_without_reason", "(1) the region or the proxy of this machine"),
        ("ends", "empty_stream", "check a VPN or proxy of this machine"),
        ("words", "region_refused", "check a VPN or proxy of this machine"),
    ],
)
async def test_a5_the_address_that_a_request_comes_from_decides(
    symptom: Any, code: str, says: str, transport: str
) -> None:
    """From here only Cursor's own models are served; from where the proxy is, all."""
    proxy = SimProxy()
    simulator = Simulator(manners=replace(LIVE, abroad=symptom), home=proxy.comes_from_here)
    try:
        url = f"http://127.0.0.1:{await simulator.listen('127.0.0.1', 0)}"
        known = {"backend": "agent", "agent_url": url, "access_token": "t", "agent_transport": transport, "port": 0}
        async with listening(proxy) as port:
            settings = Settings(**known)  # type: ignore[arg-type]  # a table of settings
            assert (await ask(settings, model="composer-2.5")).text == "through"
            _, found, message = told(await ask(settings, model="gpt-5.4"))
            assert found == code and says in message and "caretway doctor" in message
            settings = Settings(**known, proxy=f"http://127.0.0.1:{port}", proxy_loopback=True)  # type: ignore[arg-type]  # as above
            answer = await ask(settings, model="gpt-5.4")
            assert answer.text == "through", answer.error
    finally:
        await simulator.aclose()


# ---- exceptions


async def test_loopback_is_exempt_unless_asked_for(
    authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(authority, SimProxy()) as there:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{there.proxy_port}")
        local = f"https://localhost:{there.url.rpartition(':')[2]}"
        assert told(await ask(there.settings(agent_url=local)))[0] == 503
        assert there.turned_away > 0 and there.proxy.asked == []
        assert (await ask(there.settings(agent_url=local, proxy_loopback=True))).text == "through"


async def test_no_proxy_and_off_go_without(authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(authority, SimProxy()) as there:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{there.proxy_port}")
        local = f"https://localhost:{there.url.rpartition(':')[2]}"
        monkeypatch.setenv("NO_PROXY", "example.com, localhost")
        assert told(await ask(there.settings(agent_url=local, proxy_loopback=True)))[0] == 503
        monkeypatch.delenv("NO_PROXY")
        assert told(await ask(there.settings(agent_url=local, proxy_loopback=True, proxy="off")))[0] == 503
        assert there.proxy.asked == [] and there.turned_away > 0


async def test_socks5_looks_names_up_here_and_socks5h_there(authority: tuple[trustme.CA, Path]) -> None:
    async with site(authority, SimProxy()) as there:
        local = f"https://localhost:{there.url.rpartition(':')[2]}"
        for kind, asked in [("socks5", "socks address "), ("socks5h", "socks name localhost")]:
            there.proxy.asked.clear()
            proxy = f"{kind}://127.0.0.1:{there.proxy_port}"
            answer = await ask(there.settings(agent_url=local, proxy_loopback=True, proxy=proxy))
            assert there.proxy.asked[0].startswith(asked), there.proxy.asked
            assert answer.text == "through" or "::1" in there.proxy.asked[0]
        unknown_here = await ask(there.settings(proxy=f"socks5://127.0.0.1:{there.proxy_port}"))
        assert f"the proxy looks it up: socks5h://127.0.0.1:{there.proxy_port}" in told(unknown_here)[2]


async def test_a_certificate_that_nobody_vouches_for(authority: tuple[trustme.CA, Path], tmp_path: Path) -> None:
    """`agent_ca` is needed for the stand-in behind the proxy, and for an https proxy itself."""
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for tls, whose in [(False, f"the certificate of {ONLY_THERE}"), (True, "the certificate of the proxy localhost:")]:
        async with site(authority, SimProxy(), tls=tls) as there:
            proxy = f"{'https' if tls else 'http'}://localhost:{there.proxy_port}"
            message = told(await ask(there.settings(agent_ca=other, proxy=proxy)))[2]
            assert whose in message and "--agent-ca" in message


async def test_an_address_that_makes_no_sense_is_no_secret_spilt(tmp_path: Path) -> None:
    settings = Settings(backend="agent", access_token="t", proxy="socks4://me:hunter22@127.0.0.1:1")
    with pytest.raises(GatewayError, match=r"CARETWAY_PROXY.*'socks4'") as caught:
        async with open_backend(settings):
            pass
    assert "hunter22" not in str(caught.value)


# ---- commands


@pytest.mark.parametrize(
    ("variable", "kind"), [("HTTPS_PROXY", "http"), ("ALL_PROXY", "socks5h")], ids=["HTTPS_PROXY", "ALL_PROXY"]
)
async def test_login_renewal_models_status_and_doctor(
    variable: str, kind: str, authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    async with site(authority, SimProxy()) as there:
        way = {variable: f"{kind}://127.0.0.1:{there.proxy_port}"}
        code, output, errors = await run(there, tmp_path, "login", "--api-key-stdin", stdin="life=1\n", **way)
        assert (code, errors) == (0, ""), output
        assert there.simulator.stats.token_exchanges == 1
        await asyncio.sleep(0.5)  # such a token is renewed after half its life, and a command starts faster than that
        code, output, errors = await run(there, tmp_path, "models", "--json", **way)
        assert (code, errors) == (0, "")
        assert "sim-auto" in {model["id"] for model in json.loads(output)}
        assert there.simulator.stats.token_exchanges > 1, "the token of one second was renewed"
        code, output, errors = await run(there, tmp_path, "status", **way)
        assert (code, errors) == (0, "")
        code, output, errors = await run(there, tmp_path, "doctor", "--port", "0", "--json", **way)
        assert (code, errors) == (0, ""), output
        found = {finding["name"]: finding for finding in json.loads(output)}
        assert found["network"]["detail"].startswith(f"through {kind}://127.0.0.1:{there.proxy_port} ({variable})")
        assert there.turned_away == 0
        assert len(there.proxy.asked) >= 4


async def test_the_simulator_as_a_command_serves_nobody_but_who_comes_through_its_proxy(tmp_path: Path) -> None:
    """`caretway simulate --tls --proxy`: everything that users type, each with CONNECT and with SOCKS5."""
    simulator = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "caretway", "simulate", "--tls", "--port", "0"),
        *("--proxy", "me:w%rd@0", "--switch", "refuses_direct=true"),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    try:
        assert simulator.stdout is not None
        said = [(await simulator.stdout.readline()).decode() for _ in range(5)]
        direct, authority = said[0].split()[-1], said[1].split()[-1]
        port = int(said[2].rpartition(":")[2])
        there = Site(
            Simulator(), SimProxy(), f"https://{ONLY_THERE}:{direct.rpartition(':')[2]}", port, Path(authority)
        )
        assert there.url in said[3] and there.url in said[4]
        for variable, kind in [("HTTPS_PROXY", "http"), ("ALL_PROXY", "socks5h")]:
            way = {variable: f"{kind}://me:w%25rd@127.0.0.1:{port}"}
            assert way[variable] in said[2]
            code, output, errors = await run(there, tmp_path, "login", "--api-key-stdin", stdin="life=1\n", **way)
            assert (code, errors) == (0, ""), output
            for command in ("models", "status", "doctor --port 0"):
                code, output, errors = await run(there, tmp_path, *command.split(), **way)
                assert (code, errors) == (0, ""), output
            assert f"through {kind}://127.0.0.1:{port} ({variable})" in output and "w%25rd" not in output
        trust = ssl.create_default_context(cafile=authority)
        async with httpx.AsyncClient(verify=trust, trust_env=False) as http:
            with pytest.raises(httpx.TransportError):
                await http.get(f"{direct}/_sim/stats")
        proxy = f"http://me:w%25rd@127.0.0.1:{port}"
        async with httpx.AsyncClient(verify=trust, trust_env=False, proxy=proxy) as http:
            counted = (await http.get(f"{there.url}/_sim/stats")).json()
        assert counted["turned_away"] == 1, "ours, which went straight there"
        # Each login exchanges its key; how many tokens of one second the other six commands need is the clock's matter.
        assert counted["token_exchanges"] >= 2 and counted["connections"] >= 8
    finally:
        simulator.terminate()
        await simulator.communicate()


async def test_tls_inside_tls_on_the_event_loop_of_the_commands(
    authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    async with site(authority, SimProxy(), tls=True) as there:
        way = {"HTTPS_PROXY": f"https://localhost:{there.proxy_port}", "CURSOR_API_KEY": "any"}
        code, output, errors = await run(there, tmp_path, "models", "--backend", "agent", **way)
        assert (code, errors) == (0, "") and "sim-auto" in output
        assert there.turned_away == 0 and there.proxy.asked


async def test_login_with_a_browser(authority: tuple[trustme.CA, Path], tmp_path: Path) -> None:
    async with site(authority, SimProxy()) as there:
        proxy = f"http://127.0.0.1:{there.proxy_port}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "caretway", "login", "--no-browser"),
            *("--agent-url", there.url, "--agent-ca", str(there.ca)),
            stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HTTPS_PROXY": proxy},
        )
        assert process.stdout is not None
        link = ""
        while not (found := re.search(r"https://\S+", link)):
            link = (await process.stdout.readline()).decode()
            assert link, "it ended without a link"
        trust = ssl.create_default_context(cafile=there.ca)
        async with httpx.AsyncClient(proxy=proxy, verify=trust, trust_env=False) as browser:
            assert (await browser.get(found[0])).status_code == 200
        output, _ = await process.communicate()
        assert process.returncode == 0 and b"Signed in" in output
        assert there.turned_away == 0


async def test_doctor_says_what_is_wrong_with_the_proxy(authority: tuple[trustme.CA, Path], tmp_path: Path) -> None:
    async with site(authority, SimProxy("me", SECRET)) as there:
        way = {"HTTPS_PROXY": f"http://127.0.0.1:{there.proxy_port}", "CURSOR_API_KEY": "any"}
        code, output, _ = await run(there, tmp_path, "doctor", "--backend", "agent", "--port", "0", **way)
        assert code == 1
        assert "wants a user and a password" in output and "HTTPS_PROXY: http://USER:PASSWORD@" in output


# ---- pictures


@asynccontextmanager
async def gallery(authority: tuple[trustme.CA, Path], proxy: SimProxy) -> AsyncIterator[int]:
    """One picture, for whoever comes through the proxy."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if proxy.comes_from_here(writer.get_extra_info("peername")):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: {len(PIXEL)}\r\n\r\n"
            writer.write(head.encode() + PIXEL)
            await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority[0].issue_cert(ONLY_THERE).configure_cert(context)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_pictures(kind: str, authority: tuple[trustme.CA, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(authority, SimProxy()) as there, gallery(authority, there.proxy) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"{kind}://127.0.0.1:{there.proxy_port}")
        url = f"https://{ONLY_THERE}:{port}/cat.png"
        content = [{"type": "text", "text": "sim: say seen"}, {"type": "image_url", "image_url": {"url": url}}]
        answer = await ask(there.settings(fetch_images="any"), [{"role": "user", "content": content}])  # type: ignore[arg-type]  # chat takes messages as well
        assert (answer.status, answer.text) == (200, "seen"), answer.error
        assert any(f"{ONLY_THERE}:{port}" in line for line in there.proxy.asked)
        # `public` checks the address first, and nobody but the proxy knows it.
        answer = await ask(there.settings(fetch_images="public"), [{"role": "user", "content": content}])  # type: ignore[arg-type]  # as above
        assert told(answer)[:2] == (400, "image_not_fetched")


@pytest.mark.skipif(bool(SUBJECTS["sdk"].missing), reason=SUBJECTS["sdk"].missing or "never")
@pytest.mark.parametrize(
    "proxy", ["http://me:hunter22@127.0.0.1:{}", "ftp://me:hunter22@h:1", "http://me:pa/hunter22@h"]
)
async def test_the_sdk_ignores_proxies_and_doctor_says_so(
    proxy: str, authority: tuple[trustme.CA, Path], tmp_path: Path
) -> None:
    """Also one that makes no sense: the SDK's own client reads the variable when it says goodbye."""
    async with site(authority, SimProxy()) as there:
        variables = {"HTTPS_PROXY": proxy.format(there.proxy_port), "CURSOR_API_KEY": "any"}
        code, output, errors = await run(there, tmp_path, "doctor", "--backend", "sdk", **variables)
        assert there.proxy.asked == []
    assert (code, "Traceback" in errors) == (1, False), errors
    assert re.search(r"the SDK ignores proxies \(.*HTTPS_PROXY", output) and "use --backend agent" in output, output
    assert "hunter22" not in output + errors
