"""Tickets: legal in every dialect, never the same twice, and the way back."""

import re
from typing import Final

import pytest

from caretway.core.events import Event, TextDelta, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnPaused
from caretway.core.request import Text, ToolResult
from caretway.sessions.tickets import REPLICA, Tickets, new_sid

PREFIXES: Final = ("call_", "toolu_")
MOST: Final = 40
UPSTREAM: Final = ["c1", "toolu_01ABC", "", "x" * 500, "a b\n\t", "ünï/ç:ode", "sess_x__call_y", "-1"]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("theirs", UPSTREAM)
def test_whatever_upstream_calls_it_the_ticket_is_legal(theirs: str, prefix: str) -> None:
    ticket = Tickets(new_sid(), prefix).ticket(theirs)
    assert ticket.startswith(prefix)
    assert re.fullmatch(r"[A-Za-z0-9]+", ticket.removeprefix(prefix))
    assert len(ticket) <= MOST


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_turn_with_very_many_calls_has_legal_tickets_still(prefix: str) -> None:
    tickets = Tickets(new_sid(), prefix)
    lengths = {len(tickets.ticket(f"c{n}")) for n in range(20_000)}
    assert max(lengths) + 4 <= MOST  # grows by one with every sixteenfold: a thousand million calls fit


def test_the_same_place_in_every_ticket_is_kept_for_the_replica() -> None:
    for prefix in PREFIXES:
        tickets = Tickets(new_sid(), prefix)
        for theirs in UPSTREAM:
            assert tickets.ticket(theirs).startswith(f"{prefix}{REPLICA}{tickets.sid}")


def test_nobody_can_guess_a_ticket() -> None:
    """64 random bits for the session, and more for each call."""
    assert re.fullmatch(r"[0-9a-f]{16}", new_sid())
    same = {Tickets("s", "call_").ticket("c1") for _ in range(50)}
    assert len(same) > 1


def test_the_next_step_may_come_through_another_dialect() -> None:
    tickets = Tickets(new_sid(), "toolu_")
    first = tickets.ticket("a")
    tickets.prefix = "call_"
    assert tickets.ticket("b").startswith("call_")
    assert tickets.ticket("a") == first
    assert tickets.inward(ToolResult(first, ())) == ToolResult("a", ())


def test_tickets_of_many_turns_are_all_different() -> None:
    """Upstream numbers its calls alike in every turn."""
    turns = [Tickets(new_sid(), "call_") for _ in range(200)]
    tickets = {turn.ticket(f"call_{n}") for turn in turns for n in range(50)}
    assert len(tickets) == 200 * 50


def test_sids_are_all_different() -> None:
    assert len({new_sid() for _ in range(10_000)}) == 10_000


def test_a_call_keeps_its_ticket() -> None:
    tickets = Tickets(new_sid(), "call_")
    first = tickets.ticket("a")
    assert tickets.ticket("b") != first
    assert tickets.ticket("a") == first


@pytest.mark.parametrize("theirs", UPSTREAM)
def test_round_trip(theirs: str) -> None:
    tickets = Tickets(new_sid(), "call_")
    shown = tickets.outward(ToolCallReady(theirs, "read", "{}"))
    assert isinstance(shown, ToolCallReady)
    assert (shown.name, shown.arguments) == ("read", "{}")
    answer = ToolResult(shown.id, (Text("done"),), is_error=True)
    assert tickets.inward(answer) == ToolResult(theirs, (Text("done"),), is_error=True)


def test_every_event_of_a_call_carries_the_same_ticket() -> None:
    tickets = Tickets(new_sid(), "call_")
    events: list[Event] = [ToolCallStarted("a", "read"), ToolCallDelta("a", "{}"), ToolCallReady("a", "read", "{}")]
    shown = [tickets.outward(event) for event in events]
    ticket = tickets.ticket("a")
    assert shown == [ToolCallStarted(ticket, "read"), ToolCallDelta(ticket, "{}"), ToolCallReady(ticket, "read", "{}")]


def test_other_events_pass_untouched() -> None:
    tickets = Tickets(new_sid(), "call_")
    for event in (TextDelta("a"), TurnPaused()):
        assert tickets.outward(event) is event


def test_a_foreign_ticket_is_no_way_in() -> None:
    mine, theirs = Tickets(new_sid(), "call_"), Tickets(new_sid(), "call_")
    mine.ticket("a")
    with pytest.raises(KeyError):
        mine.inward(ToolResult(theirs.ticket("a"), ()))
