"""Sign in, stay signed in, be signed out: against the simulator, on real sockets, in real processes."""

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from caretway.accounts.account import Account
from caretway.accounts.login import Call, invite, sign_in
from caretway.accounts.store import StoredAccount
from caretway.accounts.tokens import RenewedToken, exchanged_key
from caretway.config import Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.gateway import Gateway
from caretway.upstream import choose_backend, open_call, sign_ins
from caretway_sim import Simulator
from caretway_sim.manners import CLASSIC, Manners
from contract.gateways import CHAT
from contract.test_commands import ADDRESS, caretway, read_until

ASK = {"model": "sim-auto", "messages": [{"role": "user", "content": "sim: say fine"}]}


class Cursor:
    """A simulator on a socket, with a clock that is moved by hand."""

    def __init__(self, manners: Manners = CLASSIC) -> None:
        self.now = 1_800_000_000.0
        self.simulator = Simulator(clock=lambda: self.now, manners=manners)
        self.url = ""
        self.call: Call

    @property
    def counts(self) -> tuple[int, int]:
        stats = self.simulator.stats
        return stats.token_exchanges, stats.token_refreshes

    async def revoke(self, kind: str) -> None:
        body = json.dumps({"type": kind}).encode()
        assert (await self.call("POST", "/_sim/revoke", {"content-type": "application/json"}, body))[0] == 200

    def settings(self, data_dir: Path, **more: object) -> Settings:
        return Settings(**{"port": 0, "agent_url": self.url, "data_dir": data_dir, **more})  # type: ignore[arg-type]  # a table of settings


@asynccontextmanager
async def cursor_with(manners: Manners, tmp_path: Path) -> AsyncIterator[Cursor]:
    there = Cursor(manners)
    there.url = f"http://127.0.0.1:{await there.simulator.listen('127.0.0.1', 0)}"
    try:
        async with open_call(there.settings(tmp_path)) as there.call:
            yield there
    finally:
        await there.simulator.aclose()


@pytest.fixture
async def cursor(tmp_path: Path) -> AsyncIterator[Cursor]:
    async with cursor_with(CLASSIC, tmp_path) as there:
        yield there


async def no_sleep(_: float) -> None:
    pass


# ---- signing in


async def test_only_the_holder_of_the_verifier_gets_the_sign_in(cursor: Cursor) -> None:
    ours = invite(os.urandom(32), "uuid-1")
    stranger = invite(os.urandom(32), "uuid-1")
    link = ours.link(cursor.url).removeprefix(cursor.url)
    assert (await cursor.call("GET", link, {}, b""))[0] == 200
    question = json.dumps({"uuid": "uuid-1", "verifier": stranger.verifier}).encode()
    assert (await cursor.call("POST", "/auth/poll", {}, question))[0] == 404
    account = await sign_in(ours, cursor.call, no_sleep, lambda: cursor.now)
    assert account.name == "simulated|user" and account.refresh_token


async def test_asking_goes_on_until_the_user_has_agreed(cursor: Cursor) -> None:
    ours = invite(os.urandom(32), "uuid-2")
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    assert (await sign_in(ours, cursor.call, sleep, lambda: cursor.now)).access_token
    assert pauses == [1.0], "the simulated user agrees at the second question"


def test_the_command_signs_in_a_gateway_that_already_runs(tmp_path: Path) -> None:
    with ExitStack() as processes:
        simulator = processes.enter_context(caretway("simulate", "--port", "0", home=tmp_path))
        reach = ("--agent-url", read_until(simulator, ADDRESS))
        gateway = processes.enter_context(caretway("serve", "--port", "0", *reach, home=tmp_path))
        chat = f"{read_until(gateway, ADDRESS)}{CHAT}"
        first = httpx.post(chat, json=ASK, trust_env=False)
        assert first.status_code == 401 and "caretway login" in first.json()["error"]["message"]

        login = processes.enter_context(caretway("login", "--no-browser", *reach, home=tmp_path))
        link = read_until(login, re.compile(r"http://\S+/loginDeepControl\S+"))
        with urllib.request.urlopen(link, timeout=20) as page:
            assert b"signed in" in page.read()
        read_until(login, re.compile("Signed in as simulated"))
        assert login.wait(30) == 0
        assert httpx.post(chat, json=ASK, trust_env=False).json()["choices"][0]["message"]["content"] == "fine"

        status = processes.enter_context(caretway("status", "--json", *reach, home=tmp_path))
        told = json.loads(status.communicate(timeout=30)[0])
        assert (told["signed_in"], told["account"], told["backend"]) == (True, "simulated|user", "agent")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", told["expires"])

        logout = processes.enter_context(caretway("logout", *reach, home=tmp_path))
        assert logout.wait(30) == 0
        assert httpx.post(chat, json=ASK, trust_env=False).status_code == 401


KEPT = [
    (("--api-key-stdin",), "crsr_good\n", 0, "Signed in as simulated"),
    (("--api-key-stdin",), "bad-key\n", 1, "does not accept the API key"),
    (("--api-key-stdin",), "\n", 1, "not an API key"),
    (("--import",), "", 1, "no other program has a sign-in here"),
]


@pytest.mark.parametrize(("flags", "typed", "code", "said"), KEPT)
async def test_other_ways_to_sign_in(
    cursor: Cursor, tmp_path: Path, flags: tuple[str, ...], typed: str, code: int, said: str
) -> None:
    done = await asyncio.to_thread(run_command, tmp_path, typed, "login", *flags, "--agent-url", cursor.url)
    assert done.returncode == code and said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr and (not typed.strip() or typed.strip() not in done.stdout + done.stderr)


async def test_what_cursor_agent_keeps_is_taken_over(cursor: Cursor, tmp_path: Path) -> None:
    theirs = tmp_path / ".config" / "cursor" / "auth.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(json.dumps({"refreshToken": "r-1", "apiKey": "k-1"}))
    done = await asyncio.to_thread(run_command, tmp_path, "", "login", "--import", "--agent-url", cursor.url)
    assert (done.returncode, done.stderr) == (0, f"caretway: copying the sign-in from {theirs}\n")
    kept = tmp_path / ".local" / "share" / "caretway" / "auth" / "accounts.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text())["accounts"][cursor.url]["api_key"] == "k-1"


def run_command(home: Path, typed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "caretway", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        check=False,
    )


def test_a_sign_in_chooses_the_agent_backend(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert choose_backend(settings) == "simulator"
    sign_ins(settings).keep("https://elsewhere.example", Account(api_key="k"))
    assert choose_backend(settings) == "simulator", "a sign-in belongs to its address"
    sign_ins(settings).keep(settings.agent_url, Account(access_token="a", refresh_token="r"))
    assert choose_backend(settings) == "agent"


@pytest.mark.seed("D15")
async def test_cursor_agent_signs_in_by_itself(tmp_path: Path) -> None:
    program = tmp_path / "cursor-agent"
    program.write_text('#!/bin/sh\necho "asked to $1"\nexit 3\n')
    program.chmod(0o755)
    ask = ("login", "--backend", "cli", "--agent-bin")
    done = await asyncio.to_thread(run_command, tmp_path, "", *ask, str(program))
    assert (done.returncode, done.stdout) == (3, "asked to login\n")
    none = await asyncio.to_thread(run_command, tmp_path, "", *ask, str(tmp_path / "absent"))
    assert none.returncode == 1 and "no cursor-agent program" in none.stderr


# ---- staying signed in


@pytest.mark.seed("A06")
async def test_a_day_of_renewals_on_a_clock_moved_by_hand(cursor: Cursor, tmp_path: Path) -> None:
    kept = sign_ins(cursor.settings(tmp_path))
    kept.keep(cursor.url, await sign_in(invite(os.urandom(32), "u"), cursor.call, no_sleep, lambda: cursor.now))
    source = RenewedToken(StoredAccount(kept, cursor.url), cursor.call, lambda: cursor.now)
    for _ in range(24 * 60):
        token = await source.token()
        headers = {"authorization": f"Bearer {token}"}
        assert (await cursor.call("GET", "/v1/me", headers, b""))[0] == 200, "never sent after its end"
        cursor.now += 60
    assert cursor.counts == (0, 26), "every 55 minutes"


@pytest.mark.parametrize("skew", [-7200.0, 7200.0])
async def test_two_hours_of_clock_skew(cursor: Cursor, skew: float) -> None:
    source = exchanged_key("key", cursor.call, lambda: cursor.now + skew)
    for _ in range(110):
        headers = {"authorization": f"Bearer {await source.token()}"}
        assert (await cursor.call("GET", "/v1/me", headers, b""))[0] == 200
        cursor.now += 60
    assert cursor.counts == (2, 0)


@pytest.mark.seed("C05")
async def test_revoked_for_good_is_told_with_the_command_to_type(cursor: Cursor, tmp_path: Path) -> None:
    kept = sign_ins(cursor.settings(tmp_path))
    kept.keep(cursor.url, await sign_in(invite(os.urandom(32), "u"), cursor.call, no_sleep, lambda: cursor.now))
    source = RenewedToken(StoredAccount(kept, cursor.url), cursor.call, lambda: cursor.now)
    token = await source.token()
    await cursor.revoke("refresh")
    cursor.now += 3400
    assert await source.token() == token, "a renewal that fails is no outage while the token lives"
    cursor.now += 300
    with pytest.raises(GatewayError, match="caretway login") as over:
        await source.token()
    assert over.value.kind is ErrorKind.SIGNED_OUT


@pytest.mark.seed("E14")
async def test_a_refused_token_is_replaced_once_for_a_crowd(tmp_path: Path) -> None:
    simulator = Simulator()
    url = f"http://127.0.0.1:{await simulator.listen('127.0.0.1', 0)}"
    settings = Settings(port=0, backend="agent", agent_url=url, data_dir=tmp_path, api_key="key")
    try:
        async with (
            Gateway(settings) as gateway,
            open_call(settings) as call,
            httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, verify=False, timeout=30) as http,
        ):
            assert (await http.post(CHAT, json=ASK)).status_code == 200
            assert simulator.stats.token_exchanges == 1
            await call("POST", "/_sim/revoke", {}, b'{"type": "session"}')
            answers = await asyncio.gather(*(http.post(CHAT, json=ASK) for _ in range(20)))
            assert [answer.status_code for answer in answers] == [200] * 20
            assert simulator.stats.token_exchanges == 2
    finally:
        await simulator.aclose()


PROCESS = """
import asyncio, sys, time
from pathlib import Path
from caretway.upstream import open_call, sign_ins
from caretway.accounts.store import StoredAccount
from caretway.accounts.tokens import RenewedToken
from caretway.config import Settings

async def main():
    settings = Settings(agent_url=sys.argv[1], data_dir=Path(sys.argv[2]))
    async with open_call(settings) as call:
        print("ready", flush=True)
        sys.stdin.readline()
        source = RenewedToken(StoredAccount(sign_ins(settings), settings.agent_url), call, time.time)
        print(await source.token(), flush=True)

asyncio.run(main())
"""


async def test_four_processes_renew_once(tmp_path: Path) -> None:
    simulator = Simulator()
    url = f"http://127.0.0.1:{await simulator.listen('127.0.0.1', 0)}"
    sign_ins(Settings(agent_url=url, data_dir=tmp_path)).keep(url, Account(refresh_token="r-1", api_key="k"))
    command = [sys.executable, "-c", PROCESS, url, str(tmp_path)]
    processes = [
        await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
        outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
        tokens = {output[0] for output in outputs}
        assert len(tokens) == 1 and tokens != {b""}
        assert simulator.stats.token_exchanges + simulator.stats.token_refreshes == 1
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await simulator.aclose()


# ---- doctor


async def test_doctor_says_what_is_wrong_and_what_to_type(cursor: Cursor, tmp_path: Path) -> None:
    ask = ("doctor", "--json", "--port", "0", "--agent-url", cursor.url)
    ill = await asyncio.to_thread(run_command, tmp_path, "", *ask)
    found = {one["name"]: one for one in json.loads(ill.stdout)}
    assert ill.returncode == 1 and not found["account"]["ok"] and "caretway login" in found["account"]["hint"]
    sign_ins(cursor.settings(tmp_path / ".local" / "share" / "caretway")).keep(cursor.url, Account(api_key="k"))
    cursor.now = time.time()
    well = await asyncio.to_thread(run_command, tmp_path, "", *ask)
    assert well.returncode == 0, well.stdout
    assert [one["name"] for one in json.loads(well.stdout)] == [
        "caretway",
        "settings",
        "data directory",
        "ledger",
        "backend",
        "account",
        "network",
        "identity",
        "the address",
        "port",
        "history",
    ]


async def test_doctor_and_status_have_nothing_against_clients_with_keys_of_their_own(
    cursor: Cursor, tmp_path: Path
) -> None:
    """The owner's own key is there, and is not used to find out."""
    reach = ("--json", "--auth-mode", "passthrough", "--agent-url", cursor.url)
    settings = tmp_path / "key.toml"
    settings.write_text('api_key = "crsr_owner"')
    for more in ((), ("--config", str(settings))):
        doctor = await asyncio.to_thread(run_command, tmp_path, "", "doctor", "--port", "0", *reach, *more)
        found = {one["name"]: one for one in json.loads(doctor.stdout)}
        assert doctor.returncode == 0, doctor.stdout
        assert found["account"]["detail"] == "every client brings its own Cursor API key; no sign-in here"
        assert cursor.url in found["the address"]["detail"]
        status = await asyncio.to_thread(run_command, tmp_path, "", "status", *reach, *more)
        assert status.returncode == 0 and json.loads(status.stdout)["passthrough"] is True
    assert cursor.counts == (0, 0)


async def test_doctor_finds_an_address_without_anybody_in_passthrough_mode_too(tmp_path: Path) -> None:
    reach = ("--json", "--auth-mode", "passthrough", "--agent-url", "http://127.0.0.1:9")
    done = await asyncio.to_thread(run_command, tmp_path, "", "doctor", "--port", "0", *reach)
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 1 and found["account"]["ok"]
    assert not found["Cursor"]["ok"] and "cannot connect to 127.0.0.1:9" in found["Cursor"]["detail"]


async def test_status_says_what_an_api_key_is(cursor: Cursor, tmp_path: Path) -> None:
    settings = tmp_path / "key.toml"
    settings.write_text('api_key = "crsr_mine"')
    reach = ("--backend", "agent", "--agent-url", cursor.url, "--config", str(settings))
    done = await asyncio.to_thread(run_command, tmp_path, "", "status", *reach)
    assert done.returncode == 0 and "crsr_mine" not in done.stdout
    assert f"with       API key (file {settings})\nuntil      no expiry known\n" in done.stdout
