"""What every backend owes the session engine, the same for all: no dialect, no HTTP in front, real wires behind.

A subject lives for the whole module, so every test also shows that the ones before it left the backend in order.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import pytest
import pytest_asyncio

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, EventOrder, TextDelta, TurnEnded, TurnFailed, TurnPaused, TurnStarted
from caretway.core.fold import Reply, fold
from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolChoice, ToolResult, ToolSpec, TurnRequest
from caretway.core.turn import Turn
from contract.subjects import WAYS, Subject, able
from contract.test_chat import PIXEL
from receiving import receive

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]

TERMINAL: Final = (TurnPaused, TurnEnded, TurnFailed)
TOOLS: Final = tuple(
    ToolSpec(name, f"{name} (test)", {"type": "object", "properties": {"k": {"type": "string"}}})
    for name in ("left", "right", "step")
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    way = WAYS[request.param]
    if way.missing:
        pytest.skip(way.missing)
    async with way.open() as opened:
        yield opened


def for_all(*abilities: str) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("subject", able(*abilities), indirect=True, scope="module")


# ---- talking to a backend


def user(text: str, *more: Image) -> Message:
    return Message(Role.USER, (Text(text), *more))


def ask(*messages: Message | str, tools: Sequence[ToolSpec] = (), choice: ToolChoice | None = None) -> TurnRequest:
    told = tuple(user(message) if isinstance(message, str) else message for message in messages)
    return TurnRequest("sim-auto", told, tuple(tools), choice or ToolChoice())


async def response(turn: Turn) -> list[Event]:
    """The events of one response, in an order that the table allows."""
    events: list[Event] = []
    order = EventOrder()
    while not events or not isinstance(events[-1], TERMINAL):
        batch = await receive(turn)
        assert batch, "receive() came back with nothing"
        for event in batch:
            order.check(event)
        events += batch
    return events


async def whole(subject: Subject, request: TurnRequest) -> Reply:
    turn = await subject.backend.start(request)
    try:
        return fold(await response(turn))
    finally:
        await turn.aclose()


def answer(call: ToolCall, text: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult(call.id, (Text(text),), is_error)


async def works(subject: Subject) -> None:
    assert (await whole(subject, ask("sim: say still here"))).text == "still here"


# ---- answers


@pytest.mark.parametrize("subject", WAYS, indirect=True, scope="module")
async def test_it_is_what_the_table_says(subject: Subject, request: pytest.FixtureRequest) -> None:
    assert subject.backend.abilities == WAYS[request.node.callspec.params["subject"]].abilities
    assert (await subject.backend.status()).signed_in is (subject.backend.standing != "simulated")
    assert {"sim-auto", "sim-think"} <= {model.id for model in await subject.backend.models()}


@for_all()
async def test_text(subject: Subject) -> None:
    turn = await subject.backend.start(ask("sim: say one two three äöü ✓"))
    events = await response(turn)
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnEnded)
    assert fold(events).text == "one two three äöü ✓"
    assert sum(isinstance(event, TextDelta) for event in events) > 1
    await turn.aclose()


@for_all()
async def test_text_comes_while_it_is_made(subject: Subject) -> None:
    turn = await subject.backend.start(ask("sim: say early\nsim: hang"))
    while not any(isinstance(event, TextDelta) for event in await receive(turn)):
        pass
    await turn.aclose()


@for_all("reasoning")
async def test_thinking(subject: Subject) -> None:
    reply = await whole(subject, ask("sim: think let me see\nsim: say done"))
    assert (reply.reasoning, reply.text) == ("let me see", "done")


@for_all("usage")
async def test_usage_is_reported(subject: Subject) -> None:
    usage = (await whole(subject, ask("sim: say one two three"))).usage
    assert usage is not None
    assert not usage.estimated
    assert usage.input_tokens and usage.output_tokens


@for_all("images")
async def test_an_image_arrives(subject: Subject) -> None:
    reply = await whole(subject, ask(user("What is this?", Image(PIXEL, "image/png"))))
    assert "1 image" in reply.text


@for_all()
async def test_the_history_is_told(subject: Subject) -> None:
    earlier = (user("my cat is called Mimi"), Message(Role.ASSISTANT, (Text("noted"),)))
    assert "Mimi" in (await whole(subject, ask(*earlier, "sim: recall"))).text


# ---- tools


@for_all("client_tools", "parks")
async def test_a_tool_loop(subject: Subject) -> None:
    script = 'sim: say first\nsim: call left {"k": "v"}\nsim: result\nsim: say last'
    turn = await subject.backend.start(ask(script, tools=TOOLS))
    paused = fold(await response(turn))
    assert (paused.paused, paused.text) == (True, "first")
    (call,) = paused.calls
    assert (call.name, call.arguments.replace(" ", "")) == ("left", '{"k":"v"}')
    await turn.submit([answer(call, "found it")])
    assert fold(await response(turn)).text.split() == ["found", "it", "last"]
    await turn.aclose()


@for_all("client_tools", "parks")
async def test_parallel_calls_pause_once(subject: Subject) -> None:
    script = 'sim: call left {"k": "1"} & right {"k": "2"}\nsim: result'
    turn = await subject.backend.start(ask(script, tools=TOOLS))
    calls = fold(await response(turn)).calls
    assert [call.name for call in calls] == ["left", "right"]
    await turn.submit([answer(call, f"<{call.name}>") for call in reversed(calls)])
    text = fold(await response(turn)).text
    assert "<left>" in text and "<right>" in text
    await turn.aclose()


@for_all("client_tools", "parks")
async def test_one_call_at_a_time(subject: Subject) -> None:
    script = 'sim: call left {"k": "1"} & right {"k": "2"}\nsim: result'
    turn = await subject.backend.start(ask(script, tools=TOOLS, choice=ToolChoice(parallel=False)))
    seen = []
    for _ in range(2):
        (call,) = fold(await response(turn)).calls
        seen.append(call.name)
        await turn.submit([answer(call, f"<{call.name}>")])
    text = fold(await response(turn)).text
    assert sorted(seen) == ["left", "right"]
    assert "<left>" in text and "<right>" in text
    await turn.aclose()


@for_all("client_tools")
async def test_no_call_but_the_named_one(subject: Subject) -> None:
    """The session engine relies on it."""
    named = ToolChoice("named", "right")
    script = "sim: say Words.\n" + 'sim: call left {"k": "1"}\n' * 4
    others = await whole(subject, ask(script, tools=TOOLS, choice=named))
    assert (others.calls, others.paused, others.error) == ((), False, None)
    assert others.text.startswith("Words.")
    both = await whole(subject, ask('sim: call left {"k": "1"} & right {"k": "2"}', tools=TOOLS, choice=named))
    assert [call.name for call in both.calls] == ["right"]


@for_all("client_tools", "parks")
async def test_no_call_but_the_one_that_is_named_beside_results(subject: Subject) -> None:
    script = "".join(f'sim: call {name} {{"k": "{n}"}}\n' for n, name in enumerate(("left", "step", "right", "left")))
    turn = await subject.backend.start(ask(f"{script}sim: say last", tools=TOOLS))
    names = []
    for demanded in ("right", ""):
        (call,) = fold(await response(turn)).calls
        names.append(call.name)
        await turn.submit([answer(call, "given")], (), demanded)
    names += [call.name for call in fold(await response(turn)).calls]
    assert names == ["left", "right", "left"]
    await turn.aclose()


@for_all("client_tools", "parks")
async def test_a_failed_tool_and_words_beside_it(subject: Subject) -> None:
    """Steering: what the user says while the tools run reaches the model in the same run, with the last result."""
    before = subject.stats() if subject.stats else {}
    script = 'sim: call left {"k": "1"} & right {"k": "2"}\nsim: result'
    turn = await subject.backend.start(ask(script, tools=TOOLS))
    one, other = fold(await response(turn)).calls
    await turn.submit([answer(one, "it broke", is_error=True), answer(other, "fine")], [Text("never mind")])
    steered = fold(await response(turn))
    assert "it broke" in steered.text and "never mind" in steered.text
    assert steered.error is None
    if subject.stats:
        assert subject.stats()["runs_opened"] - before["runs_opened"] == 1
    await turn.aclose()


@for_all("client_tools", "parks")
async def test_ten_steps_are_one_run(subject: Subject) -> None:
    lines = [f'sim: call step {{"k": "{n}"}}' for n in range(10)]
    before = subject.stats() if subject.stats else {}
    turn = await subject.backend.start(ask("\n".join([*lines, "sim: say over"]), tools=TOOLS))
    for n in range(10):
        (call,) = fold(await response(turn)).calls
        await turn.submit([answer(call, f"result {n}")])
    assert fold(await response(turn)).text == "over"
    await turn.aclose()
    if subject.stats:
        assert subject.stats()["runs_opened"] - before["runs_opened"] == 1


@for_all("client_tools", "parks")
async def test_thirty_parked_turns_in_any_order(subject: Subject) -> None:
    async def park(n: int) -> tuple[int, Turn, ToolCall]:
        script = f'sim: call step {{"k": "{n}"}}\nsim: result'
        turn = await subject.backend.start(ask(script, tools=TOOLS))
        (call,) = fold(await response(turn)).calls
        return n, turn, call

    async def resume(n: int, turn: Turn, call: ToolCall) -> None:
        await turn.submit([answer(call, f"answer {n}")])
        assert fold(await response(turn)).text == f"answer {n}"
        await turn.aclose()

    parked = await asyncio.gather(*(park(n) for n in range(30)))
    random.Random(30).shuffle(parked)
    await asyncio.gather(*(resume(*one) for one in parked))


@for_all("client_tools")
async def test_no_calls_when_there_shall_be_none(subject: Subject) -> None:
    script = 'sim: call left {"k": "1"}\nsim: say done'
    reply = await whole(subject, ask(script, tools=TOOLS, choice=ToolChoice("none")))
    assert reply.calls == ()
    assert "done" in reply.text


@for_all("client_tools", "parks")
async def test_results_that_nobody_waits_for(subject: Subject) -> None:
    turn = await subject.backend.start(ask('sim: call left {"k": "1"}', tools=TOOLS))
    (call,) = fold(await response(turn)).calls
    await turn.aclose()
    with pytest.raises(GatewayError) as gone:
        await turn.submit([answer(call, "too late")])
    assert gone.value.kind is ErrorKind.TURN_GONE


# ---- failures


@for_all()
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unauthenticated", ErrorKind.SIGNED_OUT),
        ("usage_limit", ErrorKind.QUOTA),
        ("rate_limit", ErrorKind.RATE_LIMITED),
        ("overflow", ErrorKind.CONTEXT_TOO_LONG),
        ("bad_model", ErrorKind.MODEL_UNKNOWN),
        ("deprecated", ErrorKind.UPSTREAM_DEPRECATED),
        ("internal", ErrorKind.UPSTREAM_ERROR),
    ],
)
async def test_failures_before_and_after_the_first_word(subject: Subject, code: str, kind: ErrorKind) -> None:
    before = await whole(subject, ask(f"sim: fail {code} before"))
    assert before.error is not None
    assert (before.error.kind, before.text) == (kind, "")
    assert before.error.hint
    after = await whole(subject, ask(f"sim: say so far\nsim: fail {code} after"))
    assert after.error is not None
    assert (after.error.kind, after.text) == (kind, "so far")


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.bad_credentials and not way.missing])
async def test_refused_credentials(name: str) -> None:
    way = WAYS[name]
    async with way.open(**way.bad_credentials or {}) as refused:
        assert not (await refused.backend.status()).signed_in
        reply = await whole(refused, ask("sim: say hello"))
    assert reply.error is not None
    assert reply.error.kind is ErrorKind.SIGNED_OUT
    assert reply.error.hint


@for_all()
async def test_a_broken_connection_is_taken_up_again(subject: Subject) -> None:
    assert (await whole(subject, ask("sim: drop 1\nsim: say whole again"))).text == "whole again"


# ---- ends


@for_all()
async def test_closed_before_anything_came(subject: Subject) -> None:
    turn = await subject.backend.start(ask("sim: say never heard"))
    await asyncio.gather(turn.aclose(), turn.aclose())
    assert turn.snapshot() is None
    await works(subject)


@for_all()
async def test_closed_in_the_middle(subject: Subject) -> None:
    turn = await subject.backend.start(ask("sim: stream 1000 20 20"))
    await receive(turn)
    waiting = asyncio.ensure_future(_drained(turn))
    await turn.aclose()
    with pytest.raises(GatewayError) as closed:
        await waiting
    assert closed.value.kind is ErrorKind.CANCELLED
    await turn.aclose()
    await works(subject)


async def _drained(turn: Turn) -> None:
    while True:
        await receive(turn)


@for_all("client_tools", "parks")
async def test_closed_while_parked(subject: Subject) -> None:
    turn = await subject.backend.start(ask('sim: call left {"k": "1"}\nsim: say unheard', tools=TOOLS))
    assert fold(await response(turn)).paused
    await turn.aclose()
    await turn.aclose()
    await works(subject)


@for_all()
async def test_closed_after_the_end(subject: Subject) -> None:
    turn = await subject.backend.start(ask("sim: say bye"))
    await response(turn)
    await turn.aclose()
    await turn.aclose()
    await works(subject)


# ---- conversations


@for_all("continues")
async def test_a_conversation_goes_on(subject: Subject) -> None:
    said = [user("sim: say one")]
    turn = await subject.backend.start(ask(*said))
    first = fold(await response(turn))
    snapshot = turn.snapshot()
    assert snapshot is not None
    said += [Message(Role.ASSISTANT, (Text(first.text),)), user("sim: recall")]
    going_on = await subject.backend.start(ask(*said), snapshot)  # before the first one is closed, as clients can be
    await turn.aclose()
    text = fold(await response(going_on)).text
    assert text.startswith("1 earlier user turn")
    assert "sim: say one" in text
    second = going_on.snapshot()
    await going_on.aclose()
    third = await subject.backend.start(ask(*said, Message(Role.ASSISTANT, (Text(text),)), "sim: recall"), second)
    assert fold(await response(third)).text.startswith("2 earlier user turns")
    await third.aclose()


@for_all("continues")
async def test_an_older_point_is_exact_or_gone(subject: Subject) -> None:
    """A client that edits its last message goes back: never may it be answered from what came after."""
    turn = await subject.backend.start(ask("sim: say one"))
    await response(turn)
    snapshot = turn.snapshot()
    await turn.aclose()
    said = (user("sim: say one"), Message(Role.ASSISTANT, (Text("one"),)), user("sim: recall"))
    for _ in range(2):
        again = await subject.backend.start(ask(*said), snapshot)
        reply = fold(await response(again))
        await again.aclose()
        if reply.error is not None:
            assert (reply.error.kind, reply.text) == (ErrorKind.TURN_GONE, "")
        else:
            assert reply.text.startswith("1 earlier user turn")


@for_all("continues", "client_tools", "parks")
async def test_tools_in_a_conversation_that_goes_on(subject: Subject) -> None:
    turn = await subject.backend.start(ask("sim: say one", tools=TOOLS))
    await response(turn)
    snapshot = turn.snapshot()
    await turn.aclose()
    said = (
        user("sim: say one"),
        Message(Role.ASSISTANT, (Text("one"),)),
        user('sim: call left {"k": "2"}\nsim: result'),
    )
    turn = await subject.backend.start(ask(*said, tools=TOOLS), snapshot)
    (call,) = fold(await response(turn)).calls
    await turn.submit([answer(call, "second turn")])
    assert fold(await response(turn)).text == "second turn"
    assert turn.snapshot() is not None
    await turn.aclose()
