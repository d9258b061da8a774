"""Fixtures of the contract tests, and the simulator's profiles that they run on.

Everything runs on the manners of `live`, without the waits that only take time. What is marked `both_profiles` runs on
`classic` too, with `--all`: there the profile can change what the gateway does. A test that holds on one profile only
asks for that one itself, and says why.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from caretway.simulator.manners import CLASSIC, LIVE_AT_ONCE, Manners
from caretway.web.application import Application
from caretway.web.exchange import HttpRequest, ResponseWriter
from caretway.web.route_table import Matched, Refused
from contract.gateways import Client, gateway
from contract.strict_types import Told, mistakes, told

JUDGED = {
    "test_api",
    "test_chat",
    "test_dialects",
    "test_documents",
    "test_live_errors",
    "test_models",
    "test_passthrough",
    "test_public_threads",
    "test_steps",
    "test_text_tools",
}
"""The modules that try what the APIs say: every answer in them is read by the SDKs' types."""


@pytest.fixture(params=["h2", "http1"])
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


@pytest.fixture(autouse=True)
def every_answer_fits_the_sdks_types(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See `strict_types`."""
    if request.node.module.__name__.rpartition(".")[2] not in JUDGED:
        yield
        return
    answers: list[Told] = []
    answer = Application.answer

    async def judged(self: Application, matched: Matched | Refused, http: HttpRequest, writer: ResponseWriter) -> None:
        if writer._observer is None:
            answers.append(told(http))
            writer.observe(answers[-1])
        await answer(self, matched, http, writer)

    monkeypatch.setattr(Application, "answer", judged)
    yield
    if wrong := list(dict.fromkeys(mistakes(answers))):
        pytest.fail("\n".join(["an answer does not fit the SDKs' types:", *wrong[:20]]), pytrace=False)
