"""Renewals, imported sign-ins and questions about the account's usage take the same way as runs: through the proxy, to
the API's host. The stand-ins refuse whoever comes in another way."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from caretway.accounts.account import Account
from caretway.backends.agent.backend import AgentBackend
from caretway.config import Settings, hosts
from caretway.core.errors import ErrorKind, GatewayError
from caretway.gateway import Gateway
from caretway.upstream import open_backend, sign_ins
from caretway_sim import Simulator
from caretway_sim.accounts import Accounts
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.proxy import SimProxy
from caretway_sim.shared import Shared
from contract.gateways import Client
from contract.proxied.sites import Site, ask, run, site, told

BOTH = pytest.mark.parametrize(("variable", "kind"), [("HTTPS_PROXY", "http"), ("ALL_PROXY", "socks5h")])
PLACES = {"exchange": 0, "oauth": 1, "token": 2, "refresh": 3}
"""Where a refresh token is taken, and how many others are asked before."""


def over(key: str = "key") -> Account:
    """A sign-in whose access token has expired."""
    issued = Accounts(Shared()).exchange(key)
    assert issued is not None
    return Account("expired-1", issued["refreshToken"])


async def signed_in(there: Site, data_dir: Path, account: Account, **more: Any) -> Settings:
    settings = there.settings(access_token=None, data_dir=data_dir, **more)
    kept = sign_ins(settings)
    async with kept.locked():
        kept.keep(hosts(settings).api, account)
    return settings


@BOTH
@pytest.mark.parametrize("place", PLACES)
async def test_t2_every_way_to_renew_a_login(
    place: Any,
    variable: str,
    kind: str,
    authority: tuple[trustme.CA, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    transport: str,
) -> None:
    manners = replace(LIVE_AT_ONCE, refresh_at=place)
    async with site(authority, SimProxy(), manners=manners) as there:
        monkeypatch.setenv(variable, f"{kind}://127.0.0.1:{there.proxy_port}")
        answer = await ask(await signed_in(there, tmp_path, over(), agent_transport=transport))
        assert answer.text == "through", answer.error
        stats = there.simulator.stats
        assert (stats.token_refreshes, stats.renewals_refused) == (1, PLACES[place])
        assert there.turned_away == 0 and 0 < stats.connections <= len(there.proxy.asked)


async def test_t2_a_proxy_that_is_down_does_not_end_a_login(authority: tuple[trustme.CA, Path], tmp_path: Path) -> None:
    async with site(authority, SimProxy()) as there:
        login = over()
        settings = await signed_in(there, tmp_path, login, proxy="http://127.0.0.1:9")
        status, code, message = told(await ask(settings))
        assert (status, code) == (503, "proxy_down") and "cannot connect to the proxy 127.0.0.1:9" in message
        kept = sign_ins(settings).find(there.url)
        assert kept is not None and not kept.refused and kept.refresh_token == login.refresh_token
        settings = replace(settings, proxy=f"http://127.0.0.1:{there.proxy_port}")
        assert (await ask(settings)).text == "through"


async def test_a_sign_in_of_another_program(authority: tuple[trustme.CA, Path], tmp_path: Path) -> None:
    async with site(authority, SimProxy()) as there:
        way = {"HTTPS_PROXY": f"http://127.0.0.1:{there.proxy_port}"}
        file = tmp_path / "auth.json"
        for tokens, refreshes in [
            ({"accessToken": "good"}, 0),
            ({"accessToken": "bad", "refreshToken": over().refresh_token}, 1),
        ]:
            file.write_text(json.dumps(tokens))
            code, output, errors = await run(there, tmp_path, "login", "--import", str(file), **way)
            assert code == 0 and "Signed in" in output, errors
            assert there.simulator.stats.token_refreshes == refreshes
        assert there.turned_away == 0 and len(there.proxy.asked) >= 2


@BOTH
async def test_u5_the_usage_is_asked_for_through_the_proxy(
    variable: str,
    kind: str,
    authority: tuple[trustme.CA, Path],
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
) -> None:
    async with site(authority, SimProxy()) as there:
        monkeypatch.setenv(variable, f"{kind}://127.0.0.1:{there.proxy_port}")
        settings = there.settings(access_token="spent=100 team=4", agent_transport=transport)
        found = told(await ask(settings, "sim: fail bare", model="gpt-5.4"))
        assert found[:2] == (402, "insufficient_quota"), "a limit with some left may be off"
        found = told(await ask(replace(settings, access_token="spent=100"), "sim: fail bare", model="gpt-5.4"))
        assert found[:2] == (402, "insufficient_quota")
        assert there.simulator.stats.usage_asked == 3, "a seat is asked for with its team"
        async with open_backend(settings) as backend:
            assert isinstance(backend, AgentBackend)
            account = await backend.usage.account()
            assert (account.plan.name, account.period.team) == ("Team", 4)
            assert (await backend.usage.events(0.0, 4e9, team=4)).complete
        assert there.turned_away == 0
        assert 0 < there.simulator.stats.connections <= len(there.proxy.asked)


async def test_a_question_about_usage_names_the_proxy_that_failed(authority: tuple[trustme.CA, Path]) -> None:
    async with site(authority, SimProxy("me", "word")) as there:
        settings = there.settings(proxy=f"http://127.0.0.1:{there.proxy_port}")
        async with open_backend(settings) as backend:
            assert isinstance(backend, AgentBackend)
            with pytest.raises(GatewayError) as refused:
                await backend.usage.current()
            assert refused.value.kind is ErrorKind.UPSTREAM_DOWN and refused.value.code == "proxy_password"


async def test_a3_three_hosts_behind_one_proxy(
    authority: tuple[trustme.CA, Path], tmp_path: Path, transport: str
) -> None:
    """Renewals, models and usage belong to the API; only runs go to their own host."""
    proxy = SimProxy()
    manners = replace(LIVE_AT_ONCE, refresh_at="oauth")
    async with site(authority, proxy, manners=manners) as api, site(authority, proxy, manners=manners) as runs:
        settings = await signed_in(
            api,
            tmp_path,
            over("key spent=100"),
            agent_url=runs.url,
            api_url=api.url,
            agent_transport=transport,
            proxy=f"http://127.0.0.1:{api.proxy_port}",
        )
        known = hosts(settings)
        assert (known.login, known.api, known.run) == (api.url, api.url, runs.url)
        async with (
            Gateway(settings) as gateway,
            httpx.AsyncClient(base_url=gateway.base_url, timeout=60, trust_env=False, verify=False) as http,
        ):
            client = Client(gateway, runs.simulator, http)
            assert (await client.chat("sim: say there", model="gpt-5.4")).text == "there"
            assert told(await client.chat("sim: fail bare", model="gpt-5.4"))[:2] == (402, "insufficient_quota")
        counted = [(one.stats.token_refreshes, one.stats.usage_asked, one.stats.runs_opened) for one in both(api, runs)]
        assert counted == [(1, 1, 0), (0, 0, 2)]
        assert [api.turned_away, runs.turned_away] == [0, 0]


def both(api: Site, runs: Site) -> tuple[Simulator, Simulator]:
    return api.simulator, runs.simulator
