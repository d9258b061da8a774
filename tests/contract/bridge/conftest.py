"""Fixtures of the bridge's tests."""

from pathlib import Path

import pytest

from contract.bridge import npm


@pytest.fixture(scope="session")
def programs() -> Path:
    """Where the npm servers' programs are."""
    return npm.installed()
