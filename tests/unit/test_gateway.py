"""The gateway, as far as it decides something before a socket is opened."""

from pathlib import Path

import pytest

from caretway.config import Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.gateway import Gateway


def settings(tmp_path: Path, **given: object) -> Settings:
    return Settings(data_dir=tmp_path / "data", backend="simulator", **given)  # type: ignore[arg-type]  # by name


async def test_a_gateway_that_would_be_open_to_strangers_opens_nothing(tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as refused:
        async with Gateway(settings(tmp_path, host="0.0.0.0")):
            pass
    assert refused.value.kind is ErrorKind.ACCESS_DENIED
    assert not (tmp_path / "data").exists()


def test_without_settings_a_gateway_has_the_defaults() -> None:
    assert Gateway().settings == Settings()
