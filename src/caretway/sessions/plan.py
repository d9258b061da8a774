"""Which turn a request belongs to. Pure: what is known is handed in, the decision and its reason come out.

Tickets decide first: results for a parked turn resume that very turn. Then the transcript: an exact prefix that ends
with our own last answer continues that conversation. Everything else is told to a new run from the beginning.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..core.request import Image, Message, Role, SessionMode, Text, ToolResult, ToolSpec, TurnRequest, last_answer
from ..core.turn import Abilities, Snapshot
from .transcript import Chain, canonical, fingerprint, tools_key


@dataclass(frozen=True, slots=True)
class Parked:
    """What the plan needs to know about a turn that waits."""

    sid: str
    tickets: frozenset[str]
    """The calls it waits for."""
    model: str
    tools: tuple[ToolSpec, ...]
    history: tuple[Message, ...]
    """What its newest request said."""
    answer: Message
    """What it answered: the calls."""
    transcript: Callable[[], bytes]
    """Fingerprint of all that was said up to and including that answer."""
    waiting: bool
    """False: it has tickets of ours and is past them (answered before, running, or being resumed)."""
    given: tuple[ToolResult, ...] = ()
    """The results that it was resumed with last."""
    abandoned: bool = False
    """The client of its newest request hung up."""


@dataclass(frozen=True, slots=True)
class Fresh:
    reason: str


@dataclass(frozen=True, slots=True)
class Replay:
    reason: str
    instead_of: str | None = None
    """A live turn that this one takes the place of."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The client repeats a request that was answered: it gets the same answer."""

    sid: str
    reason: str = "the same request was answered before"


@dataclass(frozen=True, slots=True)
class Resume:
    sid: str
    results: tuple[ToolResult, ...]
    extra: tuple[Text, ...]
    news: tuple[Message, ...] = field(compare=False)
    """What the request says beyond the history that the turn knows."""
    reason: str = "tool results for a parked turn"


@dataclass(frozen=True, slots=True)
class Continue:
    snapshot: Snapshot
    chain: Chain = field(compare=False)
    """Of the transcript that is continued."""
    reason: str = "the transcript is known"


Plan = Fresh | Replay | Resume | Continue | Repeat


def plan(
    request: TurnRequest,
    *,
    mode: SessionMode,
    abilities: Abilities,
    parked: Mapping[str, Parked],
    recall: Callable[[bytes], Snapshot | None],
) -> Plan:
    """`parked` maps every known ticket to its turn; `recall` finds the snapshot of a fingerprint."""
    answered = last_answer(request.messages)
    tail = request.messages[answered:]
    results = tuple(part for message in tail for part in message.parts if isinstance(part, ToolResult))
    if mode is SessionMode.FRESH:
        return Fresh("fresh was asked for") if not answered else Replay("fresh was asked for")
    if results:
        decision = _by_ticket(request, tail, results, abilities, parked)
    elif not answered:
        return Fresh("first message")
    else:
        decision = _by_transcript(request, answered, abilities, recall)
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
) -> Plan:
    if not abilities.parks:
        return Replay("this backend cannot park a turn")
    turns = [parked.get(result.call_id) for result in results]
    known = [turn for turn in turns if turn is not None]
    if len(known) < len(turns):
        return Replay("unknown or expired ticket")
    turn = known[0]
    if any(other.sid != turn.sid for other in known):
        return Replay("tickets of several turns")
    results = tuple(dict.fromkeys(results))  # the same result twice is one result
    given = {result.call_id for result in results}
    if len(given) < len(results):
        return Replay("several results for one ticket")
    if not turn.waiting or given - turn.tickets:
        return _given_before(request, results, turn)
    if turn.model != request.model:
        return Replay("the model changed")
    if turn.tools != request.tools and tools_key(turn.tools) != tools_key(request.tools):
        return Replay("the tools changed")
    before = request.messages[: len(request.messages) - len(tail)]
    if before and not _same_history(before, turn):
        return Replay("the history changed")  # the live run remembers another one; results alone have none to compare
    if missing := sorted(turn.tickets - given):
        raise bad_request(
            f"Results are missing for: {', '.join(missing)}. Every call of a step is answered in one request.",
            param="messages",
            code="missing_tool_results",
            hint="To go on without them, send `x-caretway-session: fresh`.",
        )
    beside = _beside(before, tail)
    if beside is None:
        return Replay("an image beside tool results")
    return Resume(turn.sid, results, beside, tail)


def _given_before(request: TurnRequest, results: tuple[ToolResult, ...], turn: Parked) -> Plan:
    """SDKs repeat a request after a timeout. A second run never starts beside a live one for the same results."""
    if set(results) != set(turn.given):
        return Replay("these results were given before")
    if turn.abandoned:
        return Replay("an earlier request with these results was given up", turn.sid)
    if not turn.waiting:
        raise GatewayError(
            ErrorKind.IN_PROGRESS,
            "These tool results are being worked on: an earlier request that gave them is still open.",
            hint="Wait for its answer, or close it and ask again.",
        )
    if (request.messages, request.model, request.tools) == (turn.history, turn.model, turn.tools):
        return Repeat(turn.sid)
    return Replay("these results were given before")


def _same_history(before: tuple[Message, ...], turn: Parked) -> bool:
    """Nearly every client sends what it sent before, unchanged, and our answer as it understood it. That is seen
    without spelling it all out once more; whoever changed something may still mean the same."""
    told = len(turn.history)
    if before[:told] == turn.history and [canonical(turn.answer)] == [canonical(told) for told in before[told:]]:
        return True
    return turn.transcript() == fingerprint(tools_key(turn.tools), before)


def _beside(history: Sequence[Message], tail: Sequence[Message]) -> tuple[Text, ...] | None:
    """What was said beside the results; None when it cannot travel with them. Repeated system messages do not count."""
    said: list[Text] = []
    for message in tail:
        if message.role is Role.SYSTEM and any(
            message.text == before.text for before in history if before.role is Role.SYSTEM
        ):
            continue
        for part in message.parts:
            if isinstance(part, Image):
                return None
            if isinstance(part, Text) and part.text.strip():
                said.append(part)
    return tuple(said)


def _by_transcript(
    request: TurnRequest, answered: int, abilities: Abilities, recall: Callable[[bytes], Snapshot | None]
) -> Plan:
    if not abilities.continues:
        return Replay("this backend keeps no conversations")
    tail = request.messages[answered:]
    if not any(message.role is Role.USER for message in tail):
        return Replay("nothing new was said")
    if any(message.role is Role.SYSTEM for message in tail):
        return Replay("the instructions changed")
    chain = Chain(tools_key(request.tools)).add(request.messages[:answered])
    snapshot = recall(chain.digest())
    return Continue(snapshot, chain) if snapshot is not None else Replay("no known conversation begins like this")
