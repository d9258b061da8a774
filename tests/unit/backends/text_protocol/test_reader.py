"""The inner turn's events in, events out: each case in one batch, event by event, and with its words cut up."""

from dataclasses import dataclass

import pytest

from caretway.backends.text_protocol.limits import TextLimits
from caretway.backends.text_protocol.parser import Parser
from caretway.backends.text_protocol.reader import TextReader
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    AgentActivity,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnStarted,
    Usage,
    UsageReported,
)
from caretway.core.fold import Reply, fold
from caretway.core.order import EventOrder

T = "<<CALL_abcd1234>>"
DOWN = TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "cut"))
COUNTED = UsageReported(Usage(7, 3))


def call(name: str, arguments: str = "{}") -> str:
    return f'<invoke name="{name}">{arguments}</invoke>'


def reader(corrections: int = 0, **limits: int) -> TextReader:
    parser = Parser(T, frozenset({"add", "get"}), thinking=True, keep_bad_calls=bool(corrections), max_call_chars=1000)
    return TextReader(parser, TextLimits(corrections=corrections, **limits), prompt_chars=40)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    given: list[Event]
    text: str = ""
    calls: tuple[str, ...] = ()
    reasoning: str = ""
    error: GatewayError | None = None
    max_calls: int = 64


CASES = [
    Case("words", [TextDelta("hello "), TextDelta("there"), TurnEnded()], "hello there"),
    Case("thinking", [TextDelta("<thinking>hm</thinking>\nyes"), TurnEnded()], "yes", reasoning="hm"),
    Case("a call", [TextDelta(f"so\n{T}\n{call('add')}"), TurnEnded()], "so\n", ("add",)),
    Case("invented results", [TextDelta(f"{T}{call('add')}\nIt is 5."), DOWN], calls=("add",)),
    Case("white space behind a call", [TextDelta(f"{T}{call('add')}\n\n"), TurnEnded()], calls=("add",)),
    Case("as many calls as allowed", [TextDelta(T + call("add") + call("get")), DOWN], calls=("add",), max_calls=1),
    Case("a wrong call is text", [TextDelta(f"a {T}{call('rm')} b"), TurnEnded()], f"a {T}{call('rm')} b"),
    Case("half a call, then a failure", [TextDelta(f"so {T}<invoke na"), DOWN], "so ", error=DOWN.error),
    Case("half a trigger, then a failure", [TextDelta(f"so {T[:7]}"), DOWN], "so ", error=DOWN.error),
    Case("half a call, then the end", [TextDelta(f"so {T}<invoke na"), TurnEnded()], f"so {T}<invoke na"),
    Case("less than a tag, then a failure", [TextDelta("a <"), DOWN], "a <", error=DOWN.error),
    Case("upstream's thinking and work", [ReasoningDelta("hm"), AgentActivity("ran"), TurnEnded()], reasoning="hm"),
    Case("two starts are one", [TurnStarted(), TextDelta("a"), TurnEnded()], "a"),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found = request.param
    assert isinstance(found, Case)
    return found


def read(one: TextReader, batches: list[list[Event]]) -> Reply:
    order, events = EventOrder(), []
    for batch in batches:
        events += one.feed(batch)
    for event in events:
        order.check(event)
    assert one.over
    return fold(events)


def cut(event: Event) -> list[Event]:
    return [TextDelta(letter) for letter in event.text] if isinstance(event, TextDelta) else [event]


def test_however_it_comes(case: Case) -> None:
    given = [TurnStarted(), *case.given]
    expected = (case.text, case.calls, case.reasoning, case.error)
    for batches in ([given], [[event] for event in given], [[piece] for event in given for piece in cut(event)]):
        reply = read(reader(max_calls=case.max_calls), batches)
        assert (reply.text, tuple(one.name for one in reply.calls), reply.reasoning, reply.error) == expected


@pytest.mark.parametrize(("given", "expected"), [([], Usage(10, 2, estimated=True)), ([COUNTED], Usage(7, 3))])
def test_usage_is_upstreams_or_an_estimate(given: list[Event], expected: Usage) -> None:
    assert read(reader(), [[TurnStarted(), TextDelta("12345678"), *given, TurnEnded()]]).usage == expected


def test_a_wrong_call_stops_the_reader_until_it_is_decided() -> None:
    one = reader(corrections=1)
    shown = one.feed([TurnStarted(), TextDelta(f"I try. {T}{call('rm')} done!"), TurnEnded(), TextDelta("late")])
    assert shown == [TurnStarted(), TextDelta("I try. ")]
    assert (one.ended, one.over, [bad.name for bad in one.wrong]) == (TurnEnded(), False, ["rm"])
    assert one.said == f"I try. {T}{call('rm')} done!"


def test_a_corrected_model_goes_on_and_is_not_corrected_again() -> None:
    one = reader(corrections=1)
    one.feed([TurnStarted(), TextDelta(T + call("rm")), TurnEnded()])
    one.corrected()
    assert (one.ended, one.wrong, one.said) == (None, [], "")
    shown = one.feed([TurnStarted(), TextDelta(T + call("rm")), TurnEnded()])
    assert one.over
    assert [event for event in shown if isinstance(event, TextDelta)] == [TextDelta(T + call("rm"))]


def test_where_the_model_cannot_be_told_its_wrong_call_is_text() -> None:
    one = reader(corrections=1)
    one.feed([TurnStarted(), TextDelta(f"{T}{call('rm')} done!"), COUNTED, TurnEnded()])
    assert one.give_up() == [TextDelta(f"{T}{call('rm')} done!"), TurnEnded()]
    assert one.over


def test_too_much_behind_a_wrong_call_is_not_held() -> None:
    one = reader(corrections=1, max_call_chars=100)
    one.feed([TurnStarted(), TextDelta(T + call("rm"))])
    held = one.feed([TextDelta("x" * 60)])
    assert held == []
    assert one.feed([TextDelta("y" * 60)]) == [TextDelta(T + call("rm") + "x" * 60 + "y" * 60)]
    assert one.wrong == []
