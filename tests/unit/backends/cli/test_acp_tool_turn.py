"""A turn with tools whose process dies before the client has its calls."""

import asyncio
from typing import Any

import pytest

from caretway.backends.cli import acp_tool_turn
from caretway.backends.cli.acp_tool_turn import AcpToolTurn, TurnOffer
from caretway.backends.cli.acp_translate import AcpTranslator
from caretway.backends.cli.acp_turn import AcpLaunch
from caretway.backends.cli.faults import Circumstances
from caretway.backends.cli.process import Slots
from caretway.backends.cli.program import CliLimits, Work
from caretway.backends.cli.prompt import Prompt
from caretway.backends.cli.tool_server import McpUse
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, Recovered, ToolCallReady, TurnPaused
from caretway.core.request import ToolChoice, ToolSpec

DIED = GatewayError(ErrorKind.UPSTREAM_DOWN, "cursor-agent ended with signal 9.")


class Agent:
    takes_mcp = takes_images = alive = True

    def __init__(self) -> None:
        self.sessions: dict[str, tuple[()]] = {}
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.prompted = asyncio.Event()

    async def new_session(self, cwd: str, servers: object = (), wish: object = None) -> str:
        return "session"

    def prompt(self, session: str, prompt: Prompt, update: object) -> "asyncio.Future[Any]":
        self.prompted.set()
        return self.answer

    def cancel(self, session: str) -> None: ...

    def resume(self) -> None: ...


class Warm:
    def __init__(self) -> None:
        self.agent = Agent()


class Pool:
    """The first process is warm, the second takes its time."""

    def __init__(self) -> None:
        self.first, self.second = Warm(), Warm()
        self.starting, self.started = asyncio.Event(), asyncio.Event()
        self._taken = 0

    async def take(self, work: Work, build: object, session: str = "") -> Warm:
        self._taken += 1
        if self._taken == 1:
            return self.first
        self.starting.set()
        await self.started.wait()
        return self.second

    def give(self, warm: Warm) -> None: ...

    async def drop(self, warm: Warm) -> None: ...


class Host:
    async def offer(self, turn: AcpToolTurn) -> str:
        turn.listed()
        return "http://127.0.0.1/mcp"

    def withdraw(self, url: str) -> None: ...

    def refused(self, build: object, reason: str, *, for_good: bool) -> None: ...

    def parked(self, turn: AcpToolTurn) -> None: ...

    def unparked(self, turn: AcpToolTurn) -> None: ...


def use(number: int) -> McpUse:
    return McpUse(number, "deploy", {"key": "k"})


async def test_calls_of_a_process_that_died_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be made again by the next process, and run twice."""
    monkeypatch.setattr(acp_tool_turn, "SIBLING_QUIET_S", 0.01)
    monkeypatch.setattr(acp_tool_turn, "UNANNOUNCED_S", 0.0)
    pool = Pool()
    launch = AcpLaunch(Work("auto", "/w", "agent", False), "build", Prompt("go"), 0, None, Circumstances())
    offer = TurnOffer([ToolSpec("deploy")], ToolChoice())
    slot, told = Slots(1, 1, retry_after=1.0).join(), AcpTranslator(showing="hidden")
    parts = ("cli", launch, told, slot, pool, CliLimits(), lambda _: None, lambda _: None)
    turn = AcpToolTurn(*parts, offer=offer, host=Host())  # type: ignore[arg-type]  # what the turn uses of it
    seen: list[Event] = []
    turn.listen(lambda: seen.extend(turn.take()))
    await pool.first.agent.prompted.wait()
    calls = [asyncio.ensure_future(turn.called(use(number))) for number in (1, 2)]
    await asyncio.sleep(0)
    pool.first.agent.answer.set_exception(DIED)
    await pool.starting.wait()
    await asyncio.sleep(0.1)  # longer than a step waits for its siblings
    assert not [event for event in seen if isinstance(event, ToolCallReady | TurnPaused)]
    pool.started.set()
    await pool.second.agent.prompted.wait()
    calls += [asyncio.ensure_future(turn.called(use(number))) for number in (3, 4)]
    async with asyncio.timeout(20):
        while not (seen and isinstance(seen[-1], TurnPaused)):
            await asyncio.sleep(0.01)
    assert len([event for event in seen if isinstance(event, ToolCallReady)]) == 2, "each call once"
    assert [event.how for event in seen if isinstance(event, Recovered)] == ["new run"]
    for call in calls:
        call.cancel()
    turn.listen(lambda: None)
    await turn.aclose()
