"""From settings to the server: which keys count, what is refused before anything listens, what stays out of logs."""

import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from caretway.config import ConfigError, Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.observe.redact import Redactor
from caretway.server_factory import access_rules, gateway_keys, open_trace, secrets_in
from caretway.web.access import is_key

KEY, OTHER = "cw-0123456789abcdefghijk", "cw-kjihgfedcba9876543210"


def test_keys_come_from_the_variable_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# for the laptop\n{OTHER}\n\n")
    settings = Settings(gateway_key=KEY, api_key_file=file)
    assert gateway_keys(settings) == (KEY, OTHER)
    access = access_rules(settings)
    assert is_key(access, KEY) and is_key(access, OTHER) and not is_key(access, "cw-guess-guess-guess-gu")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "there is no key in it"),
        (b"# only a comment\n", "there is no key in it"),
        (b"short\n", "a key is at least"),
        (b"\xff\xfe", "it is not ASCII text"),
        (None, "No such file"),
    ],
)
def test_a_key_file_that_protects_nothing_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        gateway_keys(Settings(api_key_file=file))
    assert caught.value.key == "api_key_file"


def test_a_weak_key_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="a key is at least") as caught:
        gateway_keys(Settings(gateway_key="hunter2"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("given", "missing"), [("tls_cert", "tls_key"), ("tls_key", "tls_cert")])
def test_tls_needs_both_files(given: str, missing: str) -> None:
    files: dict[str, Any] = {given: Path("a.pem")}
    with pytest.raises(ConfigError, match=f"{given} is set and {missing} is not"):
        access_rules(Settings(**files))


def test_other_machines_need_a_key() -> None:
    with pytest.raises(GatewayError) as caught:
        access_rules(Settings(host="0.0.0.0"))
    assert caught.value.kind is ErrorKind.ACCESS_DENIED
    assert access_rules(Settings(host="0.0.0.0", gateway_key=KEY)).keys


def test_every_secret_is_kept_out_of_logs(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(OTHER)
    settings = Settings(
        api_key="crsr_my_cursor_key", access_token="my-access-token", gateway_key=KEY, api_key_file=file
    )
    line = Redactor(secrets_in(settings)).text(f"crsr_my_cursor_key my-access-token {KEY} {OTHER}")
    assert not any(secret in line for secret in ("crsr_my_cursor_key", "my-access-token", KEY, OTHER))


def test_a_table_of_mcp_servers_is_not_a_text_to_hide() -> None:
    """It is secret as a whole; its size must not matter to whoever hides texts."""
    settings = Settings(mcp={f"key_{number}": "value" for number in range(20)})
    assert secrets_in(settings) == ()
    Redactor(secrets_in(settings))


async def test_a_recording_is_made_only_when_asked_for_and_closed_at_the_end(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        assert open_trace(Settings(), "clients", stack) is None
        trace = open_trace(Settings(trace=tmp_path / "t"), "clients", stack)
        assert trace is not None
    [file] = (tmp_path / "t").iterdir()
    assert file.name.startswith("clients-")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
