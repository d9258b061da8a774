"""The filter of a response: order, tickets, stages, fold and limits; and what it does when the turn ends under it."""

import asyncio
import gc
import weakref

import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import (
    Event,
    EventOrder,
    Note,
    Recovered,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    UsageReported,
)
from caretway.core.fold import fold
from caretway.core.request import Message, Role, Text, ToolCall, ToolChoice, ToolSpec, TurnRequest
from caretway.core.turn import Stage
from caretway.sessions.lifecycle import Happening
from caretway.sessions.live import LiveTurn, Tickets
from caretway.sessions.response import DRAINED_BYTES, MAX_CALLS, REPEATER, Drain, Response, repeated_turn
from turns import GONE, PlayedTurn, called

from .played import Owner, ask, live


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


LONG = 3600.0


def left(turn: PlayedTurn) -> Response:
    return Response(Owner(), live(turn), ask(), "fresh", "", (), None)


async def test_what_is_near_its_end_gets_there() -> None:
    given_up: list[Response] = []
    turn = PlayedTurn(TextDelta("nearly"))
    response = left(turn)
    Drain(response, LONG, given_up.append)
    turn.say(TextDelta(" there"), TurnEnded())
    assert (response.over, response.reply().text, given_up) == (True, "nearly there", [])


async def test_many_words_are_too_many() -> None:
    given_up: list[Response] = []
    turn = PlayedTurn()
    response = left(turn)
    Drain(response, LONG, given_up.append)
    turn.say(TurnStarted())
    for _ in range(3):
        assert given_up == []
        turn.say(TextDelta("x" * (DRAINED_BYTES // 3)))
    turn.say(TextDelta("more"))
    assert given_up == [response]


async def test_the_arguments_of_calls_count() -> None:
    given_up: list[Response] = []
    turn = PlayedTurn(ToolCallStarted("1", "write"))
    response = left(turn)
    Drain(response, LONG, given_up.append)
    for _ in range(3):
        assert given_up == []
        turn.say(ToolCallDelta("1", "x" * (DRAINED_BYTES // 3)))
    assert given_up == [response]


async def test_the_grace_ends() -> None:
    given_up: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    response = left(PlayedTurn(TextDelta("and so on")))
    Drain(response, 0.0, given_up.set_result)
    async with asyncio.timeout(60):
        assert await given_up is response


async def test_a_finished_response_is_held_by_nobody() -> None:
    gc.disable()
    try:
        turn = PlayedTurn(TextDelta("a"), TurnEnded())
        response = left(turn)
        Drain(response, LONG, lambda _: None)
        assert not response.over, "its client did hang up in the middle"
        await asyncio.sleep(0)
        assert response.over
        seen = weakref.ref(turn)
        del response, turn
        assert seen() is None
    finally:
        gc.enable()


REQUIRED = ToolChoice("required")


class Shout:
    """A stage: loud, and over at the first `!`."""

    spent = False

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, TextDelta):
            return [event]
        said, mark, _ = event.text.partition("!")
        ended = [TurnEnded(StopReason.STOP_SEQUENCE, "!")] if mark else []
        return [TextDelta(said.upper()), *ended]


def shout(request: TurnRequest) -> Stage | None:
    return Shout()


def response(turn: PlayedTurn, owner: Owner | None = None, **more: object) -> Response:
    given: dict[str, object] = {"request": ask(), "stages": (), "restart": None} | more
    return Response(owner or Owner(), live(turn), label="fresh", reason="new", **given)  # type: ignore[arg-type]  # by name


def test_words_pass_and_are_folded() -> None:
    turn = PlayedTurn(TextDelta("a"))
    one = response(turn)
    assert one.take() == [TurnStarted(), TextDelta("a")]
    turn.say(TextDelta("b"))
    turn.say(TextDelta("c"))
    assert one.take() == [TextDelta("b"), TextDelta("c")]
    assert (one.take(), one.reply().text, one.over) == ([], "abc", False)


ENDS: list[tuple[list[Event], Happening]] = [
    ([TurnEnded()], Happening.ENDED),
    ([*called("1"), TurnPaused()], Happening.PAUSED),
    ([TurnFailed(GatewayError(ErrorKind.UPSTREAM_DOWN, "down"))], Happening.FAILED),
]


@pytest.mark.parametrize(("events", "happening"), ENDS, ids=lambda value: getattr(value, "name", ""))
def test_an_end_is_settled_once_with_the_whole_reply(events: list[Event], happening: Happening) -> None:
    owner = Owner()
    one = response(PlayedTurn(TextDelta("a"), *events), owner)
    one.listen(lambda: assert_nothing(one))
    assert isinstance(one.take()[-1], type(events[-1]))
    assert (one.over, owner.settled, owner.replies) == (True, [happening], [one.reply()])
    one.close()
    assert owner.let_go_of == 0


def assert_nothing(one: Response) -> None:
    """The owner closes the turn while its last events are being taken: the listener is called, and gets nothing."""
    assert one.take() == []


def test_a_client_that_leaves_lets_go_of_the_turn() -> None:
    owner = Owner()
    response(PlayedTurn(TextDelta("a")), owner).close()
    assert owner.let_go_of == 1


def test_calls_get_tickets_that_are_known_before_they_are_seen() -> None:
    owner = Owner()
    one = response(PlayedTurn(*called("upstream's own id"), TurnPaused()), owner)
    (ready,) = [event for event in one.take() if isinstance(event, ToolCallReady)]
    assert owner.issued == [ready.id]
    assert ready.id.startswith("call_")
    assert [call.id for call in one.reply().calls] == [ready.id]


def test_stages_filter_and_may_end_it() -> None:
    """Upstream was stopped before it could count, so usage is an estimate."""
    owner = Owner()
    one = response(PlayedTurn(TextDelta("so"), TextDelta("on! and on"), TurnEnded()), owner, stages=(shout,))
    begun, so, on, usage, ended = one.take()
    assert (begun, so, on) == (TurnStarted(), TextDelta("SO"), TextDelta("ON"))
    assert isinstance(usage, UsageReported)
    assert usage.usage.estimated
    assert ended == TurnEnded(StopReason.STOP_SEQUENCE, "!")
    assert (owner.settled, one.reply().text) == ([Happening.STOPPED], "SOON")


def failed(one: Response) -> GatewayError:
    last = one.take()[-1]
    assert isinstance(last, TurnFailed)
    assert one.over
    return last.error


def test_events_out_of_order_are_a_bug_and_no_exception(caplog: pytest.LogCaptureFixture) -> None:
    turn = PlayedTurn()
    turn.say(TextDelta("before the beginning"))
    assert failed(response(turn)).kind is ErrorKind.INTERNAL
    assert "not allowed" in caplog.text


def test_a_closed_turn_is_a_failure() -> None:
    turn = PlayedTurn()
    one = response(turn)
    turn.close()
    assert failed(one).kind is ErrorKind.CANCELLED


@pytest.mark.parametrize("stages", [(), (shout,)])
def test_an_answer_has_a_length(stages: tuple[object, ...]) -> None:
    """Words are weighed many at a time, so it may be a little longer."""
    turn = PlayedTurn(TextDelta("a"))
    one = response(turn, max_bytes=200_000, stages=stages)
    one.shorten(2)
    said = 1
    while not one.over:
        events = one.take()
        said += 1000
        turn.say(TextDelta("b" * 1000))
    assert isinstance(events[-1], TurnFailed)
    assert "less at a time" in events[-1].error.hint
    assert 100_000 < said < 200_000
    assert one.take() == [], "and nothing behind it"


def test_a_turn_has_so_many_calls() -> None:
    calls = [event for number in range(MAX_CALLS + 1) for event in called(str(number))]
    error = failed(response(PlayedTurn(*calls, TurnPaused()), max_bytes=1 << 30))
    assert error.message.startswith(f"The model made more than {MAX_CALLS}")


def test_what_was_recovered_is_kept_and_not_shown() -> None:
    one = response(PlayedTurn(TextDelta("a"), Recovered("same run", "cut", 1)))
    assert one.take() == [TurnStarted(), TextDelta("a")]
    assert one.recoveries == [("same run", "cut")]


class Restarts:
    """What is opened when the first run is of no use."""

    def __init__(self, *turns: PlayedTurn | GatewayError) -> None:
        self._turns = list(turns)
        self.told: list[int] = []
        self.models: list[str] = []

    async def __call__(self, reopened: int, request: TurnRequest) -> LiveTurn:
        self.told.append(reopened)
        self.models.append(request.model)
        turn = self._turns.pop(0)
        if isinstance(turn, GatewayError):
            raise turn
        return live(turn)


async def all_of(one: Response) -> list[Event]:
    told = asyncio.Event()
    one.listen(told.set)
    events = one.take()
    while not one.over:
        await told.wait()
        told.clear()
        events += one.take()
    return events


async def test_a_lost_turn_is_answered_by_a_fresh_run() -> None:
    restarts = Restarts(PlayedTurn(TextDelta("here"), TurnEnded()))
    one = response(PlayedTurn(TurnFailed(GONE)), restart=restarts)
    one.label = "continued"
    assert await all_of(one) == [TurnStarted(), TextDelta("here"), TurnEnded()]
    assert (one.label, one.reason) == ("replayed", "the turn or its conversation could not be continued")
    assert (restarts.told, one.reply().text) == ([1], "here")


async def test_a_start_is_shown_once() -> None:
    turn = PlayedTurn()
    turn.say(TurnStarted())
    one = response(turn, restart=Restarts(PlayedTurn(TextDelta("here"), TurnEnded())))
    assert one.take() == [TurnStarted()]
    turn.say(TurnFailed(GONE))
    assert await all_of(one) == [TextDelta("here"), TurnEnded()]


def test_what_was_shown_is_not_said_by_another_run() -> None:
    turn = PlayedTurn(TextDelta("half"))
    one = response(turn, restart=Restarts())
    one.take()
    turn.say(TurnFailed(GONE))
    assert one.take() == [TurnFailed(GONE)]


async def test_a_fresh_run_that_cannot_be_had_is_a_failure() -> None:
    full = GatewayError(ErrorKind.OVERLOADED, "no place")
    one = response(PlayedTurn(TurnFailed(GONE)), restart=Restarts(full))
    assert (await all_of(one))[-1] == TurnFailed(full)


async def test_a_fresh_run_may_be_had_at_the_second_asking() -> None:
    restarts = Restarts(GONE, PlayedTurn(TextDelta("here"), TurnEnded()))
    one = response(PlayedTurn(TurnFailed(GONE)), restart=restarts)
    told = asyncio.Event()
    one.listen(told.set)
    events: list[Event] = []
    async with asyncio.timeout(60):
        while TurnEnded() not in events:
            events += one.take()
            told.clear()
            if TurnEnded() not in events:
                await told.wait()
    assert (events[-2:], restarts.told) == ([TextDelta("here"), TurnEnded()], [1, 2])


async def test_a_run_that_nobody_waits_for_is_not_started() -> None:
    cancelled = asyncio.Event()

    async def slow(reopened: int, _request: TurnRequest) -> LiveTurn:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("nobody waits")

    one = response(PlayedTurn(TurnFailed(GONE)), restart=slow)
    assert one.take() == []
    await asyncio.sleep(0)
    one.give_up()
    await cancelled.wait()


async def test_a_demanded_call_is_asked_for_twice() -> None:
    calls = [*called("1"), TurnPaused()]
    restarts = Restarts(PlayedTurn(TextDelta("fine"), *calls))
    one = response(PlayedTurn(TextDelta("no"), TurnEnded()), request=ask(choice=REQUIRED), restart=restarts)
    assert [type(event) for event in await all_of(one)] == [TurnStarted, TextDelta, *map(type, calls)]
    assert (one.reply().text, one.reason) == ("fine", "the model did not call a tool at first")


async def test_the_words_of_the_first_run_are_not_said_before_the_call_of_the_second() -> None:
    turn = PlayedTurn(TextDelta("no"))
    one = response(turn, request=ask(choice=REQUIRED), restart=Restarts(PlayedTurn(*called("1"), TurnPaused())))
    assert one.take() == []
    turn.say(TurnEnded())
    kinds = [type(event) for event in await all_of(one)]
    assert kinds == [TurnStarted, *map(type, called("1")), TurnPaused]


async def test_words_instead_of_a_demanded_call_are_shown_after_the_second_try_with_a_note() -> None:
    restarts = Restarts(PlayedTurn(TextDelta("no, again"), TurnEnded()))
    one = response(PlayedTurn(TextDelta("no"), TurnEnded()), request=ask(choice=REQUIRED), restart=restarts)
    assert [type(event) for event in await all_of(one)] == [TurnStarted, TextDelta, Note, TurnEnded]
    assert (one.reply().text, one.reply().error, len(one.reply().notes)) == ("no, again", None, 1)
    assert one.note == one.reply().notes[0].value


STRICT = TurnRequest("model", (), (ToolSpec("read", schema={"type": "object", "required": ["path"]}),))


@pytest.mark.seed("F24")
def test_arguments_that_do_not_fit_are_passed_on_with_a_note() -> None:
    one = response(PlayedTurn(*called("1"), TurnPaused()), request=STRICT)
    *_, noted, paused = one.take()
    assert isinstance(noted, Note) and noted.key == "tool_arguments" and noted.value.startswith("read: ")
    assert (type(paused), one.reply().notes, len(one.reply().calls)) == (TurnPaused, (noted,), 1)


def test_arguments_that_do_not_fit_are_refused_where_that_is_set() -> None:
    one = response(PlayedTurn(*called("1"), TurnPaused()), request=STRICT, arguments="refuse")
    failed = one.take()[-1]
    assert isinstance(failed, TurnFailed) and failed.error.code == "invalid_tool_arguments"
    assert not failed.error.may_repeat


def test_arguments_that_fit_have_no_note() -> None:
    one = response(PlayedTurn(*called("1", arguments='{"path": "a"}'), TurnPaused()), request=STRICT)
    assert one.reply().notes == () and Note not in map(type, one.take())
