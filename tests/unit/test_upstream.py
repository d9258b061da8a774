"""Which backend the settings mean, with whose credentials, which MCP servers, and what is refused before anything is
opened."""

import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from caretway import upstream
from caretway.accounts.account import Account
from caretway.backends.text_protocol.backend import TextToolBackend
from caretway.config import SETTINGS, Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.upstream import (
    BACKENDS,
    build_backend,
    choose_backend,
    holder,
    mcp_bridge,
    open_backend,
    open_mcp_bridge,
    open_trace,
    sign_ins,
    stand_ins,
    standing_of,
    without_credentials,
)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without cursor-agent, without the SDK, and without a sign-in. Its data directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(upstream, "_sdk_installed", lambda: False)
    return tmp_path / "data"


CHOICES: list[tuple[dict[str, object], str]] = [
    ({}, "simulator"),
    ({"backend": "legacy-chat"}, "legacy-chat"),
    ({"api_key": "key"}, "agent"),
    ({"access_token": "token"}, "agent"),
    ({"agent_url": "http://localhost:1"}, "agent"),
    ({"agent_bin": "somewhere"}, "cli"),
    ({"api_key": "key", "agent_bin": "somewhere"}, "agent"),
    ({"backend": "simulator", "api_key": "key"}, "simulator"),
    ({"auth_mode": "passthrough"}, "agent"),
]


@pytest.mark.parametrize(("given", "expected"), CHOICES, ids=lambda value: str(value))
def test_what_the_settings_mean(bare: Path, given: dict[str, object], expected: str) -> None:
    assert choose_backend(Settings(data_dir=bare, **given)) == expected  # type: ignore[arg-type]  # by name


def test_an_api_key_goes_to_the_official_package_where_it_is(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_sdk_installed", lambda: True)
    assert choose_backend(Settings(data_dir=bare, api_key="key")) == "sdk"
    assert choose_backend(Settings(data_dir=bare, api_key="key", access_token="token")) == "agent"


def test_a_sign_in_on_this_machine_is_used(bare: Path) -> None:
    settings = Settings(data_dir=bare, token_store="file")
    sign_ins(settings).keep(settings.agent_url, Account(refresh_token="again", who="me@example.com"))
    assert choose_backend(settings) == "agent"
    assert holder(settings).name == "me@example.com"


def test_whose_account_it_is(bare: Path) -> None:
    """The settings win over the sign-in, and clients' keys over the owner's account."""
    settings = Settings(data_dir=bare, token_store="file")
    assert holder(settings) == Account()
    sign_ins(settings).keep(settings.agent_url, Account(refresh_token="again", who="me"))
    named = Settings(data_dir=bare, token_store="file", access_token="token", api_key="key")
    assert holder(named) == Account("token")
    keyed = Settings(data_dir=bare, token_store="file", api_key="key")
    assert holder(keyed) == Account(api_key="key")
    passing = Settings(data_dir=bare, token_store="file", auth_mode="passthrough")
    assert holder(passing) == Account()


def test_clients_accounts_get_nothing_of_the_owners(bare: Path) -> None:
    bare_settings = without_credentials(Settings(data_dir=bare, api_key="key", access_token="token"))
    assert (bare_settings.api_key, bare_settings.access_token, bare_settings.local_tools) == (None, None, "off")
    asked_for = without_credentials(Settings(data_dir=bare, local_tools="all"))
    assert asked_for.local_tools == "all", "who says so means it"


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"backend": "cli", "auth_mode": "passthrough"}, "--backend agent"),
    ({"backend": "sdk", "api_key": "key"}, "-m pip install 'cursor-sdk"),
]


@pytest.mark.parametrize(("given", "way_out"), REFUSED, ids=lambda value: str(value))
async def test_what_cannot_be_had_names_the_way_out(bare: Path, given: dict[str, object], way_out: str) -> None:
    with pytest.raises(GatewayError) as refused:
        async with AsyncExitStack() as stack:
            build_backend(Settings(data_dir=bare, **given), stack)  # type: ignore[arg-type]  # by name
    assert refused.value.kind is ErrorKind.UNSUPPORTED
    assert way_out in refused.value.hint


def test_what_another_host_answers_is_no_answer_of_cursor() -> None:
    """Neither in what is shown nor in the ledger."""
    everything, runs = Settings(agent_url="http://127.0.0.1:1"), Settings(run_url="http://127.0.0.1:1")
    team = Settings(run_url="https://agentn.us.api5.cursor.sh")
    assert stand_ins(everything) == ("sdk", "agent", "legacy-chat")
    assert (standing_of(runs, "agent"), stand_ins(runs)) == ("stand-in", ("agent",))
    assert (standing_of(team, "agent"), stand_ins(team)) == ("unofficial", ())


def test_every_name_of_the_setting_is_a_backend() -> None:
    (setting,) = (row for row in SETTINGS if row.name == "backend")
    assert set(setting.kind.choices) == {"auto", *BACKENDS}


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "sdk"])
async def test_a_backend_is_called_what_it_was_asked_for(bare: Path, name: str) -> None:
    given: dict[str, object] = {"backend": name, "api_key": "key", "agent_url": "http://localhost:1"}
    async with open_backend(Settings(data_dir=bare, **given)) as one:  # type: ignore[arg-type]  # by name
        assert one.name == name
        assert one.abilities.client_tools == "native", "also where upstream speaks text only"
        assert isinstance(one, TextToolBackend) == (name in ("cli", "legacy-chat"))


def test_a_backend_without_a_server_loads_no_server() -> None:
    """`models`, `status`, `login` and `doctor` start in less time without it."""
    code = "import sys, caretway.upstream; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("caretway.")}
    assert {"accounts", "core"} <= rooms and not {"gateway", "dialects", "assembly", "api"} & rooms
    assert not {"caretway.server.server", "caretway.sessions.manager", "caretway_sim"} & {*loaded}


async def test_cursor_agent_gets_the_proxy_of_the_settings(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's process gets none: it would ignore it."""
    monkeypatch.setenv("HTTPS_PROXY", "http://other:1")
    for proxy, passed_on in [(None, "http://other:1"), ("http://me:word@p:2", "http://me:word@p:2"), ("off", None)]:
        async with AsyncExitStack() as stack:
            chosen = Settings(data_dir=bare, backend="cli", api_key="key", proxy=proxy)
            one: Any = build_backend(chosen, stack)
            stack.push_async_callback(one.aclose)
            assert one._inner._setup.environment.get("HTTPS_PROXY") == passed_on


def test_a_recording_only_where_one_was_asked_for(tmp_path: Path) -> None:
    stack = AsyncExitStack()
    assert open_trace(Settings(data_dir=tmp_path), "clients", stack) is None
    trace = open_trace(Settings(data_dir=tmp_path, trace=tmp_path / "trace"), "clients", stack)
    assert trace is not None
    trace.close()


SERVERS = {"servers": {"one": {"command": "true"}, "two": {"command": "true"}}}


async def test_no_servers_no_bridge(tmp_path: Path) -> None:
    assert mcp_bridge(Settings(data_dir=tmp_path)) is None
    async with open_mcp_bridge(Settings(data_dir=tmp_path)) as bridge:
        assert bridge is None


async def test_the_servers_that_were_named(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, mcp=SERVERS)
    both, one = mcp_bridge(settings), mcp_bridge(settings, only="two")
    assert both is not None
    assert one is not None
    assert [sorted(bridge.servers) for bridge in (both, one)] == [["one", "two"], ["two"]]
    assert mcp_bridge(settings, only="three") is None
