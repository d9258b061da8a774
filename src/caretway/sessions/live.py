"""One live turn of the session engine: its tickets, its state, the fingerprint of its conversation, the tools of its
run, its last results, and the account of its run. A record; `plan` and `manager` decide.
"""

import asyncio
import re
import time
from os import urandom
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ..accounts.names import spelled
from ..core.errors import GatewayError
from ..core.events import Event, RunUsage, ToolCallDelta, ToolCallReady, ToolCallStarted
from ..core.fold import Fold
from ..core.passing import Held
from ..core.records import RequestOrigin, RunRecord
from ..core.request import Message, Role, RunCharge, ToolCall, ToolResult, ToolSpec, TurnRequest, last_answer
from ..core.tally import message_chars, tokens
from ..core.turn import Turn
from .lifecycle import Happening, SessionState, move
from .plan import Parked
from .transcript import Chain, tools_key

# ---- Tickets, the tool call ids that clients see: created here and mapped to upstream's ids and back.
#
# A ticket is looked up, never trusted; an unknown id is foreign. A turn is never found by the text of a prompt, so two
# equal chats never share a turn. Only a gateway of a cluster reads the holder from a ticket. A ticket is legal in every
# dialect and no client rewrites it: at most 40 characters of [A-Za-z0-9_-], with the prefix of the dialect's own ids
# (`call_`, `toolu_`).

REPLICA: Final = "0000"
"""The replica id in tickets of a gateway without a cluster."""
_SID_BYTES: Final = 8
_CALL_BYTES: Final = 2
_TICKET: Final = re.compile(r"[a-z]+_([0-9a-f]{4})([0-9a-f]{16})[0-9a-f]{5,}")
_CALLS: Final = (ToolCallStarted, ToolCallDelta, ToolCallReady)


def new_sid() -> str:
    return urandom(_SID_BYTES).hex()


def held_by(ticket: str) -> Held | None:
    """The gateway and the turn that a ticket names; None if the text is no ticket. Only a hint: the named gateway
    checks whether it has the turn."""
    found = _TICKET.fullmatch(ticket)
    return Held(found[1], found[2]) if found is not None else None


class Tickets:
    """Maps the ids of upstream's events to tickets, and tickets in results to upstream's ids. Upstream's ids may be
    long or have odd characters, so they never leave the gateway.
    """

    __slots__ = ("_ours", "_replica", "_theirs", "prefix", "sid")

    def __init__(self, sid: str, prefix: str, replica: str = REPLICA) -> None:
        self.sid = sid
        self._replica = replica
        self.prefix = prefix
        """The prefix of new tickets. It may change, because a client may resume a turn through another dialect."""
        self._ours: dict[str, str] = {}
        self._theirs: dict[str, str] = {}

    def ticket(self, upstream_id: str) -> str:
        ours = self._ours.get(upstream_id)
        if ours is None:
            call = f"{urandom(_CALL_BYTES).hex()}{len(self._ours) + 1:x}"
            ours = f"{self.prefix}{self._replica}{self.sid}{call}"
            self._ours[upstream_id] = ours
            self._theirs[ours] = upstream_id
        return ours

    def upstream_id(self, ticket: str) -> str:
        return self._theirs[ticket]

    def outward(self, event: Event) -> Event:
        if isinstance(event, _CALLS):
            return replace(event, id=self.ticket(event.id))
        return event

    def inward(self, result: ToolResult) -> ToolResult:
        return replace(result, call_id=self._theirs[result.call_id])


NOTHING: Final = Message(Role.ASSISTANT, ())
FROM_NOWHERE: Final = RequestOrigin()


class RunAccount(Struct, eq=False):
    """The records of a run for the ledger: one when the run is over, or one for each total that Cursor reports (a run
    may end at each pause). A total that arrives after the gateway has stopped the run makes a second record with
    the same id."""

    origin: RequestOrigin = FROM_NOWHERE
    conversation: str = ""
    label: str = ""
    reason: str = ""
    newest: tuple[str, str] = ("", "")
    """Label and reason of its newest response, which may have resumed it."""
    upstream: str = ""
    """The conversation's id at Cursor."""
    error: str = ""
    """The error code of its newest response."""
    responses: int = 0
    recorded: int = 0
    """The number of its records so far."""
    due: bool = True
    """Whether a part of the run is not yet recorded."""
    started_at: float = field(default_factory=time.time)
    charge: RunCharge | None = None
    """The charge for its runs; None if nothing is counted."""

    def answers(self, label: str, reason: str) -> None:
        """Add a response that reads from the run."""
        self.responses += 1
        self.due = True
        self.newest = label, reason
        if not self.label:
            self.label, self.reason = label, reason

    def record(self, run: str, backend: str, request: TurnRequest, outcome: str, usage: RunUsage | None) -> RunRecord:
        again = not self.due
        if not again:
            self.recorded += 1
        self.due = False
        return RunRecord(
            run=run if self.recorded == 1 else f"{run}.{self.recorded}",
            origin=self.origin,
            backend=backend,
            model=request.model,
            variant=spelled(request.model, request.parameters, request.choice.max_mode),
            conversation=self.conversation,
            session=self.label,
            reason=self.reason,
            outcome=outcome,
            usage=usage,
            error=self.error,
            responses=self.responses,
            upstream=self.upstream,
            started_at=self.started_at,
            ended_at=time.time(),
            again=again,
        )


class LiveTurn(Struct, eq=False):
    turn: Turn
    tickets: Tickets
    request: TurnRequest
    """The newest request of this turn."""
    chain: Chain | None = None
    """The chain of the messages before `unchained`; None before the first message."""
    unchained: tuple[Message, ...] = ()
    answer: Message = NOTHING
    """The newest answer, which made the open calls. It is chained in the client's version, with the results."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools of the upstream run; the newest request may offer more."""
    given: tuple[ToolResult, ...] = ()
    """The results of its last resumption."""
    state: SessionState = SessionState.RUNNING
    open: list[str] = field(default_factory=list)
    """Tickets that the client has not answered."""
    issued: list[str] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    account: RunAccount = field(default_factory=RunAccount)
    since: float = field(default_factory=time.time)
    """The time of its last change of state; unix seconds."""
    fold: Fold | None = None
    """The fold of its response so far; None without a response."""
    cancelled: GatewayError | None = None
    """The error that its reader gets instead of further events."""
    chars: int | None = None
    """Characters of all chained messages; None if another gateway began the chain."""
    held: int | None = None
    """Tokens of the history that the newest request repeated; None if they were not counted."""

    def happened(self, happening: Happening) -> None:
        self.state = move(self.state, happening)
        self.since = time.time()
        if self.timer is not None and self.state is not SessionState.PARKED:
            self.timer.cancel()
            self.timer = None

    def __post_init__(self) -> None:
        self.tools = self.request.tools

    def _chained(self) -> Chain:
        chain = self.chain
        if chain is None:
            chain = self.chain = Chain(tools_key(self.request.tools))
            self.chars = 0
        unchained, self.unchained = self.unchained, ()
        if self.chars is not None:
            self.chars += message_chars(unchained)
        return chain.add(unchained)

    def before(self) -> bytes:
        """The fingerprint of all messages before the newest answer."""
        return self._chained().said()

    def goes_on(self, request: TurnRequest, news: tuple[Message, ...]) -> None:
        """The client resumes the turn. `news` is the client's version of the answer, if it sent one, and its new
        messages. The chain uses the client's version, because the next request will repeat it."""
        chain = self._chained()
        if self.request.tools != request.tools:
            chain.tools = tools_key(request.tools)
        retold = bool(news) and news[0].role is Role.ASSISTANT
        self.unchained = news if retold else (self.answer, *news)
        if self.chars is not None:
            self.held = tokens(self.chars + message_chars(self.unchained[: last_answer(self.unchained)]))
        self.request = request
        self.tickets.prefix = request.call_prefix

    def transcript(self) -> bytes:
        """The fingerprint of all messages of a finished turn, including the newest answer."""
        return self._chained().add((self.answer,)).digest()

    def parked(self, *, own: bool = True) -> Parked:
        """The turn as the plan sees it. `own`: found by its own ticket, not by the results that it was started with."""
        request, waiting = self.request, self.state is SessionState.PARKED
        return Parked(
            sid=self.tickets.sid,
            tickets=frozenset(self.open),
            model=request.model,
            tools=self.tools,
            history=request.messages,
            answer=self.answer,
            before=self.before,
            waiting=waiting,
            given=self.given,
            own=own,
            abandoned=self.state is SessionState.DETACHED,
        )


# ---- A live turn as the dashboard and the commands show it: state, model, caller, times, awaited tools, estimated
# tokens. Created on demand, without text of the conversation.


class TurnView(Struct, frozen=True, gc=False):
    id: str
    state: str
    model: str
    client: str
    key: str
    dialect: str
    conversation: str
    session: str
    """The label of its newest response, as reported to the client: fresh, continued, replayed, resumed."""
    reason: str
    started_at: float
    since: float
    """The time of its last change of state. Both times are unix seconds."""
    responses: int
    tokens: int
    """Estimated tokens of the current response."""
    waiting_for: tuple[str, ...] = ()
    """Names of the tools whose results the turn waits for."""


def turn_view(live: LiveTurn) -> TurnView:
    account, origin = live.account, live.account.origin
    session, reason = account.newest
    return TurnView(
        id=live.tickets.sid,
        state=live.state.value,
        model=live.request.model,
        client=origin.caller.client,
        key=origin.caller.key,
        dialect=origin.dialect,
        conversation=account.conversation,
        session=session,
        reason=reason,
        started_at=account.started_at,
        since=live.since,
        responses=account.responses,
        tokens=live.fold.tokens if live.fold is not None else 0,
        waiting_for=_waiting_for(live) if live.state is SessionState.PARKED else (),
    )


def _waiting_for(live: LiveTurn) -> tuple[str, ...]:
    open_ = set(live.open)
    return tuple([part.name for part in live.answer.parts if isinstance(part, ToolCall) and part.id in open_])
