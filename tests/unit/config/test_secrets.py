"""The gateway's keys and every other secret: from settings."""

from pathlib import Path

import pytest

from caretway.config import ConfigError, Settings
from caretway.config.secrets import gateway_keys, secrets_in

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


def test_every_secret_is_known_even_with_a_bad_key_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{OTHER}\n")
    secrets = {"gateway_key": KEY, "api_key": "cursor's", "access_token": "token"}
    assert {*secrets.values(), OTHER} <= {*secrets_in(settings(tmp_path, api_key_file=file, **secrets))}
    assert set(secrets.values()) <= {*secrets_in(settings(tmp_path, api_key_file=tmp_path / "none", **secrets))}
