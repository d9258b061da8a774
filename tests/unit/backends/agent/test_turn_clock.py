"""Where a step of unannounced calls ends: by silence, with a limit, and with what was seen of the model."""

import pytest
from msgspec.structs import replace

from caretway.backends.agent.run_life import RunPhase
from caretway.backends.agent.turn_clock import (
    MAX_MODELS,
    MAX_QUIET_S,
    ConversationLimits,
    StepPace,
    StepPaces,
    after_clean_step,
    after_late_sibling,
    step_ends_at,
)
from caretway.core.events import TextDelta, ToolCallReady, TurnPaused
from caretway.core.request import Text, ToolResult
from caretway.cursor.wire.messages import pb

from .stories import LIMITS, Story, checkpoint, completed, heartbeat, listed, mcp, partial, set_blob, text, update

DEFAULT = ConversationLimits()
LIVE_GAPS = [0.318, 0.573, 0.713, 1.189, 0.3, 1.2, 0.49, 0.3, 1.0]


def tokens() -> pb.AgentServerMessage:
    return update(token_delta=pb.TokenDeltaUpdate(tokens=1))


def story(pace: StepPace | None = None, *, parallel: bool = True) -> Story:
    return Story("read", parallel=parallel, limits=replace(LIMITS, sibling_quiet=0.2, sibling_cap=1.5), pace=pace)


def pass_time(told: Story, seconds: float, *, every: float | None = None) -> float | None:
    """The clock goes on as a timer would ring. How long it took to pause; None: it did not."""
    begin, end = told.now, told.now + seconds
    next_delta = begin + every if every else end
    while told.now < end - 1e-9:
        due = told.conversation.watch.pause_at
        told.now = min(end, next_delta, due if due is not None and due > told.now else end)
        if every and told.now >= next_delta - 1e-9:
            told.hear(tokens())
            next_delta += every
        told.conversation.tick(told.now)
        if told.conversation.phase is RunPhase.PAUSED:
            return told.now - begin
    return None


def calls_of(told: Story) -> list[str]:
    return [event.id for event in told.events() if isinstance(event, ToolCallReady)]


def answer(told: Story, *calls: str) -> None:
    told.conversation.submit([ToolResult(call, (Text("done"),)) for call in calls], [], told.now)


def test_a_single_call_waits_for_a_fifth_of_a_second() -> None:
    told = story()
    told.hear(tokens(), mcp(1, "a", "read"))
    told.hear(heartbeat(), set_blob(1, b"k", b"v"), checkpoint())  # none of these is a delta
    waited = pass_time(told, 5)
    assert waited is not None
    assert DEFAULT.sibling_quiet == 0.2
    assert waited == pytest.approx(0.2)


def test_ten_calls_with_tokens_in_their_gaps_are_one_step() -> None:
    told = story()
    told.hear(mcp(0, "0", "read"))
    for number, gap in enumerate(LIVE_GAPS, 1):
        assert pass_time(told, gap, every=0.129) is None
        told.hear(partial(str(number), "read", "{}"), mcp(number, str(number), "read"))
    assert pass_time(told, 5) == pytest.approx(0.2)
    assert calls_of(told) == [str(number) for number in range(10)]


def test_deltas_alone_do_not_hold_a_step_open_for_ever() -> None:
    told = story()
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 60, every=0.1) == pytest.approx(1.5)


def test_announced_calls_are_waited_for_but_not_for_ever() -> None:
    told = story()
    told.hear(listed(2), mcp(1, "a", "read"))
    assert pass_time(told, 1.4) is None
    told.hear(mcp(2, "b", "read"))
    assert told.conversation.phase is RunPhase.PAUSED
    answer(told, "a", "b")
    told.hear(listed(2), mcp(3, "c", "read"))
    assert pass_time(told, 5) == pytest.approx(1.5)


def test_a_sibling_that_comes_while_the_client_works_is_asked_for_next() -> None:
    told = story()
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 3)
    assert calls_of(told) == ["a"]
    told.now += 3
    told.hear(tokens(), partial("b", "read", "{}"), mcp(2, "b", "read"))
    assert told.events() == []  # the response is over
    told.said()
    assert told.wait(3) is None
    assert told.kinds().count("exec_client_control_message.heartbeat") == 2  # Cursor hears that both are in hand
    answer(told, "a")
    events = told.events()
    assert [event.id for event in events if isinstance(event, ToolCallReady)] == ["b"]
    assert isinstance(events[-1], TurnPaused)  # its silence is over already
    answer(told, "b")
    assert [message.exec_client_message.id for message in told.said() if message.HasField("exec_client_message")] == [
        1,
        2,
    ]


def test_a_sibling_that_comes_after_the_results_is_asked_for_next() -> None:
    told = story()
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 1)
    answer(told, "a")
    told.events()
    told.hear(mcp(2, "b", "read"))
    assert pass_time(told, 1) == pytest.approx(0.25), "it has shown that the wait was too short"
    assert calls_of(told) == ["b"]


def test_late_siblings_of_a_client_that_takes_one_call_at_a_time() -> None:
    told = story(parallel=False)
    told.hear(mcp(1, "a", "read"), mcp(2, "b", "read"), mcp(3, "c", "read"))
    for call in "abc":
        assert calls_of(told) == [call]
        answer(told, call)


def test_r26_all_late_siblings_are_asked_for_together_and_answered_once() -> None:
    told = story()
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 3)
    told.events()
    told.now += 3
    told.hear(mcp(2, "b", "read", key="b"), mcp(3, "c", "read", key="c"))
    told.hear(mcp(3, "c", "read", key="c"))  # once more: it is the same
    answer(told, "a")
    assert calls_of(told) == ["b", "c"]
    assert pass_time(told, 1)
    answer(told, "b", "c")
    assert calls_of(told) == []
    answers = [message.exec_client_message.id for message in told.said() if message.HasField("exec_client_message")]
    assert answers == [1, 2, 3]


def test_r26_a_call_that_waited_when_the_connection_broke_is_asked_for_once() -> None:
    """The client takes one call at a time and has half of the first; the second waits. Both come again."""
    told = story(parallel=False)
    told.hear(partial("a", "read", '{"key": "o'), mcp(2, "b", "read", key="two"))
    assert calls_of(told) == []
    told.drop()
    told.hear(partial("a2", "read", '{"key": "one"}'), mcp(1, "a2", "read", key="one"), mcp(2, "b2", "read", key="two"))
    assert calls_of(told) == ["a"]
    answer(told, "a")
    assert calls_of(told) == ["b2"]
    answer(told, "b2")
    assert calls_of(told) == []
    answers = [message.exec_client_message.id for message in told.said() if message.HasField("exec_client_message")]
    assert answers == [1, 2]


def test_words_after_a_closed_step_belong_to_the_next_response() -> None:
    told = story()
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 1)
    told.events()
    told.hear(text("Also: "))
    assert told.events() == []
    answer(told, "a")
    assert TextDelta("Also: ") in told.events()


def test_a_flood_of_words_after_a_closed_step_is_not_kept() -> None:
    told = story()
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 1)
    for _ in range(40):
        told.hear(text("x" * 65536))
    assert told.conversation.phase is RunPhase.LOST


def test_a_sibling_whose_text_began_while_the_client_worked_is_whole() -> None:
    """Pieces of it were heard before the results, pieces after: the client sees it once, complete."""
    told = story()
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 1)
    told.events()
    told.hear(partial("b", "read", '{"key":'))
    answer(told, "a")
    told.hear(partial("b", "read", ' "k"}'), mcp(2, "b", "read", key="k"))
    assert pass_time(told, 1) == pytest.approx(0.25)
    assert calls_of(told) == ["b"]


def test_calls_that_are_asked_for_one_after_the_other_do_not_wait_for_each_other() -> None:
    """The second is written and will be asked for when the first has its result: both are given to the client."""
    told = story()
    told.hear(partial("a", "read", "{}"), partial("b", "read", '{"key": "k"}'), mcp(1, "a", "read"))
    assert pass_time(told, 5) == pytest.approx(1.5)
    assert calls_of(told) == ["a", "b"]
    answer(told, "a", "b")
    told.said()
    told.hear(mcp(2, "b", "read", key="k"))
    assert [message.exec_client_message.id for message in told.said() if message.HasField("exec_client_message")] == [2]
    assert calls_of(told) == []


def test_half_a_call_is_never_handed_over() -> None:
    told = story()
    told.hear(partial("b", "read", '{"key": '), mcp(1, "a", "read"))
    assert pass_time(told, 60) is None
    told.hear(partial("b", "read", '{"key": "k"}'))
    assert pass_time(told, 60) == pytest.approx(1.5)
    assert calls_of(told) == ["a", "b"]


RULES = [
    ("a longer silence earns a longer wait", after_late_sibling(0.2, 0.4, 1.5), 0.5),
    ("a silence that was waited for changes nothing", after_late_sibling(0.5, 0.3, 1.5), 0.5),
    ("one beyond the limit teaches nothing", after_late_sibling(0.2, 3.0, 1.5), 0.2),
    ("nor one beyond a lower cap", after_late_sibling(0.2, 0.5, 0.4), 0.2),
    ("one that is nearly too long teaches the longest wait", after_late_sibling(0.2, 1.3, 1.5), 1.5),
    ("half of the way back to the usual", after_clean_step(0.6, 0.2), 0.4),
    ("and there in the end", after_clean_step(0.23, 0.2), 0.2),
    ("not below what the step needed", after_clean_step(0.6, 0.7), 0.6),
]


@pytest.mark.parametrize(("name", "pace", "quiet"), RULES, ids=[row[0] for row in RULES])
def test_what_a_model_has_shown_moves_the_wait(name: str, pace: object, quiet: float) -> None:
    assert isinstance(pace, tuple)
    assert pace[0] == pytest.approx(quiet)
    assert pace[1]


def test_the_wait_stays_within_its_bounds() -> None:
    pace = StepPace(0.2, 1.5)
    for silence in (0.1, 0.3, 0.59, 0.6, 0.7, 3, 1e9):
        pace.late(silence)
        assert 0.2 <= pace.quiet <= MAX_QUIET_S
    for _ in range(40):
        pace.settled(0.0)
    assert pace.quiet == 0.2


def test_a_late_sibling_teaches_and_clean_steps_ease() -> None:
    pace = StepPace(0.2, 1.5)
    told = story(pace)
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 1) == pytest.approx(0.2)
    told.now += 0.2
    told.hear(tokens())  # the sign of it came after 0.4 s
    told.now += 0.5
    told.hear(mcp(2, "b", "read"))
    assert pace.quiet == pytest.approx(0.5)
    answer(told, "a")
    told.hear(text("."))  # the next step
    told.hear(mcp(3, "c", "read"))
    assert pass_time(told, 3) == pytest.approx(0.5)
    answer(told, "b", "c")
    told.hear(completed("b"))
    assert pace.quiet < 0.5


GAPS = (0.32, 0.7, 1.15)


def played(told: Story, step: int, gaps: tuple[float, ...]) -> list[list[str]]:
    """One step of calls with silence between them, and a client that answers at once: the calls of each response."""
    responses: list[list[str]] = []
    due, names = told.now, []
    for number, gap in enumerate((0.0, *gaps)):
        due += gap
        while told.now < due - 1e-9:
            if pass_time(told, due - told.now) is not None:
                responses.append(calls_of(told))
                answer(told, *responses[-1])
        names.append(f"{step}.{number}")
        told.hear(partial(names[-1], "read", "{}"), mcp(step * 10 + number, names[-1], "read"), tokens())
    told.hear(*[completed(name) for calls in responses for name in calls])  # now that all calls are made
    assert pass_time(told, 5) is not None
    responses.append(calls_of(told))
    answer(told, *responses[-1])
    told.hear(*map(completed, responses[-1]), checkpoint())
    assert [name for names in responses for name in names] == names, "each call once, in order"
    return responses


def test_siblings_with_silence_between_them_arrive_together_from_the_second_step_on() -> None:
    pace = StepPace(0.2, 1.5)
    told = story(pace)
    steps = [len(played(told, step, GAPS)) for step in range(1, 7)]
    assert steps == [4, 1, 1, 1, 1, 1]
    asked = [message.exec_client_message.id for message in told.said() if message.HasField("exec_client_message")]
    assert asked == [step * 10 + number for step in range(1, 7) for number in range(4)], "each result once"


def test_a_model_that_makes_single_calls_is_back_at_the_usual_wait_in_a_few_steps() -> None:
    pace = StepPace(0.2, 1.5)
    told = story(pace)
    played(told, 1, GAPS)
    waits: list[float] = []
    for step in range(2, 12):
        told.hear(mcp(step, f"s{step}", "read"))
        waits.append(pass_time(told, 5) or 0.0)
        answer(told, f"s{step}")
        told.now += 0.4  # the model reads the result
        told.hear(completed(f"s{step}"), checkpoint())
    print(" ".join(f"{wait:.2f}" for wait in waits))
    assert waits[:3] == pytest.approx([1.4375, 0.81875, 0.509375])
    assert waits[6:] == pytest.approx([0.2] * 4)


SIGNS = {
    "its result is completed": completed("a"),
    "a checkpoint": checkpoint(),
    "words": text("So:"),
    "the next step": update(step_started=pb.StepStartedUpdate()),
}


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
def test_a_call_after_upstream_went_on_is_no_sibling(sign: pb.AgentServerMessage) -> None:
    pace = StepPace(0.2, 1.5)
    told = story(pace)
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 1)
    answer(told, "a")
    told.now += 0.5
    told.hear(sign)
    told.hear(tokens(), mcp(2, "b", "read"))
    assert pass_time(told, 1) == pytest.approx(0.2)


def test_a_call_that_comes_again_after_a_lost_attempt_is_no_sibling() -> None:
    pace = StepPace(0.2, 1.5)
    told = story(pace)
    told.hear(mcp(1, "a", "read"))
    assert pass_time(told, 1)
    answer(told, "a")
    told.now += 0.5
    told.drop()
    told.hear(mcp(1, "a", "read"), mcp(2, "b", "read"))
    assert pass_time(told, 1) == pytest.approx(0.2)


def test_the_memory_of_models_is_bounded() -> None:
    paces = StepPaces(0.2, 1.5)
    first = paces.of("first")
    for number in range(MAX_MODELS):
        assert paces.of("kept") is paces.of("kept")
        paces.of(str(number))
    assert paces.of("first") is not first


def test_the_end_of_a_step_is_one_line() -> None:
    assert step_ends_at(10, 9, 0.2, 1.5) == 10.2
    assert step_ends_at(10, 11, 0.2, 1.5) == 11.2
    assert step_ends_at(10, 11.4, 0.2, 1.5) == 11.5
