"""One live turn as the session engine holds it: its tickets, its state, the fingerprint of what was said, the tools its
run was offered, the results it was given last, and what is reported of its run. A record; `plan` and `manager` decide.
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

# ---- Tool call ids that clients see: made up here, mapped to upstream's ids and back, at most 40 characters that every
# API takes (`call_`, `toolu_`). They are looked up, never trusted; two chats that open alike never share a turn.
#
# A ticket is looked up: a turn is not looked for by the text of a prompt, so two chats that open alike never share one,
# and an id that is not known is a foreign one. Only a gateway of a cluster reads who may hold it. Legal in every
# dialect, and nothing that a client would rewrite: at most 40 characters of [A-Za-z0-9_-] that begin as the dialect's
# own ids do.

REPLICA: Final = "0000"
"""Which of several gateways holds the turn, where there is only one."""
_SID_BYTES: Final = 8
_CALL_BYTES: Final = 2
_TICKET: Final = re.compile(r"[a-z]+_([0-9a-f]{4})([0-9a-f]{16})[0-9a-f]{5,}")
_CALLS: Final = (ToolCallStarted, ToolCallDelta, ToolCallReady)


def new_sid() -> str:
    return urandom(_SID_BYTES).hex()


def held_by(ticket: str) -> Held | None:
    """Which gateway of a cluster says that it holds the turn; None: this is not one of our tickets. Only
    a hint: the turn's holder looks it up."""
    found = _TICKET.fullmatch(ticket)
    return Held(found[1], found[2]) if found is not None else None


class Tickets:
    """In: events with upstream's own call ids, results with ours. Out: the same with the other kind of id.

    Upstream's ids may be long or hold odd characters, so they never leave the gateway.
    """

    __slots__ = ("_ours", "_replica", "_theirs", "prefix", "sid")

    def __init__(self, sid: str, prefix: str, replica: str = REPLICA) -> None:
        self.sid = sid
        self._replica = replica
        self.prefix = prefix
        """Of tickets from now on: the next step of a turn may be asked for through another dialect."""
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
    """What is reported of a run: one record when it is over, or one for each total that Cursor reports (a run may end
    at each pause). A total that comes after the gateway has stopped the run makes a second record with the same id."""

    origin: RequestOrigin = FROM_NOWHERE
    conversation: str = ""
    label: str = ""
    reason: str = ""
    newest: tuple[str, str] = ("", "")
    """The same of its newest response, which may have resumed it."""
    upstream: str = ""
    """The conversation's id at Cursor."""
    error: str = ""
    """Of its newest response."""
    responses: int = 0
    recorded: int = 0
    """How many records there are of it: one when it is over, or one for each total that Cursor told."""
    due: bool = True
    """Something of it was not told yet."""
    started_at: float = field(default_factory=time.time)
    charge: RunCharge | None = None
    """What its runs are charged; None: nobody counts."""

    def answers(self, label: str, reason: str) -> None:
        """One more response is read from it."""
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
    """Of all that was said before `unchained`; None: of nothing yet."""
    unchained: tuple[Message, ...] = ()
    answer: Message = NOTHING
    """The newest answer: the one that made the open calls. It is chained as its client tells it, with the results."""
    tools: tuple[ToolSpec, ...] = ()
    """What the run upstream was offered; the newest request may offer more."""
    given: tuple[ToolResult, ...] = ()
    """What it was resumed with last."""
    state: SessionState = SessionState.RUNNING
    open: list[str] = field(default_factory=list)
    """Tickets the client holds and has not answered."""
    issued: list[str] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    account: RunAccount = field(default_factory=RunAccount)
    since: float = field(default_factory=time.time)
    """When it came to its state; unix seconds."""
    fold: Fold | None = None
    """What its response has said so far; None: nobody reads one."""
    cancelled: GatewayError | None = None
    """What its reader gets instead of anything else."""
    chars: int | None = None
    """Of all that is chained; None: another gateway began the chain."""
    held: int | None = None
    """Tokens of the history that the newest request brought again; None: nobody has counted them."""

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
        """Fingerprint of all that was said before the newest answer."""
        return self._chained().said()

    def goes_on(self, request: TurnRequest, news: tuple[Message, ...]) -> None:
        """The client came back. `news` is its own account of our answer, if it gave one, and what it says to that: the
        next request will be recognised by its words, not by ours."""
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
        """Fingerprint of all that was said, the newest answer included. The turn is over."""
        return self._chained().add((self.answer,)).digest()

    def parked(self, *, own: bool = True) -> Parked:
        """As the plan sees it. `own`: it is asked for by a ticket of its own, not by results it was started with."""
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


# ---- A live turn as those who look at the gateway see it: state, model, who asked, since when, which tools it waits
# for, about how many tokens it has said. Made on demand; no words of the conversation are in it.


class TurnView(Struct, frozen=True, gc=False):
    id: str
    state: str
    model: str
    client: str
    key: str
    dialect: str
    conversation: str
    session: str
    """Of its newest response, as the client was told: fresh, continued, replayed, resumed."""
    reason: str
    started_at: float
    since: float
    """When it came to its state. Both in unix seconds."""
    responses: int
    tokens: int
    """Of the response that is being made, estimated."""
    waiting_for: tuple[str, ...] = ()
    """Names of the tools whose results it waits for."""


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
