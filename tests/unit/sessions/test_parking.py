"""Which parked turns are worth their place: a table, and who goes first."""

from typing import Final

import pytest

from caretway.core.request import Message, Role, Text, ToolCall, ToolChoice, ToolResult, ToolSpec, TurnRequest
from caretway.sessions.parking import ONE_CALL_S, first_to_go, patience, wants_one_call

HELLO: Final = Message(Role.USER, (Text("hello"),))
ASKED: Final = Message(Role.ASSISTANT, (ToolCall("t", "read", "{}"),))
DONE: Final = Message(Role.TOOL, (ToolResult("t", (Text("done"),)),))
ONE: Final = (ToolSpec("event"),)
TWO: Final = (ToolSpec("event"), ToolSpec("read"))
NAMED: Final = ToolChoice("named", "event")
ANY: Final = ToolChoice("required")


def request(choice: ToolChoice, tools: tuple[ToolSpec, ...], *messages: Message) -> TurnRequest:
    return TurnRequest("m", messages or (HELLO,), tools=tools, tool_choice=choice)


CASES: Final = {
    "a named call": (request(NAMED, ONE), True),
    "a named call among several tools": (request(NAMED, TWO), True),
    "any call, and there is one tool": (request(ANY, ONE), True),
    "any call of several tools: an agent that must act": (request(ANY, TWO), False),
    "whatever the model likes": (request(ToolChoice(), ONE), False),
    "in the middle of a loop": (request(NAMED, ONE, HELLO, ASKED, DONE), False),
    "a later turn of a chat": (request(NAMED, ONE, HELLO, Message(Role.ASSISTANT, (Text("hi"),)), HELLO), True),
}


@pytest.mark.seed("J09")
@pytest.mark.parametrize("name", CASES)
def test_what_one_call_is_wanted_for(name: str) -> None:
    asked, expected = CASES[name]
    assert wants_one_call(asked) is expected
    assert patience(asked, 900.0) == (ONE_CALL_S if expected else 900.0)
    assert patience(asked, 5.0) == 5.0


class Turn:
    def __init__(self, asked: TurnRequest) -> None:
        self.request = asked


def test_forced_calls_go_first_the_oldest_of_them_before_the_others() -> None:
    loop, forced = request(ToolChoice(), TWO), request(NAMED, ONE)
    turns = [Turn(asked) for asked in (loop, forced, loop, forced)]
    gone = []
    while turns:
        gone.append(first_to_go(turns))
        turns.remove(gone[-1])
    assert [turn.request is forced for turn in gone] == [True, True, False, False]
