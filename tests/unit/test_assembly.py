"""Who may come in, and which limits hold: from settings."""

from pathlib import Path
from typing import Any

import pytest

from caretway.assembly import access_rules, key_book, look_every
from caretway.config import ConfigError, Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.server.access import Access, is_key
from caretway.server.request_reader import BodyLimits, ConnectionLimits

KEY, OTHER = "k" * 32, "o" * 32


def settings(tmp_path: Path, **given: object) -> Settings:
    return Settings(data_dir=tmp_path, **given)  # type: ignore[arg-type]  # by name


def rules(tmp_path: Path, **given: object) -> Access:
    chosen = settings(tmp_path, **given)
    return access_rules(chosen, key_book(chosen))


def test_nobody_is_let_in_from_outside_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as refused:
        rules(tmp_path, host="0.0.0.0")
    assert refused.value.kind is ErrorKind.ACCESS_DENIED
    access = rules(tmp_path, host="0.0.0.0", gateway_key=KEY, allowed_hosts=("Cursor.Example",))
    assert is_key(access, KEY) and not is_key(access, OTHER)
    assert "cursor.example" in access.hosts


@pytest.mark.parametrize(("given", "missing"), [("tls_cert", "tls_key"), ("tls_key", "tls_cert")])
def test_tls_needs_both_files(tmp_path: Path, given: str, missing: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rules(tmp_path, **{given: tmp_path / "file.pem"})
    assert missing in str(refused.value)


LOOKS = [(120.0, {}, 1.0), (4.0, {}, 0.5), (120.0, {"keep_alive": 2.0}, 0.25)]


@pytest.mark.parametrize(("send", "given", "look"), LOOKS)
def test_the_server_looks_often_enough_for_its_shortest_limit(
    tmp_path: Path, send: float, given: dict[str, Any], look: float
) -> None:
    limits = ConnectionLimits(send_timeout=send)
    assert look_every(settings(tmp_path, **given), limits, BodyLimits()) == pytest.approx(look)
