"""Fixtures of the contract tests, and the simulator's profiles that they run on.

Everything runs on the manners of `live`, without the waits that only take time. What is marked `both_profiles` runs on
`classic` too, with `--all`: there the profile can change what the gateway does. A test that holds on one profile only
asks for that one itself, and says why.

The same for HTTP/1.1, on which few decisions turn: `transport` is HTTP/2, and with --all HTTP/1.1 too. What is about
the transport itself asks for both.
"""

from collections.abc import AsyncIterator

import pytest

from caretway_sim.manners import CLASSIC, LIVE_AT_ONCE, Manners
from contract.gateways import Client, gateway


@pytest.fixture(params=["h2", pytest.param("http1", marks=pytest.mark.all)])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "manners" not in metafunc.fixturenames:
        return
    profiles = [pytest.param(LIVE_AT_ONCE, id="live")]
    if metafunc.definition.get_closest_marker("both_profiles"):
        profiles.append(pytest.param(CLASSIC, id="classic", marks=pytest.mark.all))
    metafunc.parametrize("manners", profiles, indirect=True)


@pytest.fixture
def manners(request: pytest.FixtureRequest) -> Manners:
    """How the simulator behaves."""
    profile: Manners = request.param
    return profile


@pytest.fixture
async def client(transport: str, manners: Manners) -> AsyncIterator[Client]:
    async with gateway(transport, manners=manners) as running:
        yield running
