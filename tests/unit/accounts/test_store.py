"""Sign-ins on disk: for this user alone, whole or not at all, one changer at a time; and the keyring in their place."""

import asyncio
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from caretway.accounts.account import Account, dump, load
from caretway.accounts.login import WAYS
from caretway.accounts.store import (
    DIRECTORY,
    FILE,
    KEYRING_NAME,
    KEYRING_SERVICE,
    SignIns,
    StoredAccount,
    StoredKey,
    open_sign_ins,
    open_vault,
    read_import,
)
from caretway.accounts.tokens import RETRY_S, RenewedToken
from caretway.core.errors import ErrorKind, GatewayError
from caretway.processes.tasks import spawn
from unit.accounts.token_endpoint import TokenEndpoint, jwt

URL_OF_IMPORTS = "https://api2.cursor.sh"
NOW = 10_000.0
TOKEN = jwt(iat=9000, exp=12600)

GOOD = {
    "cursor-agent": (json.dumps({"accessToken": TOKEN, "refreshToken": "r"}), Account(TOKEN, "r", "", 9000.0)),
    "cursor-agent with a key": (
        json.dumps({"accessToken": "a", "refreshToken": "r", "apiKey": "k"}),
        Account("a", "r", "k", NOW),
    ),
    "the SDK": (
        json.dumps({"version": 1, "backendUrl": URL_OF_IMPORTS + "/", "apiKey": "k", "email": "a@b.example"}),
        Account("", "", "k", NOW, "a@b.example"),
    ),
    "a key where the refresh token belongs": (
        json.dumps({"accessToken": TOKEN, "refreshToken": "crsr_1"}),
        Account(TOKEN, "", "crsr_1", 9000.0),
    ),
    "one string": ("refresh|key\n", Account("", "refresh", "key", NOW)),
    "one string, no key": ("refresh|", Account("", "refresh", "", NOW)),
    "one string, no refresh token": ("|key", Account("", "", "key", NOW)),
}


@pytest.mark.parametrize("name", GOOD)
def test_read(name: str) -> None:
    text, account = GOOD[name]
    assert read_import(text, url=URL_OF_IMPORTS, now=NOW) == account


BAD = {
    "empty": ("", "no sign-in"),
    "a bar": ("|", "no sign-in"),
    "prose": ("this is | no sign-in", "no sign-in"),
    "a list": ("[1]", "no sign-in"),
    "nested": ("[" * 5000, "no sign-in"),
    "nothing in it": ('{"accessToken": "", "refreshToken": 3}', "no sign-in"),
    "of another address": ('{"backendUrl": "https://other.example", "apiKey": "k"}', "other.example"),
    "expired": ('{"apiKey": "k", "apiKeyExpiresAtMs": 9999000}', "expired"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    text, said = BAD[name]
    with pytest.raises(GatewayError, match=said):
        read_import(text, url=URL_OF_IMPORTS, now=NOW)


URL = "https://cursor.example"
ACCOUNT = Account("access", "refresh", "key", 5.5, "ada")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_round_trip_by_address(tmp_path: Path) -> None:
    kept = open_sign_ins(tmp_path / "data", "file")
    assert kept.find(URL) is None and kept.stamp() is None
    kept.keep(URL, ACCOUNT)
    kept.keep("http://127.0.0.1:1", Account(api_key="other"))
    again = open_sign_ins(tmp_path / "data", "file")
    assert again.find(URL) == ACCOUNT
    assert again.forget(URL) and not again.forget(URL)
    assert again.find("http://127.0.0.1:1") == Account(api_key="other")
    assert again.forget("http://127.0.0.1:1")
    assert list((tmp_path / "data" / "auth").iterdir()) == []


async def test_a_kept_key_is_the_one_that_is_kept_now(tmp_path: Path) -> None:
    kept = open_sign_ins(tmp_path, "file")
    key = StoredKey(kept, URL)
    assert await key() == ""
    for account in (Account(api_key="first"), Account(refresh_token="no key"), Account(api_key="third")):
        kept.keep(URL, account)
        assert await key() == await key() == account.api_key
    kept.forget(URL)
    assert await key() == ""


def test_for_this_user_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = os.umask(0)
    try:
        kept = open_sign_ins(tmp_path / "data", "file")
        kept.keep(URL, ACCOUNT)
    finally:
        os.umask(before)
    file = Path(kept.place)
    assert (mode(file), mode(file.parent), mode(tmp_path / "data")) == (0o600, 0o700, 0o700)
    file.chmod(0o644)
    file.parent.chmod(0o755)
    assert kept.find(URL) == ACCOUNT
    assert mode(file) == 0o600 and "open to other users" in caplog.text
    kept.keep(URL, ACCOUNT)
    assert mode(file.parent) == 0o700


def test_a_link_to_something_else_changes_no_modes(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o755)
    kept = open_sign_ins(tmp_path / "data", "file")
    kept.keep(URL, ACCOUNT)
    Path(kept.place).unlink()
    Path(kept.place).symlink_to(tmp_path / "folder")
    with pytest.raises(GatewayError, match="not a regular file"):
        kept.find(URL)
    assert mode(tmp_path / "folder") == 0o755


def test_a_write_that_fails_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = open_sign_ins(tmp_path, "file")
    kept.keep(URL, ACCOUNT)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(GatewayError, match="No space left"):
        kept.keep(URL, Account(api_key="new"))
    assert kept.find(URL) == ACCOUNT
    assert [path.name for path in (tmp_path / "auth").iterdir()] == ["accounts.json"]


def test_secrets_are_not_in_the_repr() -> None:
    shown = repr(Account("acc-ess", "ref-resh", "k-ey", who="ada"))
    assert "ada" in shown and not any(secret in shown for secret in ("acc-ess", "ref-resh", "k-ey"))


BROKEN = ["", "{", "[" * 5000, "[]", "{}", '{"version": 2, "accounts": {}}', '{"version": 1, "accounts": []}']


@pytest.mark.parametrize("text", BROKEN)
def test_what_cannot_be_read_is_no_sign_in(text: str) -> None:
    assert load(text) == {}


def test_entries_that_are_no_accounts_are_left_out() -> None:
    text = dump({URL: ACCOUNT}).replace('"accounts": {', '"accounts": {"a": 1, "b": {}, "c": {"access_token": 2},')
    assert load(text) == {URL: ACCOUNT}


def test_a_pipe_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / DIRECTORY
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / FILE, 0o600)
    with pytest.raises(GatewayError, match="not a regular file"):
        open_sign_ins(tmp_path, "file").find(URL)


def test_no_more_of_a_file_is_read_than_sign_ins_take(tmp_path: Path) -> None:
    folder = tmp_path / DIRECTORY
    folder.mkdir(mode=0o700)
    with (folder / FILE).open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(GatewayError, match="larger than"):
        open_sign_ins(tmp_path, "file").find(URL)


async def test_one_changer_at_a_time(tmp_path: Path) -> None:
    first, second = open_sign_ins(tmp_path, "file"), open_sign_ins(tmp_path, "file")
    order: list[str] = []

    async def change() -> None:
        async with second.locked():
            order.append("second")

    async with first.locked():
        waiting = spawn(change(), "second")
        await asyncio.sleep(0)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_lock_that_is_never_given_back_is_reported(tmp_path: Path) -> None:
    holder = open_sign_ins(tmp_path, "file")
    hasty = SignIns(open_vault("file", tmp_path / "auth"), tmp_path / "auth", patience_s=0.0)
    async with holder.locked():
        with pytest.raises(GatewayError) as late:
            async with hasty.locked():
                raise AssertionError
    assert late.value.kind is ErrorKind.TIMEOUT and "lock" in late.value.hint


async def test_signing_in_and_out_elsewhere_is_noticed_at_once(tmp_path: Path) -> None:
    endpoint = TokenEndpoint()
    kept = open_sign_ins(tmp_path, "file")
    source = RenewedToken(StoredAccount(kept, URL), endpoint.call, endpoint.clock)
    with pytest.raises(GatewayError, match="Not signed in"):
        await source.token()
    token = jwt(iat=endpoint.now, exp=endpoint.now + 3600)
    kept.keep(URL, Account(token, "r", received_at=endpoint.now))
    assert await source.token() == token
    kept.forget(URL)
    with pytest.raises(GatewayError, match="Not signed in"):
        await source.token()
    assert endpoint.asked == []


async def test_a_refused_key_does_not_make_two_gateways_ask_in_turns(tmp_path: Path) -> None:
    endpoint, kept = TokenEndpoint(), open_sign_ins(tmp_path, "file")
    endpoint.refused = {"key"}
    kept.keep(URL, Account(api_key="key"))
    sources = [RenewedToken(StoredAccount(kept, URL), endpoint.call, endpoint.clock) for _ in range(2)]
    for _ in range(10):
        for source in sources:
            with pytest.raises(GatewayError, match="does not accept the API key"):
                await source.token()
    assert len(endpoint.asked) == 2, "each of them once in half a minute"


async def test_a_dead_login_is_asked_about_by_one_of_two_gateways(tmp_path: Path) -> None:
    endpoint, kept = TokenEndpoint(), open_sign_ins(tmp_path, "file")
    endpoint.refused = {"r"}
    kept.keep(URL, Account(refresh_token="r"))
    sources = [RenewedToken(StoredAccount(kept, URL), endpoint.call, endpoint.clock) for _ in range(2)]
    for _ in range(10):
        for source in sources:
            with pytest.raises(GatewayError, match="ended"):
                await source.token()
        endpoint.now += RETRY_S
    assert len(endpoint.asked) == len(WAYS)


# ---- a copied sign-in


def login(endpoint: TokenEndpoint, who: str, refresh: str) -> dict[str, str]:
    return {"accessToken": jwt(iat=endpoint.now, exp=endpoint.now + 3600, sub=who), "refreshToken": refresh}


async def test_a_newer_sign_in_of_the_program_it_was_copied_from_is_used(tmp_path: Path) -> None:
    endpoint, file, kept = TokenEndpoint(), tmp_path / "auth.json", open_sign_ins(tmp_path, "file")
    first = login(endpoint, "user|1", "theirs-1")
    file.write_text(json.dumps(first))
    account = Account(first["accessToken"], "theirs-1", received_at=endpoint.now, who="user|1", copied_from=str(file))
    kept.keep(URL, account)
    source = RenewedToken(StoredAccount(kept, URL), endpoint.call, endpoint.clock)
    assert await source.token() == first["accessToken"]

    endpoint.refused = {"theirs-1"}
    endpoint.now += 3600
    with pytest.raises(GatewayError, match="ended") as over:
        await source.token()
    assert str(file) in over.value.hint, "the user is told where to sign in again"
    asked = len(endpoint.asked)

    file.write_text(json.dumps(login(endpoint, "user|2", "stranger")))
    endpoint.now += RETRY_S
    with pytest.raises(GatewayError, match="ended"):
        await source.token()

    second = login(endpoint, "user|1", "theirs-2")
    file.write_text(json.dumps(second))
    endpoint.now += RETRY_S
    assert await source.token() == second["accessToken"]
    assert len(endpoint.asked) == asked, "nothing was renewed for it: their refresh token is still theirs"
    stored = kept.find(URL)
    assert stored is not None
    assert (stored.refresh_token, stored.who, stored.copied_from) == ("theirs-2", "user|1", str(file))

    file.unlink()
    endpoint.now += 3600
    assert await source.token() not in (first["accessToken"], second["accessToken"])
    assert endpoint.asked[-1][1] == "theirs-2", "without the file it is renewed like any other"


async def test_an_older_sign_in_of_that_program_is_left_alone(tmp_path: Path) -> None:
    endpoint, file, kept = TokenEndpoint(), tmp_path / "auth.json", open_sign_ins(tmp_path, "file")
    theirs = login(endpoint, "user|1", "theirs")
    file.write_text(json.dumps(theirs))
    endpoint.now += 10
    ours = login(endpoint, "user|1", "ours")["accessToken"]
    kept.keep(URL, Account(ours, "ours", received_at=endpoint.now, who="user|1", copied_from=str(file)))
    source = RenewedToken(StoredAccount(kept, URL), endpoint.call, endpoint.clock)
    fresh = await source.token(refused=ours)
    assert fresh not in (ours, theirs["accessToken"]) and endpoint.asked[-1][1] == "ours"


# ---- keyring


class FakeKeyring:
    """As much of the `keyring` package as is used."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = False

    def get_password(self, service: str, name: str) -> str | None:
        if self.broken:
            raise RuntimeError("the bus is gone, and here is a secret")
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, text: str) -> None:
        self.kept[service, name] = text

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


def test_the_keyring_holds_the_same_text(tmp_path: Path) -> None:
    keyring = FakeKeyring()
    modules = SimpleNamespace(keyring=keyring)
    kept = SignIns(open_vault("keyring", tmp_path, lambda name: getattr(modules, name)), tmp_path)
    kept.keep(URL, ACCOUNT)
    assert kept.find(URL) == ACCOUNT and list(keyring.kept) == [(KEYRING_SERVICE, KEYRING_NAME)]
    assert kept.forget(URL) and keyring.kept == {} and not kept.forget(URL)
    assert list(tmp_path.iterdir()) == [], "nothing of it is on disk"
    keyring.broken = True
    with pytest.raises(GatewayError) as failed:
        kept.find(URL)
    assert "secret" not in str(failed.value)


def test_without_the_package_the_way_out_is_named(tmp_path: Path) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    with pytest.raises(GatewayError, match=r"-m pip install .keyring"):
        open_vault("keyring", tmp_path, missing)
