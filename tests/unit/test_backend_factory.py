"""Which backend the settings mean."""

from pathlib import Path
from typing import Any

import pytest

from caretway.auth.account import Account
from caretway.backend_factory import choose_backend, holder, sign_ins, without_credentials
from caretway.config import Settings
from caretway.core.errors import ErrorKind, GatewayError


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cursor-agent anywhere, and a home without files."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


CHOICES: list[tuple[str, dict[str, Any], str]] = [
    ("nothing at all", {}, "simulator"),
    ("an access token", {"access_token": "token"}, "agent"),
    ("a token beside a key: only agent takes tokens", {"access_token": "token", "api_key": "key"}, "agent"),
    ("another address", {"agent_url": "http://127.0.0.1:1"}, "agent"),
    ("a program", {"agent_bin": "/opt/cursor-agent"}, "cli"),
    ("a choice wins over credentials", {"backend": "simulator", "api_key": "key"}, "simulator"),
    ("a choice without credentials", {"backend": "agent"}, "agent"),
    ("clients bring keys", {"auth_mode": "passthrough"}, "agent"),
]


@pytest.mark.parametrize(("settings", "name"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES])
def test_choice(settings: dict[str, Any], name: str, tmp_path: Path) -> None:
    assert choose_backend(Settings(data_dir=tmp_path, **settings)) == name


async def test_a_stored_sign_in_is_for_its_own_address(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    stored = sign_ins(settings)
    async with stored.locked():
        stored.keep("https://elsewhere.example", Account("token"))
    assert choose_backend(settings) == "simulator"
    assert holder(settings) == Account()
    async with stored.locked():
        stored.keep(settings.agent_url, Account("token", who="ada"))
    assert choose_backend(settings) == "agent"
    assert holder(settings).name == "ada"


def test_passthrough_needs_a_backend_that_takes_keys(tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as caught:
        choose_backend(Settings(data_dir=tmp_path, auth_mode="passthrough", backend="cli"))
    assert caught.value.kind is ErrorKind.UNSUPPORTED
    assert "--backend agent" in caught.value.hint


def test_clients_accounts_get_nothing_of_the_owners() -> None:
    bare = without_credentials(Settings(api_key="key", access_token="token"))
    assert (bare.api_key, bare.access_token, bare.local_tools) == (None, None, "off")
    assert without_credentials(Settings(local_tools="all")).local_tools == "all"
