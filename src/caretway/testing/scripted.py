"""A gateway that plays scripts, for tests: its address, the requests that reached the model, the number of runs, and
whether every script was played. Runs in a thread, so that any kind of test can use it.

Uses neither the home directory nor the network beyond loopback.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from caretway_sim import Simulator
from caretway_sim.manners import LIVE_AT_ONCE
from caretway_sim.prepared import ModelRequest, Script

from ..gateway import Gateway
from ..processes.tasks import LoopThread

MODEL: Final = "sim-auto"
"""A model of the simulator; `sim-think` is one that thinks."""


class Scripted:
    """The scripts that a simulator plays, and the requests that reached its model."""

    simulator: Simulator

    def play(self, *scripts: Script) -> None:
        """Play one script for each coming turn, in this order. Without scripts the simulator replies by itself and
        follows `sim:` lines of the prompt."""
        for script in scripts:
            self.simulator.prepared.add(script.steps)

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests that reached the model, one for each run: `model`, `instructions`, `prompt`, `messages`,
        `tools`, `results`."""
        return self.simulator.prepared.requests

    @property
    def runs_opened(self) -> int:
        """Runs that a subscription would be charged for: a whole tool loop is one run if its session is kept."""
        return self.simulator.stats.runs_opened

    def assert_runs(self, expected: int) -> None:
        opened = self.runs_opened
        prompts = "".join(f"\n  {number}. {_short(one.prompt)}" for number, one in enumerate(self.requests, 1))
        assert opened == expected, f"{opened} runs were opened, not {expected}:{prompts}"

    def assert_arrived(self, *texts: str) -> None:
        """Assert that each text is in the instructions, messages or results that reached the model."""
        seen = [text for one in self.requests for text in _texts(one)]
        for text in texts:
            assert any(text in one for one in seen), f"{text!r} did not reach the model; this did: {_shown(seen)}"

    def assert_played(self) -> None:
        """Assert that every script had a turn and every turn a script."""
        prepared = self.simulator.prepared
        assert not prepared.waiting, f"{prepared.waiting} scripts were not played: the agent asked the model too seldom"
        missing = prepared.unscripted
        assert not missing, f"{missing} turns had no script: the agent asked the model more often than prepared"


class ScriptedGateway(Scripted):
    """`with ScriptedGateway() as gateway: ...`; keyword arguments are settings."""

    def __init__(self, **settings: Any) -> None:
        self._gateway = Gateway.simulated(**settings)
        self.api_key: str = self._gateway.settings.gateway_key or "any-text"
        self.model = MODEL

    def __enter__(self) -> "ScriptedGateway":
        self._gateway.__enter__()
        assert self._gateway.simulator is not None
        self.simulator = self._gateway.simulator
        self.simulator.prepared.watched = True
        self.base_url = self._gateway.base_url
        self.openai_url = f"{self.base_url}/v1"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gateway.__exit__(kind, failure, trace)


class ScriptedSimulator(Scripted):
    """The simulated Cursor alone at `url`, for clients that speak Cursor's own protocol."""

    def __enter__(self) -> "ScriptedSimulator":
        self._thread = LoopThread("caretway simulator")
        self.simulator = Simulator(manners=LIVE_AT_ONCE)
        self.simulator.prepared.watched = True
        self.url = f"http://127.0.0.1:{self._thread.call(self.simulator.listen('127.0.0.1', 0))}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.call(self.simulator.aclose())
        self._thread.close()


def _texts(request: ModelRequest) -> Sequence[str]:
    return [request.instructions, *(message.text for message in request.messages), *request.all_results]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:99] + "…"


def _shown(texts: Sequence[str]) -> str:
    return "; ".join(_short(text) for text in texts if text) or "nothing"
