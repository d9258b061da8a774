"""Fixtures of the contract tests."""

from collections.abc import AsyncIterator

import pytest

from caretway.simulator.manners import CLASSIC, Manners
from contract.gateways import Client, gateway


@pytest.fixture(params=["h2", "http1"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def manners() -> Manners:
    """How the simulator behaves; a file whose tests hold for both profiles overrides it with `BOTH`."""
    return CLASSIC


@pytest.fixture
async def client(transport: str, manners: Manners) -> AsyncIterator[Client]:
    async with gateway(transport, manners=manners) as running:
        yield running
