"""MCP servers that want a sign-in: login, call, renewal, revocation, logout, as a person and as a client see them."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from msgspec.structs import replace

from caretway.mcp.sign_ins import SignInFile, open_sign_in
from contract.bridge.oauth_server import SECRET, OAuthServer, oauth_server
from contract.bridge.servers import bridged, health, odd, tools, until
from contract.gateways import CHAT, Client, simulated
from contract.test_secrets import GATEWAY_KEY, found_in, serving

KEY: Final = {"authorization": f"Bearer {GATEWAY_KEY}"}
LINK: Final = re.compile(r"^http://\S+$", re.MULTILINE)


class Person:
    """Somebody at a terminal, and a browser."""

    def __init__(self, home: Path, servers: dict[str, Any]) -> None:
        self.home = home
        self.data = home / "data"
        (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        flags = ("--mcp-config", "mcp.json", "--data-dir", str(self.data))
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "caretway", *words, *flags),
            cwd=self.home,
            env={"PATH": os.defpath, "HOME": str(self.home)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def type(self, *words: str) -> tuple[int, str]:
        process = await self.start(*words)
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def login(self, name: str = "notes", *, paste: bool = False) -> tuple[int, str]:
        process = await self.start("mcp", "login", name, "--no-browser")
        assert process.stdout is not None
        assert process.stdin is not None
        shown = ""
        while not (link := LINK.search(shown)) and (line := await process.stdout.readline()):
            shown += line.decode()
        if link is not None:
            redirect = urlsplit(parse_qs(urlsplit(link[0]).query)["redirect_uri"][0])
            _, unused = await asyncio.open_connection(redirect.hostname, redirect.port)  # as browsers do beforehand
            async with httpx.AsyncClient(trust_env=False) as browser:
                response = await browser.get(link[0], follow_redirects=not paste)
                if paste:
                    process.stdin.write(b"http://127.0.0.1:1/callback?code=x&state=wrong\n")
                    process.stdin.write(f"{response.headers['location']}\n".encode())
                else:
                    assert response.status_code == 200
        out, _ = await process.communicate()
        if link is not None:
            unused.close()
        assert process.returncode is not None
        return process.returncode, shown + out.decode()


@asynccontextmanager
async def signed_in(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[OAuthServer, Person, Client]]:
    async with oauth_server() as server:
        person = Person(tmp_path, {"notes": {"url": server.url}})
        code, told = await person.login()
        assert code == 0, told
        async with bridged({"notes": {"url": server.url}}, data_dir=person.data, **settings) as client:
            yield server, person, client


def read(text: str) -> str:
    return f"sim: call mcp__notes__read {json.dumps({'text': text})}\nsim: result"


def kept(person: Person, server: OAuthServer) -> SignInFile:
    return open_sign_in(person.data, "file", server.url)


@pytest.mark.parametrize("paste", [False, True])
async def test_login(tmp_path: Path, paste: bool) -> None:
    async with oauth_server() as server:
        person = Person(tmp_path, {"notes": {"url": server.url}})
        code, told = await person.type("mcp", "list")
        assert code == 1
        assert "sign-in needed" in told
        assert "run `caretway mcp login notes --mcp-config mcp.json`" in told
        code, told = await person.login(paste=paste)
        assert code == 0, told
        assert "Signed in to notes." in told
        assert "It answers, with 2 tools." in told
        assert "Traceback" not in told
        assert paste == ("this is not the address of the page" in told)
        assert server.accounts.resources == [server.url]
        code, told = await person.type("mcp", "list")
        assert code == 0
        assert "connected, signed in" in told
        assert (tmp_path / "data").stat().st_mode & 0o077 == 0
        files = [path for path in (tmp_path / "data" / "auth").rglob("*") if path.is_file()]
        assert files
        assert all(path.stat().st_mode & 0o077 == 0 for path in files)
        code, told = await person.type("mcp", "logout", "notes")
        assert (code, "Signed out of notes" in told) == (0, True)
        assert f"{SECRET}".encode() not in b"".join(
            path.read_bytes() for path in person.data.rglob("*") if path.is_file()
        )
        code, told = await person.type("mcp", "list")
        assert (code, "sign-in needed" in told) == (1, True)


async def test_call(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (_, _, client):
        assert "note: one" in (await client.chat(read("one"))).text
        (told,) = (await client.http.get("/caretway/v1/health")).json()["mcp"]["servers"]
        assert (told["state"], told["sign_in"], told["note"]) == ("connected", "signed in", "signed in")


async def test_a_server_of_the_older_kind(tmp_path: Path) -> None:
    async with oauth_server("sse") as server:
        person = Person(tmp_path, {"notes": {"url": server.url}})
        code, told = await person.login()
        assert code == 0, told
        assert "It answers, with 2 tools." in told
        async with bridged({"notes": {"url": server.url}}, data_dir=person.data) as client:
            assert "note: one" in (await client.chat(read("one"))).text


async def test_a_sign_in_is_renewed_and_no_call_fails(tmp_path: Path) -> None:
    """Before its end as the server told it, and when the server ends it early; side by side, it is renewed once."""
    async with signed_in(tmp_path) as (server, person, client):
        assert "note: one" in (await client.chat(read("one"))).text
        server.accounts.end_all()
        calls = [json.dumps({"text": str(number)}) for number in range(3)]
        script = " & ".join(f"mcp__notes__read {call}" for call in calls)
        answer = await client.chat(f"sim: call {script}\nsim: result")
        assert all(f"note: {number}" in answer.text for number in range(3))
        assert server.accounts.renewals == 1
        file = kept(person, server)
        sign_in = await file.read()
        assert sign_in is not None
        async with file.locked():
            await file.write(replace(sign_in, ends_at=1.0))
        assert "note: later" in (await client.chat(read("later"))).text
        assert server.accounts.renewals == 2
        assert (await health(client))["problems"] == []


async def test_short_lives(tmp_path: Path) -> None:
    """Tokens of one second: each call finds the last one over."""
    async with oauth_server() as server:
        server.accounts.life = 1
        person = Person(tmp_path, {"notes": {"url": server.url}})
        assert (await person.login())[0] == 0
        async with bridged({"notes": {"url": server.url}}, data_dir=person.data) as client:
            for number in range(3):
                await asyncio.sleep(1.1)
                assert f"note: {number}" in (await client.chat(read(str(number)))).text
            assert server.accounts.renewals >= 3


async def test_a_slow_call_holds_up_no_other(tmp_path: Path) -> None:
    async with signed_in(tmp_path) as (server, _, client):
        slow = asyncio.ensure_future(client.chat('sim: call mcp__notes__wait {"seconds": 600}\nsim: result'))
        while server.waiting == 0:
            await asyncio.sleep(0.01)
        assert "note: quick" in (await client.chat(read("quick"))).text
        server.over.set()
        assert "waited" in (await slow).text


async def test_a_revoked_sign_in_is_named_everywhere(tmp_path: Path) -> None:
    async with signed_in(tmp_path, mcp_retry_pause=60) as (server, person, client):
        assert "note: one" in (await client.chat(read("one"))).text
        server.accounts.revoke_all()
        why = f"does not renew its sign-in ({server.origin} answered HTTP 400, invalid_grant)"
        for _ in range(2):  # at the call that finds out, and later: its tools are still offered
            answer = await client.chat(read("two"))
            assert answer.finish == "stop"
            assert why in answer.text
            assert "run `caretway mcp login notes`" in answer.text
            await until(client, lambda mcp: mcp["servers"] == 0)
        (told,) = (await health(client))["problems"]
        assert (told["state"], why in told["detail"]) == ("signed out", True)
        page = (await client.http.get("/caretway/v1/health")).json()
        assert page["mcp"]["servers"][0]["sign_in"] == "refused"
        (finding,) = [one for one in page["findings"] if one["name"] == "MCP"]
        assert "run `caretway mcp login notes`" in finding["detail"]
        code, out = await person.type("mcp", "list")
        assert (code, "sign-in refused" in out) == (1, True)
        _, out = await person.type("doctor", "--backend", "simulator", "--json")
        (finding,) = [one for one in json.loads(out) if one["name"] == "MCP"]
        assert (finding["ok"], why in finding["detail"]) == (False, True)
        assert finding["hint"] == "Run `caretway mcp login notes --mcp-config mcp.json`."
        assert (await person.login())[0] == 0  # and the gateway that runs takes it up
        await until(client, lambda mcp: mcp["servers"] == 1)
        assert "note: again" in (await client.chat(read("again"))).text


async def test_an_end_without_a_renewal(tmp_path: Path) -> None:
    async with oauth_server() as server:
        server.accounts.life, server.accounts.renewable = 1, False
        person = Person(tmp_path, {"notes": {"url": server.url}})
        assert (await person.login())[0] == 0
        await asyncio.sleep(1.1)
        code, out = await person.type("mcp", "list")
        assert code == 1
        assert "sign-in expired" in out
        assert "its sign-in has expired: run `caretway mcp login notes" in " ".join(out.split())


async def test_logout_takes_effect_in_a_running_gateway(tmp_path: Path) -> None:
    async with signed_in(tmp_path, mcp_retry_pause=60) as (_, person, client):
        assert "note: one" in (await client.chat(read("one"))).text
        assert (await person.type("mcp", "logout", "notes"))[0] == 0
        answer = await client.chat(read("two"))
        assert "it wants a sign-in: run `caretway mcp login notes`" in answer.text
        assert (await person.login())[0] == 0
        await until(client, lambda mcp: mcp["servers"] == 1)
        assert "note: three" in (await client.chat(read("three"))).text


async def test_one_that_nobody_signed_in_to_is_in_nobodys_way(tmp_path: Path) -> None:
    """No browser is opened: there is none to open, and a gateway never asks."""
    async with oauth_server() as server:
        servers = {"notes": {"url": server.url}, "odd": odd()}
        async with bridged(servers, data_dir=tmp_path, mcp_retry_pause=60) as client:
            answer = await client.chat('sim: call mcp__odd__echo {"text": "hi"}\nsim: result')
            assert "plain says hi" in answer.text
            (told,) = (await health(client))["problems"]
            assert told["detail"] == "it wants a sign-in: run `caretway mcp login notes`"
            assert {one["server"] for one in (await tools(client))["data"]} == {"odd"}
        assert server.accounts.clients == {}, "nobody registered"


async def test_tokens_are_written_nowhere_else(tmp_path: Path) -> None:
    """A gateway process with everything that can be written down switched on; a stdio server prints what it gets."""
    async with oauth_server() as server:
        servers = {"notes": {"url": server.url}, "odd": odd()}
        person = Person(tmp_path, servers)
        shown = (await person.login())[1]
        async with simulated() as (_, port):
            flags = ("--mcp-config", str(tmp_path / "mcp.json"), "--trace", str(tmp_path / "trace"))
            with serving(port, tmp_path, *flags) as (url, output):
                async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:

                    async def ask(text: str) -> str:
                        body = {"model": "sim-auto", "messages": [{"role": "user", "content": text}]}
                        return (await http.post(CHAT, json=body, headers=KEY)).text

                    while (await http.get("/v1/tools", headers=KEY)).json()["mcp"]["servers"] < 2:
                        await asyncio.sleep(0.05)
                    answers = [await ask(read("one")), await ask("sim: call mcp__odd__env {}\nsim: result")]
                    assert "note: one" in answers[0]
                    server.accounts.end_all()
                    answers.append(await ask(read("two")))
                    assert "note: two" in answers[2]
                    server.accounts.revoke_all()
                    answers.append(await ask(read("three")))
                    assert "mcp login" in answers[3]
                    paths = ("/health", "/v1/tools", "/metrics", "/caretway/v1/health", "/caretway/v1/conversations")
                    answers += [(await http.get(path, headers=KEY)).text for path in paths]
        answers.append((await person.type("mcp", "list"))[1])
        answers.append((await person.type("doctor", "--backend", "simulator"))[1])
        assert SECRET not in "".join([shown, *answers])
        assert found_in((SECRET,), output, tmp_path / "trace") == []
        holders = {
            path.parent.name[:4]
            for path in person.data.rglob("*")
            if path.is_file() and SECRET.encode() in path.read_bytes()
        }
        assert holders == {"mcp-"}
