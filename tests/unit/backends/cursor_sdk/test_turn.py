"""A turn in front of a run that is only played: late calls, calls that come twice, bad keys, ends while parked."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from caretway.backends.cursor_sdk.agents import AgentPosition
from caretway.backends.cursor_sdk.bridge import SdkBridge
from caretway.backends.cursor_sdk.callbacks import Invocation
from caretway.backends.cursor_sdk.compose import SdkOpening
from caretway.backends.cursor_sdk.turn import OpenRun, SdkTurn, TurnLimits
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, TurnEnded, TurnFailed, TurnPaused
from caretway.core.fold import Reply, fold
from caretway.core.request import Text, ToolResult, ToolSpec
from receiving import receive

TOOLS = (ToolSpec("left"), ToolSpec("right"))
FINISHED = SimpleNamespace(sdk_message=None, result={"status": "RUN_LIFECYCLE_STATUS_FINISHED"})
FAILED = SimpleNamespace(sdk_message=None, result={"status": "RUN_LIFECYCLE_STATUS_ERROR", "errorMessage": "lost"})


def said(text: str) -> SimpleNamespace:
    content = [SimpleNamespace(text=text)]
    spoken = SimpleNamespace(type="assistant", message=SimpleNamespace(content=content))
    return SimpleNamespace(sdk_message=spoken, result=None)


class Stage:
    """The backend and the run, as far as a turn sees them."""

    def __init__(self, refused: GatewayError | None = None) -> None:
        self.records: asyncio.Queue[Any] = asyncio.Queue()
        self.refused = refused
        self.closed = 0

    async def events(self) -> AsyncIterator[Any]:
        while True:
            yield await self.records.get()

    async def open(self, turn: SdkTurn) -> OpenRun:
        return OpenRun(SdkBridge(None, None), None, self)

    def ended(self, turn: SdkTurn) -> None:
        pass

    async def close(self, turn: SdkTurn, opened: OpenRun | None) -> None:
        self.closed += 1

    async def key_is_refused(self, bridge: SdkBridge) -> GatewayError | None:
        return self.refused


def begun(stage: Stage, **limits: float) -> SdkTurn:
    opening = SdkOpening("go", (), TOOLS, "m", ())
    turn = SdkTurn("sdk", AgentPosition("agent", 0), opening, stage, TurnLimits(**{"sibling_quiet": 0.01} | limits))  # type: ignore[arg-type]  # all of these are numbers of seconds
    turn.start()
    return turn


def call(turn: SdkTurn, call_id: str, tool: str = "left") -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(turn.called(Invocation("agent", tool, "{}", call_id)))


async def response(turn: SdkTurn) -> Reply:
    events: list[Event] = []
    while not events or not isinstance(events[-1], TurnPaused | TurnEnded | TurnFailed):
        events += await receive(turn)
    return fold(events)


def result(call_id: str) -> ToolResult:
    return ToolResult(call_id, (Text(f"result of {call_id}"),))


async def test_a_late_call_belongs_to_the_next_response() -> None:
    stage = Stage()
    turn = begun(stage)
    first = call(turn, "c1")
    assert [one.id for one in (await response(turn)).calls] == ["c1"]
    second = call(turn, "c2")
    await asyncio.sleep(0)
    await turn.submit([result("c1")])
    assert [one.id for one in (await response(turn)).calls] == ["c2"]
    await turn.submit([result("c2")])
    assert (await first)["content"][0]["text"] == "result of c1"
    assert (await second)["content"][0]["text"] == "result of c2"
    stage.records.put_nowait(FINISHED)
    assert (await response(turn)).error is None
    assert turn.snapshot() is not None
    await turn.aclose()


async def test_the_same_call_again_is_the_same_call() -> None:
    turn = begun(Stage())
    lost = call(turn, "c1")
    assert len((await response(turn)).calls) == 1
    lost.cancel()  # the bridge hung up, and tries again
    again = call(turn, "c1")
    await asyncio.sleep(0)
    await turn.submit([result("c1")])
    assert (await again)["content"][0]["text"] == "result of c1"
    assert (await call(turn, "c1"))["content"][0]["text"] == "result of c1"
    await turn.aclose()


async def test_an_unknown_tool_is_answered_here() -> None:
    turn = begun(Stage())
    answer = await call(turn, "c1", "middle")
    assert answer["isError"]
    assert "left, right" in answer["content"][0]["text"]
    await turn.aclose()


async def test_a_run_that_fails_while_parked_is_gone() -> None:
    stage = Stage()
    turn = begun(stage)
    call(turn, "c1")
    assert (await response(turn)).paused
    stage.records.put_nowait(FAILED)
    while not stage.records.empty():
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(GatewayError) as gone:
        await turn.submit([result("c1")])
    assert gone.value.kind is ErrorKind.TURN_GONE
    await turn.aclose()


async def test_a_run_that_says_too_much_while_parked_is_given_up() -> None:
    stage = Stage()
    turn = begun(stage, buffer_bytes=10_000)
    call(turn, "c1")
    assert (await response(turn)).paused
    for _ in range(5):
        stage.records.put_nowait(said("x" * 4000))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (stage.closed, stage.records.qsize()) == (1, 2), "the third one is too much"
    with pytest.raises(GatewayError) as gone:
        await turn.submit([result("c1")])
    assert gone.value.kind is ErrorKind.TURN_GONE
    await turn.aclose()
    assert stage.closed == 1


async def test_what_is_said_while_parked_begins_the_next_response() -> None:
    stage = Stage()
    turn = begun(stage, buffer_bytes=10_000)
    waiting = call(turn, "c1")
    assert (await response(turn)).paused
    for word in "ab":
        stage.records.put_nowait(said(word * 4000))
    while not stage.records.empty():
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await turn.submit([result("c1")])
    await waiting
    stage.records.put_nowait(FINISHED)
    assert (await response(turn)).text == "a" * 4000 + "b" * 4000
    await turn.aclose()


async def test_results_must_be_for_all_open_calls() -> None:
    turn = begun(Stage())
    for name in ("c1", "c2"):
        call(turn, name)
    assert len((await response(turn)).calls) == 2
    with pytest.raises(GatewayError):
        await turn.submit([result("c1")])
    await turn.submit([result("c2"), result("c1")])
    await turn.aclose()


async def test_a_bad_key_is_not_waited_out() -> None:
    turn = begun(Stage(GatewayError(ErrorKind.SIGNED_OUT, "bad key")), key_check=0.0)
    error = (await response(turn)).error
    assert error is not None
    assert error.kind is ErrorKind.SIGNED_OUT
    await turn.aclose()


async def test_closing_is_done_once() -> None:
    stage = Stage()
    turn = begun(stage)
    waiting = call(turn, "c1")
    await response(turn)
    await asyncio.gather(turn.aclose(), turn.aclose())
    await turn.aclose()
    assert stage.closed == 1
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(GatewayError) as closed:
        await receive(turn)
    assert closed.value.kind is ErrorKind.CANCELLED


async def test_a_slow_reader_leaves_the_records_with_the_run() -> None:
    stage = Stage()
    turn = begun(stage, buffer_bytes=10_000)
    for _ in range(10):
        stage.records.put_nowait(said("x" * 4000))
    stage.records.put_nowait(FINISHED)
    for _ in range(100):
        await asyncio.sleep(0)
    assert stage.records.qsize() == 8, "the third one fills the buffer"
    assert len((await response(turn)).text) == 40_000
    await turn.aclose()


async def test_records_of_one_go_are_one_batch() -> None:
    stage = Stage()
    turn = begun(stage)
    await asyncio.sleep(0)
    told: list[int] = []
    turn.listen(lambda: told.append(len(turn.take())))
    for word in "abc":
        stage.records.put_nowait(said(word))
    for _ in range(10):
        await asyncio.sleep(0)
    assert told == [4], "the start and three words"
    turn.listen(lambda: None)
    await turn.aclose()
