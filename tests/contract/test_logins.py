"""How logins end and how they go on: the token symptoms of the service, each by a switch of the simulator.

What the user reads names the cause and the next command. Clocks are moved by hand; processes, files and sockets are
real.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from caretway.accounts.account import Account
from caretway.accounts.login import EXCHANGE, OAUTH, REFRESH, TOKEN, invite, sign_in
from caretway.accounts.store import StoredAccount
from caretway.accounts.tokens import RenewedToken
from caretway.core.errors import ErrorKind, GatewayError
from caretway.gateway import Gateway
from caretway.processes.tasks import spawn
from caretway.upstream import sign_ins
from caretway_sim.manners import CLASSIC, LIVE, Manners
from contract.gateways import CHAT
from contract.test_accounts import ASK, Cursor, cursor_with, no_sleep, run_command
from contract.test_commands import ADDRESS, caretway, read_until

DAY = 86400
WAYS = [EXCHANGE, OAUTH, TOKEN, REFRESH]


class Login:
    """A sign-in by browser to a simulator, on disk, and everybody who uses it."""

    def __init__(self, cursor: Cursor, home: Path) -> None:
        self.cursor = cursor
        self.home = home
        self.asked: list[str] = []
        self.settings = cursor.settings(home / ".local" / "share" / "caretway", backend="agent")
        self.kept = sign_ins(self.settings)

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        self.asked.append(path)
        return await self.cursor.call(method, path, headers, body)

    async def sign_in(self) -> Account:
        account = await sign_in(invite(os.urandom(32), "u"), self.cursor.call, no_sleep, lambda: self.cursor.now)
        self.kept.keep(self.cursor.url, account)
        return account

    def source(self) -> RenewedToken:
        return RenewedToken(StoredAccount(self.kept, self.cursor.url), self.call, lambda: self.cursor.now)

    async def works(self, token: str) -> bool:
        return (await self.cursor.call("GET", "/v1/me", {"authorization": f"Bearer {token}"}, b""))[0] == 200

    async def command(self, *arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(run_command, self.home, "", *arguments, "--agent-url", self.cursor.url)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    async def told(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        done = await asyncio.to_thread(run_command, self.home, "", *arguments, "--agent-url", self.cursor.url)
        return json.loads(done.stdout)

    @property
    def stored(self) -> Account:
        account = self.kept.find(self.cursor.url)
        assert account is not None
        return account


@asynccontextmanager
async def login_with(manners: Manners, tmp_path: Path) -> AsyncIterator[Login]:
    async with cursor_with(manners, tmp_path / "data") as cursor:
        yield Login(cursor, tmp_path)


def switched(**flips: Any) -> Manners:
    return replace(CLASSIC, **flips)


# ---- T2: where a login is renewed

PLACES = [("exchange", EXCHANGE), ("oauth", OAUTH), ("token", TOKEN), ("refresh", REFRESH)]


@pytest.mark.parametrize("rotates", [False, True], ids=["keeps", "rotates"])
@pytest.mark.parametrize(("place", "path"), PLACES)
async def test_t2_whichever_way_works_is_found_and_remembered(
    place: str, path: str, rotates: bool, tmp_path: Path
) -> None:
    async with login_with(switched(refresh_at=place, rotates_refresh=rotates), tmp_path) as login:
        await login.sign_in()
        for expected in (WAYS[: WAYS.index(path) + 1], [path], [path]):
            login.asked.clear()
            login.cursor.now += 3500
            assert await login.works(await login.source().token())
            assert login.asked == expected
        assert login.cursor.counts == (0, 3)


async def test_t2_a_week_with_one_token_in_both_places(tmp_path: Path) -> None:
    async with login_with(LIVE, tmp_path) as login:
        account = await login.sign_in()
        assert account.access_token == account.refresh_token
        source = login.source()
        for _ in range(7 * 24 * 6):
            assert await login.works(await source.token())
            login.cursor.now += 600
        assert login.cursor.counts == (0, 7), "every 22 hours"
        assert login.asked == [EXCHANGE, *[OAUTH] * 7]


async def test_t2_nobody_renews_and_everybody_says_so(tmp_path: Path) -> None:
    """The gateway goes on while the token lives; two commands in other processes know what it has learned."""
    async with login_with(switched(refresh_at="nowhere", sign_in_life_s=DAY), tmp_path) as login:
        cursor = login.cursor
        cursor.now = time.time() - DAY + 3600
        await login.sign_in()
        cursor.now = time.time()
        async with (
            Gateway(login.settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, verify=False, timeout=30) as http,
        ):
            assert (await http.post(CHAT, json=ASK)).status_code == 200
            assert login.stored.dead(time.time())

            status = await login.told("status", "--json")
            assert status["signed_in"] is True
            assert "Cursor refused it" in status["renewal"] and "run `caretway login`" in status["renewal"]
            findings = {one["name"]: one for one in await login.told("doctor", "--json", "--port", "0")}
            assert findings["account"]["ok"] and "run `caretway login`" in findings["account"]["hint"]
            assert cursor.simulator.stats.renewals_refused == len(WAYS), "once, by one process"

            cursor.now += 3600
            over = await http.post(CHAT, json=ASK)
            assert over.status_code == 401
            said = over.json()["error"]["message"]
            assert "has ended" in said and "Run `caretway login`" in said
            assert cursor.simulator.stats.renewals_refused == len(WAYS)

            await login.sign_in()
            assert (await http.post(CHAT, json=ASK)).status_code == 200, "a login is noticed at once"


async def test_t2_an_ended_login_is_no_longer_called_good(tmp_path: Path) -> None:
    async with login_with(switched(refresh_at="nowhere"), tmp_path) as login:
        login.cursor.now = time.time() - 4000
        await login.sign_in()
        login.cursor.now = time.time()
        code, said = await login.command("status")
        assert code == 1 and "renewal" in said and "run `caretway login`" in said
        findings = {one["name"]: one for one in await login.told("doctor", "--json", "--port", "0")}
        assert not findings["account"]["ok"] and not findings["Cursor"]["ok"]
        assert "`caretway login`" in findings["account"]["hint"]


async def test_t2_a_renewal_that_is_down_ends_nothing(tmp_path: Path) -> None:
    async with login_with(switched(renewal_down=503), tmp_path) as login:
        account = await login.sign_in()
        source = login.source()
        login.cursor.now += 3400
        assert await source.token() == account.access_token
        assert not login.stored.refused, "nobody has refused it"
        login.cursor.now += 300
        with pytest.raises(GatewayError, match="HTTP 503") as down:
            await source.token()
        assert down.value.kind is ErrorKind.UPSTREAM_DOWN
        assert "Try again in a few minutes" in down.value.hint and "caretway login" in down.value.hint


async def test_t1_a_token_of_the_settings_that_is_over(tmp_path: Path) -> None:
    async with login_with(CLASSIC, tmp_path) as login:
        settings = login.cursor.settings(tmp_path / "data", backend="agent", access_token="expired-1")
        async with (
            Gateway(settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, verify=False, timeout=30) as http,
        ):
            refused = await http.post(CHAT, json=ASK)
        assert refused.status_code == 401
        said = refused.json()["error"]["message"]
        assert "access token of the settings (code)" in said and "Take it out of the settings" in said
        assert "expired-1" not in said


# ---- T3: how a sign-in ends

ENDS = [(403, "does not allow this sign-in", "--api-key-stdin"), (410, "no longer valid", "Run `caretway login` again")]


@pytest.mark.parametrize(("status", "cause", "command"), ENDS)
async def test_t3_a_final_answer_ends_the_sign_in_at_once(
    status: int, cause: str, command: str, tmp_path: Path
) -> None:
    async with login_with(switched(sign_in_ends=status), tmp_path) as login:
        code, said = await login.command("login", "--no-browser")
        assert code == 1 and cause in said and command in said
        assert login.kept.find(login.cursor.url) is None


# ---- one login, several processes


async def test_two_gateways_and_a_command_share_a_login_that_changes_with_every_renewal(tmp_path: Path) -> None:
    """A refresh token works once: whoever sent an old one would be signed out, and all the others with it."""
    rounds = 4
    async with login_with(switched(rotates_refresh=True), tmp_path) as login:
        login.cursor.now = time.time()
        await login.sign_in()
        with ExitStack() as processes:
            reach = ("--agent-url", login.cursor.url, "--backend", "agent")
            serving = [
                processes.enter_context(caretway("serve", "--port", "0", *reach, home=tmp_path)) for _ in range(2)
            ]
            urls = [await asyncio.to_thread(read_until, process, ADDRESS) for process in serving]
            async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
                for number in range(1, rounds + 1):
                    await login.cursor.revoke("session")
                    *answers, status = await asyncio.gather(
                        *(http.post(f"{url}{CHAT}", json=ASK) for url in urls * 4),
                        login.told("status", "--json", "--backend", "agent"),
                    )
                    assert [answer.status_code for answer in answers] == [200] * 8
                    assert status["signed_in"] is True and status["renewal"] is None
                    assert login.cursor.counts == (0, number), "one renewal for all of them"
        assert login.cursor.simulator.stats.renewals_refused == 0
        assert await login.works(login.stored.access_token)


async def test_a_login_while_others_renew_is_the_one_that_stays(tmp_path: Path) -> None:
    async with login_with(switched(rotates_refresh=True), tmp_path) as login:
        login.cursor.now = time.time()
        await login.sign_in()
        with ExitStack() as processes:
            reach = ("--agent-url", login.cursor.url, "--backend", "agent")
            serving = processes.enter_context(caretway("serve", "--port", "0", *reach, home=tmp_path))
            url = await asyncio.to_thread(read_until, serving, ADDRESS)
            async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
                await login.cursor.revoke("session")
                answer, (code, said) = await asyncio.gather(
                    http.post(f"{url}{CHAT}", json=ASK), login.command("login", "--no-browser")
                )
                assert (answer.status_code, code) == (200, 0), said
                assert "It works until" in said
                assert (await http.post(f"{url}{CHAT}", json=ASK)).status_code == 200
                code, said = await login.command("logout")
                assert code == 0
                assert (await http.post(f"{url}{CHAT}", json=ASK)).status_code == 401


HOLDER = """
import asyncio, sys
from pathlib import Path
from caretway.accounts.store import open_sign_ins

async def main():
    async with open_sign_ins(Path(sys.argv[1]), "file").locked():
        print("locked", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_process_that_is_killed_while_it_renews_holds_nobody_up(tmp_path: Path) -> None:
    async with login_with(switched(rotates_refresh=True), tmp_path) as login:
        await login.sign_in()
        command = (sys.executable, "-c", HOLDER, str(login.settings.data_dir))
        holder = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            assert await holder.stdout.readline() == b"locked\n"
            login.cursor.now += 3500
            waiting = spawn(login.source().token(), "token")
            await asyncio.wait([waiting], timeout=0.3)
            assert not waiting.done() and login.asked == [], "the other process may be renewing it"
        finally:
            holder.kill()
            await holder.wait()
        assert await login.works(await waiting)
        assert login.cursor.counts == (0, 1)


# ---- a copied login


def write_agent_login(home: Path, account: Account) -> Path:
    """As cursor-agent does it."""
    file = home / ".config" / "cursor" / "auth.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"accessToken": account.access_token, "refreshToken": account.refresh_token}))
    return file


async def test_t2_an_import_works_while_the_access_token_does(tmp_path: Path) -> None:
    """It is about to end, and nobody renews it; it is copied all the same, with the time of its end."""
    async with login_with(switched(refresh_at="nowhere", sign_in_life_s=DAY), tmp_path) as login:
        login.cursor.now = time.time() - DAY + 3600
        account = await login.sign_in()
        login.cursor.now = time.time()
        login.kept.forget(login.cursor.url)
        file = write_agent_login(tmp_path, account)
        code, said = await login.command("login", "--import")
        assert code == 0 and "It works until" in said
        assert login.cursor.simulator.stats.renewals_refused == 0, "the refresh token is left to its owner"

        async with (
            Gateway(login.settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, verify=False, timeout=30) as http,
        ):
            assert (await http.post(CHAT, json=ASK)).status_code == 200
            await login.cursor.revoke("session")
            over = await http.post(CHAT, json=ASK)
            assert over.status_code == 401 and str(file) in over.json()["error"]["message"]
            status = await login.told("status", "--json")
            assert str(file) in status["renewal"]

            login.kept.keep("https://other.example", Account(api_key="k"))  # any change makes the gateway look again
            again = await sign_in(invite(os.urandom(32), "v"), login.cursor.call, no_sleep, time.time)
            write_agent_login(tmp_path, again)
            assert (await http.post(CHAT, json=ASK)).status_code == 200, (
                "cursor-agent signed in again, and that is enough"
            )
            assert login.stored.access_token == again.access_token


async def test_t2_an_import_that_is_over_says_what_to_do(tmp_path: Path) -> None:
    async with login_with(switched(refresh_at="nowhere"), tmp_path) as login:
        login.cursor.now = time.time()
        account = await login.sign_in()
        login.kept.forget(login.cursor.url)
        await login.cursor.revoke("session")
        for refresh in (account.refresh_token, ""):
            write_agent_login(tmp_path, replace(account, refresh_token=refresh))
            code, said = await login.command("login", "--import")
            assert code == 1 and "Sign in again with the program it comes from" in said
            assert account.access_token not in said
            assert login.kept.find(login.cursor.url) is None, "what Cursor refused is not stored"
