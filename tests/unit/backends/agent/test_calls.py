"""The calls of a turn under any sequence of cuts: each reaches the client exactly once.

A small server acts out steps of calls from whatever its state holds, in the order and the manner that the test draws.
Its connection is cut wherever the test says, also while results travel; the next attempt starts from the checkpoint
that the client has, and tells everything that is not in it again, under other ids. No socket and no clock.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.backends.agent.calls import (
    MAX_ARGUMENT_CHARS,
    MAX_DRAFT_CHARS,
    MAX_DRAFTS,
    MAX_ID_CHARS,
    MAX_OPEN_CALLS,
    MAX_REMEMBERED_BYTES,
    CallTable,
    Drafts,
)
from caretway.backends.agent.lost_run import Diverged
from caretway.backends.agent.run_life import RunPhase
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import TextDelta, ToolCallReady, TurnEnded, TurnFailed, TurnPaused
from caretway.core.recovery import Loss
from caretway.core.request import Text, ToolResult
from caretway.cursor.wire.messages import pb

from .stories import Story, checkpoint, completed, ended, listed, mcp, partial, set_blob, text, update


def answer(exec_id: int, result: ToolResult) -> list[bytes]:
    return []


def begin_many(table: CallTable) -> None:
    for number in range(MAX_OPEN_CALLS + 1):
        table.begin((f"call-{number}",), "look", answer)


def ask_many(table: CallTable) -> None:
    for number in range(MAX_OPEN_CALLS + 1):
        table.ask((f"call-{number}",), number, "look", "{}", answer)


def grow_a_draft(table: CallTable) -> None:
    table.begin(("shown",), "look", answer)
    table.begin(("waits",), "look", answer)
    for number in range(2 * MAX_DRAFT_CHARS // 10_000):
        table.grow(("waits",), f"{number:010000d}")


def long_id(table: CallTable) -> None:
    table.begin(("x" * (MAX_ID_CHARS + 1),), "look", answer)


def long_id_of_an_exec(table: CallTable) -> None:
    table.ask(("x" * (MAX_ID_CHARS + 1),), 1, "look", "{}", answer)


def long_arguments(table: CallTable) -> None:
    table.ask(("call",), 1, "look", '"' + "x" * MAX_ARGUMENT_CHARS + '"', answer)


@pytest.mark.parametrize(
    "story", [begin_many, ask_many, grow_a_draft, long_id, long_id_of_an_exec, long_arguments], ids=lambda s: s.__name__
)
@pytest.mark.parametrize("parallel", [True, False])
def test_too_much_ends_the_turn(story: Callable[[CallTable], None], parallel: bool) -> None:
    if (story is begin_many and not parallel) or (story is grow_a_draft and parallel):
        parallel = not parallel  # the other one shows nothing, or has no drafts
    with pytest.raises(GatewayError) as refused:
        story(CallTable(parallel=parallel))
    assert refused.value.kind is ErrorKind.UPSTREAM_PROTOCOL


def test_a_draft_that_is_told_whole_each_time_counts_once() -> None:
    table = CallTable(parallel=False)
    table.begin(("shown",), "look", answer)
    table.begin(("waits",), "look", answer)
    for number in range(2000):
        table.grow(("waits",), "x" * number * 10)


def test_of_too_many_results_the_oldest_are_forgotten() -> None:
    """What is forgotten is never answered with something else: the run starts anew."""
    piece = "x" * (MAX_REMEMBERED_BYTES // 10)
    table = CallTable(parallel=True)
    answered: list[ToolResult] = []

    def convert(exec_id: int, result: ToolResult) -> list[bytes]:
        answered.append(result)
        return [b"%d" % exec_id]

    results = []
    for number in range(12):
        call = table.ask((f"call-{number}",), number, "look", f'{{"at":{number}}}', convert).call
        results.append(ToolResult(call.id, (Text(piece),)))
        table.submit(results[-1:])
    with pytest.raises(Diverged, match="no longer remembered"):
        table.ask(("call-0",), 100, "look", '{"at":0}', convert)
    assert table.ask(("call-11",), 111, "look", '{"at":11}', convert).replies == [b"111"]
    assert answered[-1] is results[-1]


def test_a_draft_grows_in_pieces_or_whole_and_is_taken_once() -> None:
    drafts = Drafts()
    drafts.begin(("inner", "envelope"))
    assert drafts.knows(("other", "inner"))
    assert drafts.grow(("inner",), '{"a"')
    assert drafts.grow(("inner",), '{"a": 1')
    assert drafts.grow(("inner",), "}")
    assert drafts.grow(("unknown",), "nothing")
    assert drafts.text("inner") == '{"a": 1}'
    assert drafts.take(("envelope", "inner")) == '{"a": 1}'
    assert drafts.take(("inner",)) == ""


def test_drafts_are_bounded() -> None:
    drafts = Drafts()
    drafts.begin(("x" * (MAX_ID_CHARS + 1),))
    for number in range(2 * MAX_DRAFTS):
        drafts.begin((str(number),))
    assert not drafts.knows((str(MAX_DRAFTS),))
    assert drafts.grow(("0",), "x" * MAX_DRAFT_CHARS)
    assert not drafts.grow(("1",), "x")
    drafts.clear()
    drafts.begin(("1",))
    assert drafts.grow(("1",), "x")


TOOLS = ("deploy", "read")
Key = tuple[int, int]
"""(step, place in it)"""


@dataclass(frozen=True)
class Manner:
    """How a server tells of calls; all of these were seen."""

    announces: bool = True
    started_first: bool = True
    pieces: int = 2
    cumulative: bool = True
    two_ids: bool = False
    early_checkpoint: bool = False
    """One in the middle of a step, with its calls and without their results."""
    checkpoints: bool = True
    completes: bool = True
    apart: bool = False
    """Each call is asked for after a silence in which the client may take the one before for the whole step."""
    serial: bool = False
    """All calls are written, then each is asked for after the result of the one before."""
    readable: bool = True
    """The pieces of its checkpoints are stored with us in a form that we can read."""


@dataclass(frozen=True)
class Use:
    name: str
    argument: str


@dataclass
class Server:
    """One attempt at a run. `done` is what its state holds."""

    steps: Sequence[Sequence[Use]]
    done: dict[Key, str]
    manner: Manner
    attempt: int
    states: list[dict[Key, str]]
    """What each checkpoint holds; a checkpoint's number is its only root."""
    answers: dict[int, str] = field(default_factory=dict)
    """Results by exec id, as they come in."""
    recorded: list[str] = field(default_factory=list)
    """The ids of the calls whose results it has, of this attempt."""

    def save(self) -> Iterator[pb.AgentServerMessage]:
        self.states.append(dict(self.done))
        number = len(self.states) - 1
        results = [{"type": "tool-result", "toolCallId": call} for call in self.recorded]
        piece = b"%d" % number
        if self.manner.readable:
            yield set_blob(number, piece, msgspec.json.encode({"role": "tool", "content": results}))
        yield checkpoint(piece)

    def messages(self) -> Iterator[pb.AgentServerMessage | None]:
        """None: it waits for results."""
        manner = self.manner
        for number, uses in enumerate(self.steps):
            todo = [(number, place) for place in range(len(uses)) if (number, place) not in self.done]
            if not todo:
                continue
            if len(todo) == len(uses):
                yield text(f"step {number}. ")
            execs: list[tuple[Key, str, pb.AgentServerMessage]] = []
            for key in todo:
                if manner.apart and execs:
                    yield None
                use = uses[key[1]]
                call = f"call-{self.attempt}-{key[0]}-{key[1]}"
                envelope = f"{call}-outside" if manner.two_ids else call
                if manner.started_first:
                    yield update(tool_call_started=pb.ToolCallStartedUpdate(call_id=envelope))
                spelled = f'{{"argument":"{use.argument}"}}'
                size = -(-len(spelled) // manner.pieces) if manner.pieces else 0
                for start in range(0, len(spelled) if size else 0, size or 1):
                    yield partial(envelope, use.name, spelled[0 if manner.cumulative else start : start + size])
                exec_id = 100 * self.attempt + 10 * key[0] + key[1]
                execs.append((key, call, mcp(exec_id, call, use.name, argument=use.argument)))
                if manner.apart:
                    yield execs[-1][2]
            if manner.announces and not manner.apart:
                yield listed(len(todo))
            for _, _, message in execs if not manner.apart else ():
                yield message
                while manner.serial and message.exec_server_message.id not in self.answers:
                    yield None
            if manner.early_checkpoint:
                yield from self.save()
            while not all(message.exec_server_message.id in self.answers for _, _, message in execs):
                yield None
            for key, call, message in execs:
                if manner.completes:
                    yield completed(call)
                self.done[key] = self.answers[message.exec_server_message.id]
                self.recorded.append(call)
            if manner.checkpoints:
                yield from self.save()
        for result in self.done.values():
            yield text(f"<{result}>")
        yield ended(input_tokens=1, output_tokens=1)


@dataclass
class Client:
    """Runs every call that it is shown, and remembers how often."""

    ran: Counter[str] = field(default_factory=Counter)
    said: str = ""
    over: TurnEnded | TurnFailed | None = None
    waiting: list[ToolCallReady] = field(default_factory=list)
    works: int = 0
    """For so many messages more."""

    def read(self, story: Story) -> bool:
        """True when the response paused."""
        for event in story.events():
            match event:
                case TextDelta(text=words):
                    self.said += words
                case ToolCallReady():
                    self.waiting.append(event)
                case TurnEnded() | TurnFailed():
                    self.over = event
                case TurnPaused():
                    return True
                case _:
                    pass
        return False

    def run(self) -> list[ToolResult]:
        results = []
        for call in self.waiting:
            self.ran[f"{call.name} {call.arguments}"] += 1
            results.append(ToolResult(call.id, (Text(f"did {call.name} {call.arguments[13:-2]}"),)))
        self.waiting = []
        return results


class Play:
    """The whole conversation: attempts, fresh runs, and the client's side."""

    def __init__(self, steps: Sequence[Sequence[Use]], manner: Manner, cuts: Sequence[int], slow: int = 0) -> None:
        """`slow`: so many messages come while the client runs its calls."""
        self.steps, self.manner, self.slow = steps, manner, slow
        self.cuts = list(cuts)
        self.client = Client()
        self.history: list[str] = []
        """Results that the client has given, in order: what a fresh run is told."""
        self.states: list[dict[Key, str]] = []
        self.attempts = self.runs = self.stalled = 0
        self.error: GatewayError | None = None
        while self._one_run():
            pass

    def _told(self) -> dict[Key, str]:
        """The history as a model reads it: which calls have a result."""
        left = list(self.history)
        done: dict[Key, str] = {}
        for number, uses in enumerate(self.steps):
            for place, use in enumerate(uses):
                if (result := f"did {use.name} {use.argument}") in left:
                    left.remove(result)
                    done[number, place] = result
        return done

    def _one_run(self) -> bool:
        """A run with all its attempts. True: the history is to be told to a fresh one."""
        story, client = Story(*TOOLS), self.client
        self.runs += 1
        story.said()
        state = start = self._told()
        while cause := self._attempt(story, Server(self.steps, dict(state), self.manner, self.attempts, self.states)):
            retry = story.lose(cause)
            if (
                client.read(story) or client.works
            ):  # the client has calls: it runs them, and its results start a fresh run
                self.history += [result.text for result in client.run()]
                client.works = 0
                return True
            if retry is None:
                break
            story.conversation.outgoing.clear()
            story.conversation.open(story.now)
            (opening,) = story.said()
            roots = opening.run_request.conversation_state.root_prompt_messages_json
            state = self.states[int(roots[0])] if roots else start
        over, client.over = client.over, None
        if isinstance(over, TurnFailed) and over.error.kind is not ErrorKind.TURN_GONE:
            self.error = over.error
        return isinstance(over, TurnFailed) and over.error.kind is ErrorKind.TURN_GONE

    def _attempt(self, story: Story, server: Server) -> Loss | None:
        """Why it was lost before the turn was over; None: it was not."""
        self.attempts += 1
        assert self.attempts < 100, "it does not come to an end"
        left = self.cuts.pop(0) if self.cuts else -1
        for message in server.messages():
            if left == 0:
                return Loss.CUT
            left -= 1
            if message is None:
                if (given_up := story.wait(1)) is not None:
                    self.stalled += 1
                    return given_up.loss
            else:
                story.hear(message)
            client = self.client
            if client.works:
                assert not story.events(), "the response is over, and nobody reads this"
            if client.read(story):
                client.works = self.slow + 1
            elif message is None:
                client.works = min(client.works, 1)  # the server has nothing more to say before it has results
            client.works -= client.works > 0
            if client.waiting and not client.works and story.conversation.phase is RunPhase.PAUSED:
                results = client.run()
                self.history += [result.text for result in results]
                try:
                    story.conversation.submit(results, [], story.now)
                except GatewayError as gone:  # the run was given up when the client had its calls
                    self.client.over = TurnFailed(gone)
                    return None
                if left == 0:
                    return Loss.CUT  # while the results travelled
            if self.client.over:
                return None
            for said in story.said():
                answer = said.exec_client_message
                if answer.HasField("mcp_result"):
                    server.answers[answer.id] = answer.mcp_result.success.content[0].text.text
        raise AssertionError("the server is done and the turn is not")


USES = st.builds(Use, st.sampled_from(TOOLS), st.sampled_from(["a", "b", "long " * 8]))
STEPS = st.lists(st.lists(USES, min_size=1, max_size=3), min_size=1, max_size=3)
MANNERS = st.builds(
    Manner,
    announces=st.booleans(),
    started_first=st.booleans(),
    pieces=st.integers(0, 4),
    cumulative=st.booleans(),
    two_ids=st.booleans(),
    early_checkpoint=st.booleans(),
    apart=st.booleans(),
    serial=st.booleans(),
    checkpoints=st.booleans(),
    completes=st.booleans(),
    readable=st.booleans(),
)


def judge(play: Play) -> None:
    wanted = Counter(f'{use.name} {{"argument":"{use.argument}"}}' for uses in play.steps for use in uses)
    assert not play.client.ran - wanted, "a call ran more often than the model made it"
    if play.error is not None:
        assert play.error.kind in (ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT)
        return
    if play.manner.completes or play.manner.readable:  # else nobody can know what a checkpoint holds
        assert play.client.ran == wanted
        assert not play.stalled
        results = "".join(f"<did {use.name} {use.argument}>" for uses in play.steps for use in uses)
        assert play.client.said.endswith(results)


@given(STEPS, MANNERS, st.lists(st.integers(0, 40), max_size=6), st.integers(0, 8))
def test_each_call_reaches_the_client_exactly_once(
    steps: list[list[Use]], manner: Manner, cuts: list[int], slow: int
) -> None:
    judge(Play(steps, manner, cuts, slow))


TWO_STEPS = [[Use("deploy", "a")], [Use("read", "b"), Use("read", "b"), Use("deploy", "c")]]


def test_one_cut_anywhere_ends_with_the_right_answer() -> None:
    """The common servers; with a cut, two steps (one parallel, with twins) still end right."""
    manners = [Manner(), Manner(pieces=0, announces=False), Manner(early_checkpoint=True), Manner(checkpoints=False)]
    manners += [Manner(serial=True), Manner(serial=True, announces=False, two_ids=True)]
    for manner in manners:
        whole = Play(TWO_STEPS, manner, [])
        assert (whole.runs, whole.attempts) == (1, 1)
        for cut in range(60):
            play = Play(TWO_STEPS, manner, [cut])
            judge(play)
            assert play.error is None, (manner, cut, play.error)


def test_late_siblings_with_one_cut_anywhere() -> None:
    """They come while the client runs the calls before them, or after its results."""
    for manner in (Manner(apart=True), Manner(apart=True, pieces=0), Manner(apart=True, early_checkpoint=True)):
        for slow in (0, 1, 3, 6):
            whole = Play(TWO_STEPS, manner, [], slow)
            judge(whole)
            assert (whole.runs, whole.attempts) == (1, 1)
            for cut in range(40):
                play = Play(TWO_STEPS, manner, [cut], slow)
                judge(play)
                assert play.error is None, (manner, slow, cut, play.error)


def test_two_cuts_anywhere() -> None:
    for first in range(30):
        for second in range(0, 30, 3):
            judge(Play(TWO_STEPS, Manner(), [first, second]))
