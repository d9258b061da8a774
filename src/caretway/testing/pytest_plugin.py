"""The pytest plugin: fixtures `caretway_gateway` and `caretway_simulator`. A test that leaves a script unplayed, or
asks the model more often than it prepared, fails at its end.

pytest loads it by the entry point `pytest11`; `-p no:caretway` leaves it out. Nothing of the gateway is imported before
a test asks for a fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .scripted import ScriptedGateway, ScriptedSimulator


@pytest.fixture
def caretway_gateway() -> "Iterator[ScriptedGateway]":
    """A gateway with a simulated Cursor, for OpenAI and Anthropic clients: see docs/testing.md."""
    from .scripted import ScriptedGateway

    with ScriptedGateway() as gateway:
        yield gateway
        gateway.assert_played()


@pytest.fixture
def caretway_simulator() -> "Iterator[ScriptedSimulator]":
    """The simulated Cursor alone, for clients of Cursor's own protocol."""
    from .scripted import ScriptedSimulator

    with ScriptedSimulator() as simulator:
        yield simulator
        simulator.assert_played()
