"""The composition root, as far as it decides something before a socket is opened."""

from pathlib import Path

import pytest

from caretway.app import Gateway
from caretway.config import Settings
from caretway.core.errors import ErrorKind, GatewayError
from caretway.mcp_factory import mcp_bridge, open_mcp_bridge

SERVERS = {"servers": {"one": {"command": "true"}, "two": {"command": "true"}}}


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


async def test_no_servers_no_bridge(tmp_path: Path) -> None:
    assert mcp_bridge(settings(tmp_path)) is None
    async with open_mcp_bridge(settings(tmp_path)) as bridge:
        assert bridge is None


async def test_the_servers_that_were_named(tmp_path: Path) -> None:
    both, one = mcp_bridge(settings(tmp_path, mcp=SERVERS)), mcp_bridge(settings(tmp_path, mcp=SERVERS), only="two")
    assert both is not None
    assert one is not None
    assert [sorted(bridge.servers) for bridge in (both, one)] == [["one", "two"], ["two"]]
    assert mcp_bridge(settings(tmp_path, mcp=SERVERS), only="three") is None
