"""What login and doctor decide without asking anybody: which file, which site, which key, which port."""

import io
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from caretway.accounts.account import Account
from caretway.cli.doctor import as_lines, check_account, check_port
from caretway.cli.login import found_file, lasts, read_key, signed_in
from caretway.cli.process import CommandFailed
from caretway.cli.status import AccountFacts, account_facts, not_renewed
from caretway.cli.terminal import Style
from caretway.config import Settings, cursor_sign_in_files, has_desktop
from caretway.dashboard.health import Finding, check_data_dir
from caretway.upstream import sign_ins
from unit.accounts.token_endpoint import jwt

HOME = {"HOME": "/h"}

DESKTOPS = [
    ("linux", {"DISPLAY": ":0"}, True),
    ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
    ("linux", {}, False),
    ("linux", {"DISPLAY": ":0", "SSH_CONNECTION": "1.2.3.4"}, False),
    ("darwin", {}, True),
    ("darwin", {"SSH_TTY": "/dev/ttys0"}, False),
]


@pytest.mark.parametrize(("platform", "environ", "there"), DESKTOPS)
def test_a_browser_is_opened_where_somebody_sees_it(platform: str, environ: dict[str, str], there: bool) -> None:
    assert has_desktop(environ, platform) is there


PLACES = [
    ("linux", {}, "/h/.config/cursor/auth.json"),
    ("linux", {"XDG_CONFIG_HOME": "/x"}, "/x/cursor/auth.json"),
    ("darwin", {}, "/h/.cursor/auth.json"),
]


@pytest.mark.parametrize(("platform", "environ", "first"), PLACES)
def test_where_others_keep_their_sign_in(platform: str, environ: dict[str, str], first: str) -> None:
    assert cursor_sign_in_files(HOME | environ, platform) == (Path(first), Path("/h/.cursor/sdk/auth.json"))


def test_which_file_is_imported(tmp_path: Path) -> None:
    absent, there = tmp_path / "a", tmp_path / "b"
    there.touch()
    assert found_file("search", (absent, there)) == there
    assert found_file("named.json", (there,)) == Path("named.json")
    with pytest.raises(CommandFailed, match="try: caretway login"):
        found_file("search", (absent,))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_key_is_asked_for_without_echo_or_read_from_a_pipe() -> None:
    assert read_key(Terminal(), lambda _: " k-1 ") == "k-1"
    assert read_key(io.StringIO("k-2\nmore"), lambda _: "") == "k-2"
    for odd in ("", "two words", "ké"):
        with pytest.raises(CommandFailed):
            read_key(io.StringIO(odd), lambda _: "")


def test_stronger_credentials_are_mentioned(tmp_path: Path) -> None:
    account = Account("t", who="ada")
    assert signed_in(account, Settings(data_dir=tmp_path), 0.0) == [
        f"Signed in as ada. Stored in {tmp_path / 'auth' / 'accounts.json'}."
    ]
    lines = signed_in(account, Settings(data_dir=tmp_path, api_key="k-secret"), 0.0)
    assert "api_key (code) is set" in lines[1] and "k-secret" not in lines[1]


def test_whose_account(tmp_path: Path) -> None:
    facts = account_facts(Settings(data_dir=tmp_path, api_key="k-secret"))
    assert (facts.account, facts.credential, facts.expires) == (None, "API key (code)", None)
    assert account_facts(Settings(data_dir=tmp_path, access_token="t")).credential == "access token (code)"
    assert account_facts(Settings(data_dir=tmp_path)).credential is None


KEPT = [
    (Account(refresh_token="r"), "sign-in", None),
    (Account(refresh_token="r", api_key="k"), "sign-in", "API key"),
    (Account(access_token="t", api_key="k"), "API key", "API key"),
]


@pytest.mark.parametrize(("account", "for_agent", "for_sdk"), KEPT)
def test_what_of_a_sign_in_each_backend_uses(
    account: Account, for_agent: str, for_sdk: str | None, tmp_path: Path
) -> None:
    """The SDK takes an API key, and cares for no other credential."""
    settings = Settings(data_dir=tmp_path)
    kept = sign_ins(settings)
    kept.keep(settings.agent_url, account)
    assert account_facts(settings, "agent").credential == f"{for_agent} ({kept.place})"
    with_token = Settings(data_dir=tmp_path, access_token="other")
    for known in (settings, with_token):
        printed = account_facts(known, "sdk").credential
        assert printed == (f"{for_sdk} ({kept.place})" if for_sdk else None)


def test_doctor_knows_who_is_signed_in() -> None:
    known = AccountFacts("ada", "API key (environment CURSOR_API_KEY)", None)
    assert check_account(known, "agent") == Finding(
        "account", True, "ada, API key (environment CURSOR_API_KEY), no expiry known"
    )
    nobody = AccountFacts(None, None, None)
    assert not check_account(nobody, "agent").ok and "`caretway login`," in check_account(nobody, "agent").hint
    assert "`caretway login --backend sdk --api-key-stdin`" in check_account(nobody, "sdk").hint


def test_doctor_tells_of_a_sign_in_that_is_not_renewed() -> None:
    facts = AccountFacts(
        "ada", "sign-in (file)", "2026-01-01T00:00:00+00:00", "Cursor refused it: run `caretway login`"
    )
    assert check_account(facts, "agent") == Finding(
        "account",
        True,
        "ada, sign-in (file), until 2026-01-01T00:00:00+00:00",
        "Not renewed: Cursor refused it: run `caretway login`.",
    )
    assert not check_account(replace(facts, over=True), "agent").ok


NOT_RENEWED = [
    (Account("t", "r"), None),
    (Account(api_key="k"), None),
    (Account(), None),
    (Account("t"), "nothing is there to renew it with: run `caretway login`"),
    (
        Account("t", copied_from="/f"),
        "nothing is there to renew it with: run `caretway login`, or sign in again with the program that keeps /f",
    ),
    (Account("t", "r").marked_dead(0.0), "Cursor refused it (1970-01-01T00:00:00+00:00): run `caretway login`"),
]


@pytest.mark.parametrize(("account", "said"), NOT_RENEWED)
def test_why_a_sign_in_is_not_renewed(account: Account, said: str | None) -> None:
    assert not_renewed(account, 10.0) == said


DAY = jwt(iat=0, exp=86400)
UNTIL = "It works until 1970-01-02T00:00:00+00:00, and "
LASTS = [
    (Account(DAY, "r"), 10.0, UNTIL + "is renewed before that if Cursor agrees."),
    (Account(DAY), 10.0, UNTIL + "nothing came with it to renew it: then run `caretway login` again."),
    (
        Account(DAY, copied_from="/f"),
        10.0,
        UNTIL + "nothing came with it to renew it: then repeat this after signing in again there.",
    ),
    (Account(DAY, "r"), 1e6, "It was to end at 1970-01-02T00:00:00+00:00, but Cursor still accepts it."),
    (Account("opaque", "r"), 10.0, ""),
    (Account(DAY, api_key="k"), 10.0, ""),
    (Account(refresh_token="r"), 10.0, ""),
]


@pytest.mark.parametrize(("account", "now", "said"), LASTS)
def test_how_long_a_sign_in_lasts(account: Account, now: float, said: str) -> None:
    assert lasts(account, now) == said


def test_the_end_of_a_token_of_the_settings(tmp_path: Path) -> None:
    facts = account_facts(Settings(data_dir=tmp_path, access_token=DAY))
    assert facts.expires == "1970-01-02T00:00:00+00:00" and facts.over
    assert facts.renewal is not None and "take it out and run `caretway login`" in facts.renewal


def test_doctor_looks_at_the_port() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        other.close()
    assert check_port(Path("/nowhere"), "127.0.0.1", port).ok
    assert not check_port(Path("/nowhere"), "192.0.2.1", port).ok, "an address of no machine"


def test_doctor_looks_at_the_data_directory(tmp_path: Path) -> None:
    assert check_data_dir(tmp_path) == Finding("data directory", True, str(tmp_path))
    assert check_data_dir(tmp_path / "a" / "b").detail.endswith("(not created yet)")
    file = tmp_path / "file"
    file.touch()
    assert not check_data_dir(file / "below").ok
    assert os.listdir(tmp_path) == ["file"], "nothing was made"


def test_doctors_lines() -> None:
    assert as_lines([Finding("a", True, "fine"), Finding("long", False, "broken", "Do this.")], Style()) == [
        "ok    a     fine",
        "FAIL  long  broken",
        "            Do this.",
    ]


def test_doctor_folds_long_words_to_a_terminal() -> None:
    findings = [Finding("identity", True, "our own name; " * 6), Finding("Cursor", False, "down", "Check it. " * 9)]
    lines = as_lines(findings, Style(False), 60)
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()).count("Check it.") == 9
    assert lines[1].startswith(" " * 16 + "our")
    assert len(as_lines(findings, Style(False))) == 3, "a program reads it: a finding in one line, a hint in one"
