"""The buffer that every turn holds: nothing is lost, nothing overtakes, and a slow reader is felt upstream."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.event_buffer import AHEAD_BYTES, EventBuffer, FixedTurn, OuterTurn, failed_turn, weight
from caretway.core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
)
from caretway.core.request import Text, ToolResult
from caretway.core.turn import Snapshot, Turn


async def test_it_says_what_it_was_given_and_takes_no_results() -> None:
    turn = FixedTurn([TurnStarted(), TextDelta("a"), TurnPaused()])
    assert turn.take() == [TurnStarted(), TextDelta("a"), TurnPaused()]
    assert (turn.take(), turn.snapshot()) == ([], None)
    with pytest.raises(GatewayError) as gone:
        await turn.submit([])
    assert gone.value.kind is ErrorKind.TURN_GONE
    await turn.aclose()
    with pytest.raises(GatewayError):
        turn.take()


def test_a_failure_before_the_start_is_an_event() -> None:
    error = GatewayError(ErrorKind.SIGNED_OUT, "who?")
    assert failed_turn(error).take() == [TurnFailed(error)]


KEPT = Snapshot("inner", b"kept")


class InnerTurn:
    def __init__(self, *events: Event) -> None:
        self._buffer = EventBuffer(1 << 30)
        self.say, self.fail = self._buffer.put, self._buffer.close
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self.did: list[str] = []
        self.say(list(events))

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        raise AssertionError("nothing is submitted here")

    def snapshot(self) -> Snapshot | None:
        return KEPT

    def close(self) -> None:
        self.did.append("closed")
        self._buffer.close()

    async def aclose(self) -> None:
        self.did.append("waited for")


class Loud(OuterTurn):
    def __init__(self, inner: Turn) -> None:
        super().__init__(inner)
        self.wants = True
        self._follow(inner)

    @property
    def _listens(self) -> bool:
        return self.wants

    def _digest(self, batch: list[Event]) -> list[Event]:
        if TextDelta("bug") in batch:
            raise ValueError("a bug")
        return [TextDelta(event.text.upper()) if isinstance(event, TextDelta) else event for event in batch]

    def want_again(self, inner: Turn) -> None:
        self.wants = True
        self._follow(inner)


async def test_events_come_digested_in_the_callback_that_brought_them() -> None:
    inner = InnerTurn(TextDelta("here already"))
    turn = Loud(inner)
    told: list[list[Event]] = []
    turn.listen(lambda: told.append(turn.take()))
    inner.say([TextDelta("a"), TurnEnded()])
    assert told == [[TextDelta("HERE ALREADY"), TextDelta("A"), TurnEnded()]]
    assert turn.snapshot() == KEPT


async def test_a_full_turn_leaves_events_with_the_inner_one() -> None:
    inner = InnerTurn()
    turn = Loud(inner)
    inner.say([TextDelta("a" * AHEAD_BYTES)])
    inner.say([TextDelta("b")])
    assert turn.take() == [TextDelta("A" * AHEAD_BYTES)]
    assert turn.take() == [], "what follows comes in a callback of its own, behind what is being taken"
    await asyncio.sleep(0)
    assert turn.take() == [TextDelta("B")]


async def test_nothing_is_taken_while_nothing_is_wanted() -> None:
    first, second = InnerTurn(), InnerTurn(TextDelta("b"))
    turn = Loud(first)
    turn.wants = False
    first.say([TextDelta("a")])
    assert (turn.take(), first.take()) == ([], [TextDelta("a")])
    turn.want_again(second)
    assert turn.take() == [TextDelta("B")]


@pytest.mark.parametrize("whose", ["ours", "the inner turn's"])
async def test_a_failure_is_told_to_the_reader(whose: str) -> None:
    inner = InnerTurn()
    turn = Loud(inner)
    told: list[str] = []
    turn.listen(lambda: told.append("told"))
    if whose == "ours":
        inner.say([TextDelta("bug")])
    else:
        inner.fail(ValueError("a bug"))
    assert told == ["told"]
    with pytest.raises(ValueError, match="a bug"):
        turn.take()


async def test_both_are_closed() -> None:
    inner = InnerTurn()
    turn = Loud(inner)
    turn.close()
    assert inner.did == ["closed"]
    inner.say([TextDelta("late")])
    with pytest.raises(GatewayError):
        turn.take()
    await turn.aclose()
    assert inner.did[-1] == "waited for"


WEIGHTS: list[tuple[Event, int]] = [
    (TextDelta("abc"), 131),
    (ReasoningDelta("abc"), 131),
    (TurnStarted(), 1024),
    (ToolCallStarted("1", "read"), 1024),
    (ToolCallDelta("1", "{}"), 1026),
    (ToolCallReady("1", "read", "{}"), 1026),
]


@pytest.mark.parametrize(("event", "expected"), WEIGHTS)
def test_the_weight_of_an_event(event: Event, expected: int) -> None:
    assert weight(event) == expected


class Upstream:
    """What the buffer asks of it."""

    def __init__(self, limit: int) -> None:
        self.asked: list[str] = []
        self.buffer = EventBuffer(limit, lambda: self.asked.append("hold"), lambda: self.asked.append("go on"))


def test_a_reader_that_keeps_up_leaves_nothing_to_weigh() -> None:
    upstream, taken = Upstream(limit=0), []
    upstream.buffer.listen(lambda: taken.extend(upstream.buffer.take()))
    for word in "abc":
        upstream.buffer.put([TextDelta(word)])
    assert (taken, upstream.asked) == ([TextDelta("a"), TextDelta("b"), TextDelta("c")], [])


def test_backpressure_begins_above_the_limit_and_ends_when_all_is_taken() -> None:
    upstream = Upstream(limit=300)
    buffer = upstream.buffer
    buffer.put([TextDelta("a" * 100)])
    assert (upstream.asked, buffer.full) == ([], False)
    buffer.put([TextDelta("b" * 100)])
    buffer.put([TextDelta("c" * 100)])  # what was under way comes all the same
    assert (upstream.asked, buffer.full) == (["hold"], True)
    assert [event.text[0] for event in buffer.take() if isinstance(event, TextDelta)] == ["a", "b", "c"]
    assert (upstream.asked, buffer.full) == (["hold", "go on"], False)
    buffer.put([TextDelta("d")])
    assert upstream.asked == ["hold", "go on"], "what was taken weighs nothing any more"


async def test_pieces_of_one_go_are_told_together() -> None:
    upstream, taken = Upstream(limit=300), []
    buffer = upstream.buffer
    buffer.listen(lambda: taken.append(len(buffer.take())))
    for word in "abc":
        buffer.put_soon([TextDelta(word)])
    assert (taken, upstream.asked) == ([], ["hold"])
    await asyncio.sleep(0)
    assert (taken, upstream.asked) == ([3], ["hold", "go on"])


async def test_a_piece_that_is_told_soon_weighs_nothing_until_its_reader_leaves_it() -> None:
    upstream, taken = Upstream(limit=0), []
    buffer = upstream.buffer
    buffer.listen(lambda: taken.extend(buffer.take()))
    for word in "abc":
        buffer.put_soon([TextDelta(word)])
        await asyncio.sleep(0)
    assert (len(taken), upstream.asked) == (3, [])
    buffer.listen(lambda: None)
    buffer.put_soon([TextDelta("d")])
    assert upstream.asked == []
    await asyncio.sleep(0)
    assert (upstream.asked, buffer.full) == (["hold"], True)
    assert (buffer.take(), upstream.asked) == ([TextDelta("d")], ["hold", "go on"])


async def test_a_closed_buffer_is_never_full() -> None:
    upstream = Upstream(limit=0)
    upstream.buffer.listen(upstream.buffer.close)
    upstream.buffer.put([TextDelta("a")])
    assert (upstream.asked, upstream.buffer.full) == ([], False)


async def test_what_is_to_be_told_soon_is_not_told_after_the_close() -> None:
    told: list[int] = []
    buffer = EventBuffer(0)
    buffer.put_soon([TextDelta("a")])
    buffer.listen(lambda: told.append(len(buffer.take())))
    buffer.close()
    await asyncio.sleep(0)
    assert told == [1]


def test_a_response_begins_without_what_the_last_one_left() -> None:
    upstream = Upstream(limit=0)
    upstream.buffer.listen(lambda: None)
    upstream.buffer.put([TextDelta("left over")])
    upstream.buffer.begin([TurnStarted()])
    assert upstream.asked == ["hold", "go on"]
    assert (upstream.buffer.take(), upstream.buffer.take()) == ([TurnStarted()], [])


def test_what_is_there_can_be_taken_after_the_close_and_then_nothing() -> None:
    buffer = EventBuffer(0)
    buffer.put([TextDelta("last")])
    buffer.close()
    buffer.put([TextDelta("too late")])
    assert buffer.take() == [TextDelta("last")]
    for _ in range(2):
        with pytest.raises(GatewayError) as stopping:
            buffer.take()
        assert stopping.value.kind is ErrorKind.CANCELLED


def test_a_failure_is_told_once_to_whoever_takes() -> None:
    buffer = EventBuffer(0)
    buffer.close(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        buffer.take()
    with pytest.raises(GatewayError):
        buffer.take()


def test_a_close_is_told_once() -> None:
    told: list[bool] = []
    buffer = EventBuffer(0)
    buffer.listen(lambda: told.append(True))
    buffer.close()
    buffer.close(ValueError("not heard of any more"))
    assert told == [True]
    with pytest.raises(GatewayError):
        buffer.take()


def test_a_close_while_events_are_being_taken() -> None:
    """The listener takes the last event, its session closes the turn, and the close calls the listener again: all of
    it inside the `put` that brought the event. The listener has what it took, once, and nobody is called afterwards."""
    upstream = Upstream(limit=0)
    buffer, story = upstream.buffer, []
    over = False

    def ready() -> None:
        nonlocal over
        story.append("told")
        if over:
            return
        events = buffer.take()
        over = isinstance(events[-1], TurnEnded)
        story.append(f"took {len(events)}")
        if over:
            buffer.close()
            story.append("closed")

    buffer.listen(ready)
    buffer.put([TextDelta("a"), TurnEnded()])
    assert story == ["told", "took 2", "told", "closed"]
    buffer.put([TextDelta("late")])
    assert len(story) == 4
    assert upstream.asked == []


def test_a_closed_buffer_holds_nobody() -> None:
    class Owner:
        def __init__(self) -> None:
            self.buffer = EventBuffer(0, self.act, self.act)
            self.buffer.listen(self.act)

        def act(self) -> None: ...

    gc.disable()
    try:
        owner = Owner()
        seen = weakref.ref(owner)
        owner.buffer.close()
        del owner
        assert seen() is None
    finally:
        gc.enable()


@given(st.lists(st.one_of(st.text(max_size=300).map(TextDelta), st.just(None))), st.integers(0, 1000))
def test_nothing_is_lost_and_holds_alternate(story: list[TextDelta | None], limit: int) -> None:
    """Whatever the order of puts and takes (None)."""
    upstream, said, taken = Upstream(limit), [], []
    for step in story:
        if step is None:
            taken += upstream.buffer.take()
        else:
            said.append(step)
            upstream.buffer.put([step])
        assert upstream.buffer.full == (sum(map(weight, said[len(taken) :])) > limit)
    assert taken + upstream.buffer.take() == said
    assert upstream.asked == ["hold", "go on"] * (len(upstream.asked) // 2)


def test_hooks_are_optional() -> None:
    buffer = EventBuffer(0)
    take: Callable[[], list[Event]] = buffer.take
    buffer.put([TextDelta("a")])
    assert buffer.full and take() and not buffer.full
