"""An answer told once more has the same words and the same calls, and moves nothing."""

from caretway.core.events import TextDelta, TurnPaused, TurnStarted
from caretway.core.fold import fold
from caretway.core.order import EventOrder
from caretway.core.request import Message, Role, Text, ToolCall
from caretway.sessions.repeated_answer import REPEATER, repeated_turn
from caretway.sessions.response import Response
from caretway.sessions.tickets import Tickets
from turns import PlayedTurn

from .played import ask, live


def test_the_events_of_an_answer() -> None:
    tickets = Tickets("0123456789abcdef", "call_")
    first, second = tickets.ticket("a"), tickets.ticket("b")
    parts = (Text("I look."), ToolCall(first, "read", '{"p":1}'), ToolCall(second, "read", ""))
    events = repeated_turn(Message(Role.ASSISTANT, parts), tickets).take()
    order = EventOrder()
    for event in events:
        order.check(event)
    reply = fold(events)
    assert (reply.text, reply.paused) == ("I look.", True)
    assert reply.calls == (ToolCall("a", "read", '{"p":1}'), ToolCall("b", "read", "")), "upstream's own ids"


def test_a_response_to_it_gives_the_tickets_that_were_given() -> None:
    turn = live(PlayedTurn())
    ticket = turn.tickets.ticket("a")
    answer = Message(Role.ASSISTANT, (Text("I look."), ToolCall(ticket, "read", "{}")))
    turn.turn = repeated_turn(answer, turn.tickets)
    response = Response(REPEATER, turn, ask(), "resumed", "", (), None)
    events = response.take()
    assert (events[0], events[1], events[-1]) == (TurnStarted(), TextDelta("I look."), TurnPaused())
    assert [call.id for call in response.reply().calls] == [ticket]
    assert turn.issued == [], "they are known already"
