"""One live turn: what the plan is shown of it, and the fingerprints by which its client is recognised."""

import asyncio
import re
from typing import Final

import pytest
from msgspec.structs import replace

from caretway.core.events import Event, TextDelta, ToolCallDelta, ToolCallReady, ToolCallStarted, TurnPaused
from caretway.core.request import Message, Role, Text, ToolCall, ToolResult, ToolSpec
from caretway.core.tally import history_tokens
from caretway.sessions.lifecycle import Happening, SessionState
from caretway.sessions.live import REPLICA, LiveTurn, Tickets, new_sid
from caretway.sessions.transcript import Chain, tools_key
from turns import PlayedTurn

from .played import TOOLS, ask, live

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


HI = Message(Role.USER, (Text("hi"),))
CALLS = Message(Role.ASSISTANT, (ToolCall("call_1", "read", "{}"),))
RESULT = Message(Role.TOOL, (ToolResult("call_1", (Text("a file"),)),))


def waiting() -> LiveTurn:
    one = live(PlayedTurn(), ask(HI))
    one.unchained = (HI,)
    one.answer = CALLS
    one.open = ["call_1"]
    one.happened(Happening.PAUSED)
    return one


def fingerprint(*messages: Message) -> bytes:
    return Chain(tools_key(TOOLS)).add(messages).said()


@pytest.mark.seed("J05")
def test_as_the_plan_sees_it() -> None:
    one = waiting()
    seen = one.parked()
    assert (seen.tickets, seen.waiting, seen.own, seen.abandoned) == (frozenset({"call_1"}), True, True, False)
    assert (seen.answer, seen.tools, seen.history) == (CALLS, TOOLS, (HI,))
    assert seen.before() == fingerprint(HI)
    assert not one.parked(own=False).own


def test_a_turn_whose_client_hung_up_is_abandoned() -> None:
    one = live(PlayedTurn())
    one.happened(Happening.HUNG_UP)
    assert one.parked().abandoned


def test_a_client_is_recognised_by_its_own_words() -> None:
    """It retold our answer in another way: that is what it will send again."""
    one = waiting()
    retold = Message(Role.ASSISTANT, (Text("I look."), ToolCall("call_1", "read", "{}")))
    one.goes_on(ask(HI, retold, RESULT), (retold, RESULT))
    assert one.before() == fingerprint(HI, retold, RESULT)


def test_a_client_that_sends_results_alone_means_our_answer() -> None:
    one = waiting()
    one.goes_on(ask(RESULT), (RESULT,))
    assert one.before() == fingerprint(HI, CALLS, RESULT)


def test_the_transcript_includes_the_answer_and_the_tools() -> None:
    one = waiting()
    assert one.transcript() == Chain(tools_key(TOOLS)).add((HI, CALLS)).digest()


def test_tools_that_were_added_are_the_newest_requests_and_not_the_runs() -> None:
    one = waiting()
    more = (*TOOLS, ToolSpec("later"))
    one.goes_on(replace(ask(HI, CALLS, RESULT), tools=more, call_prefix="toolu_"), (CALLS, RESULT))
    assert (one.tools, one.tickets.prefix) == (TOOLS, "toolu_")
    one.answer = Message(Role.ASSISTANT, (Text("done"),))
    assert one.transcript() == Chain(tools_key(more)).add((HI, CALLS, RESULT, one.answer)).digest()


@pytest.mark.parametrize("retold", [True, False], ids=["the client retells the call", "results alone"])
def test_what_it_holds_is_counted_step_by_step(retold: bool) -> None:
    """The same as counting the whole history, which grows with every step of a loop."""
    said: tuple[Message, ...] = (HI, CALLS, RESULT)
    one = waiting()
    one.goes_on(ask(*said), said[1:] if retold else said[2:])
    assert one.held == history_tokens(ask(*said))
    one.answer = Message(Role.ASSISTANT, (ToolCall("call_2", "read_it_all", '{"path": "/tmp"}'),))
    said = (*said, one.answer, Message(Role.TOOL, (ToolResult("call_2", (Text("another file"),)),)))
    one.goes_on(ask(*said), said[3:] if retold else said[4:])
    assert one.held == history_tokens(ask(*said))


async def test_its_timer_runs_only_while_it_is_parked() -> None:
    one = waiting()
    one.timer = timer = asyncio.get_running_loop().call_later(3600, lambda: None)
    one.happened(Happening.RESULTS)
    assert timer.cancelled()
    assert one.state is SessionState.RUNNING
