"""Where the SDK is installed: found without a line of its Python being run."""

import sys
from pathlib import Path

import pytest

from caretway.backends.sdk.backend import find_sdk
from caretway.core.errors import GatewayError

ENTRY = "node_modules/@cursor/sdk/dist/esm/index.js"
NODE = "bin/node"


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a cursor_sdk that cannot be imported, and is the only one there is."""
    package = tmp_path / "cursor_sdk"
    vendor = package / "_vendor" / "bridge"
    for name in (NODE, ENTRY):
        (vendor / name).parent.mkdir(parents=True)
        (vendor / name).touch()
    (package / "__init__.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.delitem(sys.modules, "cursor_sdk", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return vendor


def test_it_is_found_and_not_imported(vendor: Path) -> None:
    install = find_sdk()
    assert (install.node, install.entry) == (vendor.resolve() / NODE, vendor.resolve() / ENTRY)
    assert "cursor_sdk" not in sys.modules


@pytest.mark.parametrize("name", [NODE, ENTRY])
def test_a_wheel_with_nothing_for_this_platform(vendor: Path, name: str) -> None:
    (vendor / name).unlink()
    with pytest.raises(GatewayError, match="nothing for this platform"):
        find_sdk()


def test_none_is_installed(vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(vendor)])
    with pytest.raises(ModuleNotFoundError, match="cursor_sdk"):
        find_sdk()
