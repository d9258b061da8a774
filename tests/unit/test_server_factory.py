"""Who may come in, which limits hold, and what must never be written down: from settings."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from caretway.config import ConfigError, Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.server_factory import access_rules, gateway_keys, look_every, open_trace, secrets_in, shape_limits
from caretway.web.access import is_key

KEY, OTHER = "k" * 32, "o" * 32


def settings(tmp_path: Path, **given: object) -> Settings:
    return Settings(data_dir=tmp_path, **given)  # type: ignore[arg-type]  # by name


def test_keys_come_from_the_setting_and_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# mine\n{OTHER}\n")
    assert gateway_keys(settings(tmp_path)) == ()
    assert gateway_keys(settings(tmp_path, gateway_key=KEY, api_key_file=file)) == (KEY, OTHER)


BAD_FILES: list[tuple[str, bytes | None]] = [
    ("it is not there", None),
    ("it is empty", b"\n"),
    ("its key is short", b"k\n"),
    ("it is no text", b"\xff\xfe"),
]


@pytest.mark.parametrize(("name", "content"), BAD_FILES, ids=[row[0] for row in BAD_FILES])
def test_a_file_that_could_not_protect_anything(tmp_path: Path, name: str, content: bytes | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        gateway_keys(settings(tmp_path, api_key_file=file))
    assert str(file) in str(refused.value)


def test_a_short_key_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        gateway_keys(settings(tmp_path, gateway_key="hunter2"))
    assert "hunter2" not in str(refused.value)


def test_nobody_is_let_in_from_outside_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as refused:
        access_rules(settings(tmp_path, host="0.0.0.0"))
    assert refused.value.kind is ErrorKind.ACCESS_DENIED
    access = access_rules(settings(tmp_path, host="0.0.0.0", gateway_key=KEY, allowed_hosts=("Cursor.Example",)))
    assert is_key(access, KEY) and not is_key(access, OTHER)
    assert "cursor.example" in access.hosts


@pytest.mark.parametrize(("given", "missing"), [("tls_cert", "tls_key"), ("tls_key", "tls_cert")])
def test_tls_needs_both_files(tmp_path: Path, given: str, missing: str) -> None:
    with pytest.raises(ConfigError) as refused:
        access_rules(settings(tmp_path, **{given: tmp_path / "file.pem"}))
    assert missing in str(refused.value)


def test_every_secret_is_known_even_with_a_bad_key_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{OTHER}\n")
    secrets = {"gateway_key": KEY, "api_key": "cursor's", "access_token": "token"}
    assert {*secrets.values(), OTHER} <= {*secrets_in(settings(tmp_path, api_key_file=file, **secrets))}
    assert set(secrets.values()) <= {*secrets_in(settings(tmp_path, api_key_file=tmp_path / "none", **secrets))}


def test_a_recording_only_where_one_was_asked_for(tmp_path: Path) -> None:
    stack = AsyncExitStack()
    assert open_trace(settings(tmp_path), "clients", stack) is None
    trace = open_trace(settings(tmp_path, trace=tmp_path / "trace"), "clients", stack)
    assert trace is not None
    trace.close()


def test_the_shape_of_a_body(tmp_path: Path) -> None:
    given = {"max_json_depth": 9, "max_messages": 8, "max_json_values": 2000, "max_text_bytes": 2**20}
    shape = shape_limits(settings(tmp_path, **given))
    assert (shape.depth, shape.messages, shape.values, shape.text) == (9, 8, 2000, 2**20)


@pytest.mark.parametrize(("given", "look"), [({}, 1.0), ({"send_timeout": 4.0}, 0.5), ({"keep_alive": 2.0}, 0.25)])
def test_the_server_looks_often_enough_for_its_shortest_limit(
    tmp_path: Path, given: dict[str, Any], look: float
) -> None:
    assert look_every(settings(tmp_path, **given)) == pytest.approx(look)
