"""What a step with bridged calls shows, what is to be run, and who is awaited afterwards."""

from dataclasses import dataclass, field

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    Note,
    ReasoningDelta,
    Recovered,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.request import Message, Role, Text, ToolCall, ToolResult
from caretway.mcp.steps import Activity, BridgedStep, StepPhase, StepReader
from turns import called

from .scripted import Tools

QUICK = "mcp__s__quick"
RAN = AgentActivity("s: quick")
DOWN = GatewayError(ErrorKind.UPSTREAM_DOWN, "down")
GONE = GatewayError(ErrorKind.TURN_GONE, "gone")


def reader(activity: Activity = "hidden", *, parks: bool = True) -> StepReader:
    return StepReader(Tools().catalogue.for_request(()), activity, parks=parks)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    given: list[Event]
    shown: list[Event]
    phase: StepPhase
    run: list[str] = field(default_factory=list)
    parks: bool = True
    activity: Activity = "hidden"


READ = called("2", "read")
CASES = [
    Case("words", [TextDelta("a")], [TextDelta("a")], StepPhase.RUNNING),
    Case("an end", [TextDelta("a"), TurnEnded()], [TextDelta("a"), TurnEnded()], StepPhase.OVER),
    Case("a bridged call", called("1", QUICK), [RAN], StepPhase.RUNNING, ["1"]),
    Case("a pause for it", [*called("1", QUICK), TurnPaused()], [RAN], StepPhase.COLLECTING, ["1"]),
    Case("an end with it", [*called("1", QUICK), TurnEnded()], [RAN], StepPhase.COLLECTING, ["1"], parks=False),
    Case("the client's call", [*READ, TurnPaused()], [*READ, TurnPaused()], StepPhase.PARKED),
    Case("the client's call ends it", [*READ, TurnEnded()], [*READ, TurnPaused()], StepPhase.PARKED, parks=False),
    Case(
        "both",
        [*called("1", QUICK), *READ, TurnPaused()],
        [RAN, *READ, TurnPaused()],
        StepPhase.PARKED,
        ["1"],
    ),
    Case(
        "a paragraph behind a call",
        [TextDelta("a"), *called("1", QUICK), TextDelta("b")],
        [TextDelta("a"), RAN, TextDelta("\n\nb")],
        StepPhase.RUNNING,
        ["1"],
    ),
    Case(
        "no second blank line",
        [TextDelta("a\n"), *called("1", QUICK), TextDelta("b")],
        [TextDelta("a\n"), RAN, TextDelta("b")],
        StepPhase.RUNNING,
        ["1"],
    ),
    Case(
        "a note at the end",
        [*called("1", QUICK), *READ, TurnPaused()],
        [RAN, *READ, Note("mcp_calls", QUICK), TurnPaused()],
        StepPhase.PARKED,
        ["1"],
        activity="note",
    ),
    Case(
        "shown as thinking",
        called("1", QUICK, '{"n":1}'),
        [RAN, ReasoningDelta('[s: quick {"n":1}]\n')],
        StepPhase.RUNNING,
        ["1"],
        activity="reasoning",
    ),
    Case("a failure", [TurnFailed(DOWN)], [TurnFailed(DOWN)], StepPhase.OVER),
    Case(
        "a failure after work",
        [*called("1", QUICK), TurnFailed(DOWN)],
        [RAN, TurnFailed(DOWN.after_work())],
        StepPhase.OVER,
        ["1"],
    ),
    Case("gone before any work", [TurnFailed(GONE)], [TurnFailed(GONE)], StepPhase.OVER),
    Case("gone after work", [*called("1", QUICK), TurnFailed(GONE)], [RAN], StepPhase.LOST, ["1"]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_step(case: Case) -> None:
    for batches in ([case.given], [[event] for event in case.given]):
        one = reader(case.activity, parks=case.parks)
        shown = [event for batch in batches for event in one.feed(batch)]
        assert (shown, one.phase) == (case.shown, case.phase)
        assert [call.call_id for call in one.to_run] == case.run


def test_the_steps_of_a_response_start_once_and_are_counted_together() -> None:
    one = reader()
    one.feed([TurnStarted(), *called("1", QUICK), UsageReported(Usage(10, 2)), TurnPaused()])
    one.passed_on()
    assert one.listens
    shown = one.feed([TurnStarted(), TextDelta("b"), UsageReported(Usage(20, 3)), TurnEnded()])
    assert shown == [TextDelta("b"), UsageReported(Usage(20, 5)), TurnEnded()]


def test_the_response_after_a_parked_step_begins_anew() -> None:
    one = reader()
    one.feed([TurnStarted(), *READ, UsageReported(Usage(10, 2)), TurnPaused()])
    one.begin_step()
    assert one.feed([TurnStarted(), UsageReported(Usage(20, 3))]) == [TurnStarted(), UsageReported(Usage(20, 3))]


def test_how_often_the_run_was_reopened_is_kept() -> None:
    one = reader()
    one.feed([Recovered("same run", "cut", 2)])
    assert one.reopened == 2


def test_a_step_as_history() -> None:
    calls = [ToolCall("1", QUICK, "{}"), ToolCall("2", "read", "{}")]
    mine, theirs = ToolResult("1", (Text("mine"),)), ToolResult("2", (Text("theirs"),))
    step = BridgedStep(["so ", "far"], calls, 1, (theirs,), (Text("hurry"),))
    assert step.waits_for_client
    assert step.messages({"1": mine}) == (
        Message(Role.ASSISTANT, (Text("so far"), *calls)),
        Message(Role.TOOL, (mine,)),
        Message(Role.TOOL, (theirs,)),
        Message(Role.USER, (Text("hurry"),)),
    )
