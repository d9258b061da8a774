"""Tickets: legal in every dialect, never the same twice, and the way back."""

import re
from typing import Final

import pytest

from caretway.core.events import Event, TextDelta, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnPaused
from caretway.core.request import Text, ToolResult
from caretway.sessions.tickets import Tickets, new_sid

LEGAL: Final = re.compile(r"sess_[a-z0-9]{16}__call_[a-z0-9]+")
UPSTREAM: Final = ["c1", "toolu_01ABC", "", "x" * 500, "a b\n\t", "ünï/ç:ode", "sess_x__call_y", "-1"]


@pytest.mark.parametrize("theirs", UPSTREAM)
def test_whatever_upstream_calls_it_the_ticket_is_legal(theirs: str) -> None:
    ticket = Tickets(new_sid()).ticket(theirs)
    assert LEGAL.fullmatch(ticket)
    assert len(ticket) <= 64
    assert re.fullmatch(r"[A-Za-z0-9_-]+", ticket)


def test_a_turn_with_very_many_calls_has_legal_tickets_still() -> None:
    tickets = Tickets(new_sid())
    lengths = {len(tickets.ticket(f"c{n}")) for n in range(20_000)}
    assert max(lengths) <= 40  # grows by one with every sixteenfold: 64 are never reached


def test_tickets_of_many_turns_are_all_different() -> None:
    """Upstream numbers its calls alike in every turn."""
    turns = [Tickets(new_sid()) for _ in range(200)]
    tickets = {turn.ticket(f"call_{n}") for turn in turns for n in range(50)}
    assert len(tickets) == 200 * 50


def test_sids_are_all_different() -> None:
    assert len({new_sid() for _ in range(10_000)}) == 10_000


def test_a_call_keeps_its_ticket() -> None:
    tickets = Tickets(new_sid())
    first = tickets.ticket("a")
    assert tickets.ticket("b") != first
    assert tickets.ticket("a") == first


def test_a_ticket_names_its_turn() -> None:
    tickets = Tickets(new_sid())
    assert tickets.ticket("a").startswith(f"sess_{tickets.sid}__call_")


@pytest.mark.parametrize("theirs", UPSTREAM)
def test_round_trip(theirs: str) -> None:
    tickets = Tickets(new_sid())
    shown = tickets.outward(ToolCallReady(theirs, "read", "{}"))
    assert isinstance(shown, ToolCallReady)
    assert (shown.name, shown.arguments) == ("read", "{}")
    answer = ToolResult(shown.id, (Text("done"),), is_error=True)
    assert tickets.inward(answer) == ToolResult(theirs, (Text("done"),), is_error=True)


def test_every_event_of_a_call_carries_the_same_ticket() -> None:
    tickets = Tickets(new_sid())
    events: list[Event] = [ToolCallStarted("a", "read"), ToolCallDelta("a", "{}"), ToolCallReady("a", "read", "{}")]
    shown = [tickets.outward(event) for event in events]
    ticket = tickets.ticket("a")
    assert shown == [ToolCallStarted(ticket, "read"), ToolCallDelta(ticket, "{}"), ToolCallReady(ticket, "read", "{}")]


def test_other_events_pass_untouched() -> None:
    tickets = Tickets(new_sid())
    for event in (TextDelta("a"), TurnPaused()):
        assert tickets.outward(event) is event


def test_a_foreign_ticket_is_no_way_in() -> None:
    mine, theirs = Tickets(new_sid()), Tickets(new_sid())
    mine.ticket("a")
    with pytest.raises(KeyError):
        mine.inward(ToolResult(theirs.ticket("a"), ()))
