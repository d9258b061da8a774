"""Fixtures of the contract tests."""

from collections.abc import AsyncIterator

import pytest

from contract.gateways import Client, gateway


@pytest.fixture(params=["h2", "http1"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def client(transport: str) -> AsyncIterator[Client]:
    async with gateway(transport) as running:
        yield running
