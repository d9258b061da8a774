"""Which turn a request belongs to, and why: resume by tickets, continue a known transcript, replay (changed model,
tools or history), fresh; a repeated request (an SDK's retry) gets the same answer, or 409 while the first is in
progress; missing, doubled, unknown results. Pure.

Tickets decide first: results for a parked turn resume that very turn. Clients retell our newest answer freely, so its
tickets are proof enough; what was said before it must be the same. Then the transcript: an exact prefix that ends with
our own last answer continues that conversation. Everything else is told to a new run from the beginning.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..core.request import (
    Image,
    Message,
    Role,
    SessionMode,
    Text,
    ToolResult,
    ToolSpec,
    TurnRequest,
    as_user_text,
    last_answer,
)
from ..core.turn import Abilities, Snapshot
from .late_tools import asked_for, grown
from .retold import known_before
from .transcript import Chain, canonical, tools_key


class Parked(Struct, frozen=True):
    """What the plan needs to know about a turn that waits."""

    sid: str
    tickets: frozenset[str]
    """The calls it waits for."""
    model: str
    tools: tuple[ToolSpec, ...]
    """What its run was offered."""
    history: tuple[Message, ...]
    """What its newest request said."""
    answer: Message
    """What it answered: the calls."""
    before: Callable[[], bytes]
    """Fingerprint of all that was said before that answer."""
    waiting: bool
    """False: it has our tickets and is past them (answered before, running, or being resumed)."""
    given: tuple[ToolResult, ...] = ()
    """The results that it was resumed with last."""
    own: bool = True
    """Its own tickets are asked for; False: results of another turn's calls, with which its history was replayed."""
    abandoned: bool = False
    """The client of its newest request hung up."""

    @classmethod
    def starting(cls, request: TurnRequest, given: tuple[ToolResult, ...]) -> "Parked":
        """A turn that is being started with these results."""
        return cls(
            sid="",
            tickets=frozenset(),
            model=request.model,
            tools=request.tools,
            history=request.messages,
            answer=Message(Role.ASSISTANT, ()),
            before=bytes,
            waiting=False,
            given=given,
            own=False,
        )


class Fresh(Struct, frozen=True):
    reason: str


class Replay(Struct, frozen=True):
    reason: str
    instead_of: str | None = None
    """A live turn that this one takes the place of."""


class Repeat(Struct, frozen=True):
    """The client repeats a request that was answered: it gets the same answer."""

    sid: str
    reason: str = "the same request was answered before"


@dataclass(frozen=True, slots=True)
class Resume:
    sid: str
    results: tuple[ToolResult, ...]
    extra: tuple[Text, ...]
    known: int = field(compare=False)
    """How many messages of the request stand before our newest answer."""
    reason: str = "tool results for a parked turn"


@dataclass(frozen=True, slots=True)
class Continue:
    snapshot: Snapshot
    chain: Chain = field(compare=False)
    """Of the transcript that is continued."""
    reason: str = "the transcript is known"


Plan = Fresh | Replay | Resume | Continue | Repeat
Alike = Literal["words", "results"] | None
"""What is the same of two requests: all their words; the conversation and the results that end it; or neither."""
Compare = Callable[[tuple[Message, ...], tuple[Message, ...]], Alike]


def plan(
    request: TurnRequest,
    *,
    mode: SessionMode,
    abilities: Abilities,
    parked: Mapping[str, Parked],
    recall: Callable[[bytes], Snapshot | None],
    chains: "Chains | None" = None,
    said: tuple[Message, ...] = (),
    compare: Compare | None = None,
    gone: str = "",
) -> Plan:
    """`parked` maps every known ticket to its turn; `recall` finds the snapshot of a fingerprint. `chains`:
    those of the request, if they were made already (`history_chains`). `said`: the client's own messages, where the
    request is what the model gets. `compare`: `alike`, or a function that knows its answers.
    `gone`: why a turn that is not in `parked` is not."""
    answered = last_answer(request.messages)
    tail = request.messages[answered:]
    results = tuple(part for message in tail for part in message.parts if isinstance(part, ToolResult))
    if mode is SessionMode.FRESH:
        return Fresh("fresh was asked for") if not answered else Replay("fresh was asked for")
    if results:
        decision = _by_ticket(request, tail, results, abilities, parked, chains, said, compare or alike, gone)
    elif not answered:
        return Fresh("first message")
    else:
        decision = _by_transcript(request, answered, abilities, recall, chains)
    if mode is SessionMode.REQUIRED and isinstance(decision, Replay):
        raise GatewayError(
            ErrorKind.TURN_GONE,
            f"The conversation cannot be resumed: {decision.reason}.",
            hint="Send the request with `x-caretway-session: auto` to replay it.",
        )
    return decision


def _by_ticket(
    request: TurnRequest,
    tail: tuple[Message, ...],
    results: tuple[ToolResult, ...],
    abilities: Abilities,
    parked: Mapping[str, Parked],
    chains: "Chains | None",
    said: tuple[Message, ...],
    compare: Compare,
    gone: str,
) -> Plan:
    if not abilities.parks:
        return Replay("this backend cannot park a turn")
    turns = [parked.get(result.call_id) for result in results]
    known = [turn for turn in turns if turn is not None]
    if len(known) < len(turns):
        return Replay(gone or "unknown or expired ticket")
    turn = known[0]
    if any(other.sid != turn.sid for other in known):
        return Replay("tickets of several turns")
    results = tuple(dict.fromkeys(results))  # the same result twice is one result
    given = {result.call_id for result in results}
    if len(given) < len(results):
        return Replay("several results for one ticket")
    if not turn.waiting or given - turn.tickets:
        decision = _given_before(said or request.messages, request.model, results, turn, compare)
        if isinstance(decision, Repeat) and grown(turn.tools, request.tools) is None:
            return Replay("the tools changed", turn.sid)  # the old answer calls what the client has no longer
        return decision
    if turn.model != request.model:
        return Replay("the model changed")
    if request.tool_choice.mode == "named" and all(tool.name != request.tool_choice.name for tool in turn.tools):
        return Replay(f"a call of {request.tool_choice.name} is demanded", turn.sid)  # the run was not offered it
    if request.tool_choice.mode == "none":
        return Replay("calls are forbidden", turn.sid)  # the run was offered tools
    new = grown(turn.tools, request.tools)
    if new is None:
        return Replay("the tools changed")
    before = request.messages[: len(request.messages) - len(tail)]
    told_before = known_before(before, turn.history, turn.answer, turn.before, chains.before if chains else None)
    if told_before is None:
        return Replay("the history changed")  # the live run remembers another one
    if missing := sorted(turn.tickets - given):
        raise bad_request(
            f"Results are missing for: {', '.join(missing)}. Every call of a step is answered in one request.",
            param="messages",
            code="missing_tool_results",
            hint="To go on without them, send `x-caretway-session: fresh`.",
        )
    if new and (loaded := asked_for(new, turn.answer, tail, before)) is not None:
        return Replay(f"a tool was loaded: {loaded}", turn.sid)  # the live run was not offered it and cannot call it
    beside = _beside(before, tail)
    if beside is None:
        return Replay("an image beside tool results")
    reason = "tool results for a parked turn; new tools wait" if new else "tool results for a parked turn"
    return Resume(turn.sid, results, beside, told_before, reason)


def _given_before(
    said: tuple[Message, ...], model: str, results: tuple[ToolResult, ...], turn: Parked, compare: Compare
) -> Plan:
    """SDKs repeat a request after a timeout. A second run never starts beside a live one for the same calls.

    Clients put a clock or a reminder beside results. With other words there the old answer is not an answer to this
    request, so the run that gave it makes room for a new one: nobody asks for what it waits for. Should somebody answer
    its calls all the same, that is replayed."""
    same = compare(said, turn.history) if model == turn.model else None
    if not turn.own and same is None:
        return Replay("unknown or expired ticket")
    if not {result.call_id for result in results} <= {result.call_id for result in turn.given}:
        return Replay("these results were given before")
    if turn.abandoned:
        return Replay("an earlier request with these results was given up", turn.sid)
    if not turn.waiting:
        raise GatewayError(
            ErrorKind.IN_PROGRESS,
            "These tool results are being worked on: an earlier request that gave them is still open.",
            hint="Wait for its answer, or close it and ask again.",
        )
    if same == "words":
        return Repeat(turn.sid)
    return Replay("these results were given before, beside other words", turn.sid)


def alike(one: tuple[Message, ...], other: tuple[Message, ...]) -> Alike:
    answered, known = last_answer(one), last_answer(other)
    if not _same_words(one[:answered], other[:known]):
        return None
    if _same_words(one[answered:], other[known:]):
        return "words"
    return "results" if _same_words(_results_alone(one[answered:]), _results_alone(other[known:])) else None


def _same_words(one: tuple[Message, ...], other: tuple[Message, ...]) -> bool:
    """Spelling apart. Most messages are repeated as they were, and are not spelled out."""
    if len(one) != len(other):
        return False
    return all(mine == theirs or canonical(mine) == canonical(theirs) for mine, theirs in zip(one, other, strict=True))


def _results_alone(tail: tuple[Message, ...]) -> tuple[Message, ...]:
    results = {part: None for message in tail for part in message.parts if isinstance(part, ToolResult)}
    return tuple([Message(Role.TOOL, (result,)) for result in results])


class Chains(Struct, frozen=True):
    """Of a request's history, spelled out once."""

    before: Chain
    """Up to the assistant's last words."""
    whole: Chain
    """Those included."""


def history_chains(request: TurnRequest) -> Chains:
    answered = said = last_answer(request.messages)
    while said and request.messages[said - 1].role is Role.ASSISTANT:
        said -= 1
    before = Chain(tools_key(request.tools)).add(request.messages[:said])
    return Chains(before, before.copy().add(request.messages[said:answered]))


def _beside(history: Sequence[Message], tail: Sequence[Message]) -> tuple[Text, ...] | None:
    """What was said beside the results; None when it cannot travel with them. Repeated system messages do not count."""
    said: list[Text] = []
    known: set[str] | None = None
    for message in tail:
        if message.role is Role.SYSTEM:
            if known is None:
                known = {before.text for before in history if before.role is Role.SYSTEM}
            if message.text.strip() and message.text not in known:
                said.append(as_user_text(message))
            continue
        for part in message.parts:
            if isinstance(part, Image):
                return None
            if isinstance(part, Text) and part.text.strip():
                said.append(part)
    return tuple(said)


def _by_transcript(
    request: TurnRequest,
    answered: int,
    abilities: Abilities,
    recall: Callable[[bytes], Snapshot | None],
    chains: "Chains | None",
) -> Plan:
    if not abilities.continues:
        return Replay("this backend keeps no conversations")
    tail = request.messages[answered:]
    if not any(message.text or message.role is Role.USER for message in tail):
        return Replay("no new message")
    chain = (chains or history_chains(request)).whole
    snapshot = recall(chain.digest())
    return Continue(snapshot, chain) if snapshot is not None else Replay("no known conversation begins like this")
