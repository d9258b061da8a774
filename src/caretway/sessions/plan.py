"""Decides which turn a request belongs to: resume by tickets, continue a known transcript, replay (changed model, tools
or history), or fresh. A repeated request (an SDK's retry) gets the same answer, or 409 while the first is in progress.
Pure.
Tickets decide first: results for a parked turn resume that turn. Clients may change the newest answer when they send it
back, so its tickets identify it; all earlier messages must be unchanged. The transcript decides next: an exact prefix
that ends with the last answer continues that conversation. Any other history is sent to a new run.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
from msgspec import Struct

from ..core.errors import ErrorKind, GatewayError, bad_request
from ..core.json_bounds import canonical_json, spell
from ..core.request import (
    Image,
    Message,
    Role,
    SessionMode,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    TurnRequest,
    as_user_text,
    last_answer,
)
from ..core.turn import Abilities, Snapshot
from .transcript import Chain, canonical, tools_key

# ---- Tools that a client added, changed or removed while its turn was parked: decides whether the turn resumes without
# new tools or must be replayed because one is mentioned or loaded. Pure.
#
# A live run cannot get new tools. Usually they can wait until the next run (one of the client's MCP servers started
# late). But some tools load others, and the model is about to call a loaded tool.

MOST_OF_ONE: Final = 16_384
MOST_IN_ALL: Final = 131_072
"""Characters of one text, and of all, that are searched for new tools' names. Texts that load tools are short."""
_WORD: Final = re.compile(r"[\w-]+")
_LOADS: Final = re.compile(r"tool", re.IGNORECASE)
"""Part of the name of a tool that loads others: ToolSearch, load_tools, enable_toolset."""


def grown(offered: Sequence[ToolSpec], now: Sequence[ToolSpec]) -> tuple[str, ...] | None:
    """The names of the added tools; None if a tool was changed or removed. A tool that has moved to another namespace
    counts as changed, because the live run's calls do not refer to it."""
    if offered == now:
        return ()
    by_name = {tool.name: tool for tool in now}
    for tool in offered:
        same = by_name.pop(tool.name, None)
        if same is None or same.namespace != tool.namespace:
            return None
        if same != tool and tools_key((same,)) != tools_key((tool,)):
            return None
    return tuple(by_name)


def asked_for(new: Sequence[str], answer: Message, tail: Sequence[Message], history: Sequence[Message]) -> str | None:
    """The first new tool that the answer's calls, the results or the user mention, or None. Calls and the user may name
    a tool's server instead (`vault` for `mcp__vault__reveal`)."""
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    prompt = next((message for message in reversed(history) if message.role is Role.USER), None)
    beside = [message.text for message in tail]
    said = _words([*(call.arguments for call in calls), *beside, prompt.text if prompt is not None else ""])
    given = _words(part.text for message in tail for part in message.parts if isinstance(part, ToolResult))
    meant = [name for name in new if name in said or name in given] or [name for name in new if _server(name) in said]
    if not meant and any(_LOADS.search(call.name) for call in calls):
        return new[0]  # some loaders do not name the loaded tools
    return meant[0] if meant else None


def _server(tool: str) -> str:
    parts = tool.split("__", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "mcp" else tool


def _words(texts: Iterable[str]) -> set[str]:
    words: set[str] = set()
    left = MOST_IN_ALL
    for text in texts:
        if left <= 0:
            break
        read = text[: min(MOST_OF_ONE, left)]
        words.update(_WORD.findall(read))
        left -= len(read)
    return words


# ---- Decides whether a client that sends tool results changed the history: an edited call argument or earlier message
# makes it another conversation; added words, split messages and filled-in defaults do not. Pure.
#
# Tickets prove the newest answer: clients add words to it, drop words, split it into several messages, and fill in a
# tool's defaults. But a changed value in a call is an edit (users are asked before a tool runs and may change the
# call), and the run would take the result for the result of its own call. All earlier messages must be the same, apart
# from spelling.


def known_before(
    sent: tuple[Message, ...],
    history: tuple[Message, ...],
    answer: Message,
    before: Callable[[], bytes],
    spelled: Chain | None = None,
) -> int | None:
    """How many messages of `sent` precede `answer`; None if `sent` is another conversation. `sent` ends with the
    client's version of the answer; `before` is the fingerprint of the messages before the answer; `spelled` the
    chain of `sent` up to the assistant's last words, when it is known.

    Nearly every client sends what it sent before, unchanged. That is seen without spelling it all out once more;
    a changed request may still mean the same."""
    if not sent:
        return 0  # only results: nothing to compare
    count = len(history)
    if sent[:count] == history and _retells(sent[count:], answer):
        return count
    last = len(sent)
    while last and sent[last - 1].role is Role.ASSISTANT:
        last -= 1
    chain = Chain(b"").add(sent[:last]) if spelled is None else spelled.copy()
    wanted = before()
    for count in range(last, len(sent)):  # the client may have put assistant messages before the answer
        if chain.said() == wanted and _retells(sent[count:], answer):
            return count
        chain.add((sent[count],))
    return None


def _retells(sent: Sequence[Message], answer: Message) -> bool:
    if len(sent) == 1 and sent[0] == answer:  # nearly always
        return True
    if [canonical(message) for message in sent] == [canonical(answer)]:
        return True
    if any(message.role is not Role.ASSISTANT for message in sent):
        return False
    theirs = [part for message in sent for part in message.parts if isinstance(part, ToolCall)]
    ours = {part.id: part for part in answer.parts if isinstance(part, ToolCall)}
    if len(theirs) != len(ours) or {call.id for call in theirs} != ours.keys():
        return False
    return not any(_edited(ours[call.id].arguments, call.arguments) for call in theirs)


def _edited(ours: str, theirs: str) -> bool:
    """Whether a value of the call has changed. Added or missing values are no edit."""
    if canonical_json(ours) == canonical_json(theirs):
        return False
    wrote, sent = _object(ours), _object(theirs)
    return any(name in sent and spell(value) != spell(sent[name]) for name, value in wrote.items())


def _object(arguments: str) -> dict[str, object]:
    """The arguments in canonical spelling; empty if they are not an object."""
    try:
        value = msgspec.json.decode(canonical_json(arguments))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class Parked(Struct, frozen=True):
    """The facts about a waiting turn that the plan uses."""

    sid: str
    tickets: frozenset[str]
    """The calls that the turn waits for."""
    model: str
    tools: tuple[ToolSpec, ...]
    """The tools that its run was offered."""
    history: tuple[Message, ...]
    """The messages of its newest request."""
    answer: Message
    """Its newest answer, with the calls."""
    before: Callable[[], bytes]
    """The fingerprint of the messages before `answer`."""
    waiting: bool
    """False if its tickets are used up: the turn was resumed, is running or is being resumed."""
    given: tuple[ToolResult, ...] = ()
    """The results of its last resumption."""
    own: bool = True
    """Whether the results are for its own tickets; False: it replays another turn with these results."""
    abandoned: bool = False
    """Whether the client of its newest request hung up."""

    @classmethod
    def starting(cls, request: TurnRequest, given: tuple[ToolResult, ...]) -> "Parked":
        """A turn that is being started with the results `given`."""
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
    """The live turn that the new turn replaces."""


class Repeat(Struct, frozen=True):
    """A repeated request that was answered gets the same answer."""

    sid: str
    reason: str = "the same request was answered before"


@dataclass(frozen=True, slots=True)
class Resume:
    sid: str
    results: tuple[ToolResult, ...]
    extra: tuple[Text, ...]
    known: int = field(compare=False)
    """How many messages of the request precede the newest answer."""
    reason: str = "tool results for a parked turn"


@dataclass(frozen=True, slots=True)
class Continue:
    snapshot: Snapshot
    chain: Chain = field(compare=False)
    """The chain of the continued transcript."""
    reason: str = "the transcript is known"


Plan = Fresh | Replay | Resume | Continue | Repeat
Alike = Literal["words", "results"] | None
"""How far two requests are equal: `words`: completely; `results`: same conversation and results, other words; None."""
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
    """`parked` maps every known ticket to its turn; `recall` finds the snapshot of a fingerprint. `chains`: the
    request's chains, if computed already (`history_chains`). `said`: the client's own messages, if `request` was
    changed for the model. `compare`: `alike`, or a function with cached results. `gone`: why a turn is not in `parked`.
    """
    answered = last_answer(request.messages)
    tail = request.messages[answered:]
    results = tuple([part for message in tail for part in message.parts if isinstance(part, ToolResult)])
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
    if len({other.sid for other in known}) > 1:
        return Replay("tickets of several turns")
    results = tuple(dict.fromkeys(results))  # drop duplicate results
    given = {result.call_id for result in results}
    if len(given) < len(results):
        return Replay("several results for one ticket")
    if not turn.waiting or given - turn.tickets:
        decision = _given_before(said or request.messages, request.model, results, turn, compare)
        if isinstance(decision, Repeat) and grown(turn.tools, request.tools) is None:
            return Replay("the tools changed", turn.sid)  # the old answer calls removed tools
        return decision
    if turn.model != request.model:
        return Replay("the model changed")
    if request.tool_choice.mode == "named" and all(tool.name != request.tool_choice.name for tool in turn.tools):
        return Replay(f"a call of {request.tool_choice.name} is demanded", turn.sid)  # the run lacks this tool
    if request.tool_choice.mode == "none":
        return Replay("calls are forbidden", turn.sid)  # the run was offered tools
    new = grown(turn.tools, request.tools)
    if new is None:
        return Replay("the tools changed")
    before = request.messages[: len(request.messages) - len(tail)]
    sent_before = known_before(before, turn.history, turn.answer, turn.before, chains.before if chains else None)
    if sent_before is None:
        return Replay("the history changed")  # the live run has another history
    if missing := sorted(turn.tickets - given):
        raise bad_request(
            f"Results are missing for: {', '.join(missing)}. Every call of a step is answered in one request.",
            param="messages",
            code="missing_tool_results",
            hint="To go on without them, send `x-caretway-session: fresh`.",
        )
    if new and (loaded := asked_for(new, turn.answer, tail, before)) is not None:
        return Replay(f"a tool was loaded: {loaded}", turn.sid)  # the live run cannot call this tool
    beside = _beside(before, tail)
    if beside is None:
        return Replay("an image beside tool results")
    reason = "tool results for a parked turn; new tools wait" if new else "tool results for a parked turn"
    return Resume(turn.sid, results, beside, sent_before, reason)


def _given_before(
    said: tuple[Message, ...], model: str, results: tuple[ToolResult, ...], turn: Parked, compare: Compare
) -> Plan:
    """The plan for results that a turn already has. SDKs repeat a request after a timeout; a second run for the same
    calls never starts while the first is live.
    Clients add a clock or a reminder to results. With other words the old answer does not fit this request, so a new
    run replaces its run. Results for the replaced run's calls are replayed."""
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
    """Whether the messages are equal apart from spelling. Identical messages, the usual case, need no canonical
    form."""
    if len(one) != len(other):
        return False
    return all(mine == theirs or canonical(mine) == canonical(theirs) for mine, theirs in zip(one, other, strict=True))


def _results_alone(tail: tuple[Message, ...]) -> tuple[Message, ...]:
    results = {part: None for message in tail for part in message.parts if isinstance(part, ToolResult)}
    return tuple([Message(Role.TOOL, (result,)) for result in results])


class Chains(Struct, frozen=True):
    """The chained fingerprints of a request's history, computed once."""

    before: Chain
    """Up to the assistant's last answer, without it."""
    whole: Chain
    """Up to the assistant's last answer, including it."""


def history_chains(request: TurnRequest) -> Chains:
    answered = said = last_answer(request.messages)
    while said and request.messages[said - 1].role is Role.ASSISTANT:
        said -= 1
    before = Chain(tools_key(request.tools)).add(request.messages[:said])
    return Chains(before, before.copy().add(request.messages[said:answered]))


def _beside(history: Sequence[Message], tail: Sequence[Message]) -> tuple[Text, ...] | None:
    """The texts next to the results; None if the run cannot take them. Repeated system messages do not count."""
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
