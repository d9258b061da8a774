"""The session engine: carries out the plan, parks turns with a timeout and evicts the oldest, replays if a parked turn
is gone, stores finished conversations by account, and ends all turns at shutdown.
Code between two awaits is atomic: a ticket is looked up and claimed without an await in between, so only one of two
racing requests resumes the turn.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from ..core.errors import ErrorKind, GatewayError, gateway_stops
from ..core.events import RunUsage
from ..core.fold import Reply
from ..core.passing import Held
from ..core.records import RequestOrigin, RunRecord
from ..core.recovery import Fact, Loss, Remedy, Situation, holding, remedy
from ..core.request import Message, RunCharges, SessionMode, TurnRequest, ends_with_results, last_answer
from ..core.turn import Backend, Guard, Snapshot, StageFactory
from ..processes.tasks import aside
from ..schemas.check import ArgumentRule
from .lifecycle import Happening, SessionState, first_to_go, patience
from .live import FROM_NOWHERE, REPLICA, LiveTurn, RunAccount, Tickets, TurnView, held_by, new_sid, turn_view
from .plan import Alike, Compare, Continue, Fresh, Parked, Plan, Repeat, Replay, Resume, alike, history_chains, plan
from .response import MAX_ANSWER_BYTES, REPEATER, Drain, Label, Response, repeated_turn
from .second_try import after_refusal, going_on, same_model
from .store import ConversationStore
from .transcript import REASON as COMPACTED
from .transcript import ConversationIds, SessionNames, answer_message, chained, may_continue, new_results

log = logging.getLogger(__name__)


class SessionLimits(Struct, frozen=True):
    mode: SessionMode = SessionMode.AUTO
    parked_timeout: float = 900.0
    max_parked: int = 200
    disconnect_grace: float = 2.0
    max_answer_bytes: int = MAX_ANSWER_BYTES
    arguments: ArgumentRule = "note"
    """The rule for a call whose arguments do not fit its tool's schema."""
    scope: str = ""
    """The owner of the conversations: backend, host, account."""


RunEnded = Callable[[RunRecord], None]
"""Called when a run is over, whether or not its answer was read to the end."""


def _is_anothers(request: TurnRequest, turn: TurnRequest) -> bool:
    """Whether the request begins another conversation with a copy of the turn's: the name differs, and words follow the
    results. A name alone is no proof, because an intermediate program may create one per request."""
    return bool(request.hint and turn.hint and request.hint != turn.hint) and not ends_with_results(request.messages)


def _nobody_counts(_record: RunRecord) -> None:
    pass


class Sessions:
    def __init__(
        self,
        backend: Backend,
        *,
        stages: Sequence[StageFactory],
        limits: SessionLimits,
        store: ConversationStore,
        guard: Guard,
        run_ended: RunEnded = _nobody_counts,
        charges: RunCharges | None = None,
        replica: Callable[[], str] = lambda: REPLICA,
    ) -> None:
        """`replica`: which gateway of a cluster this is."""
        self._replica = replica
        self._guard = guard
        self._charges = charges
        self._run_ended = run_ended
        self._conversations = ConversationIds()
        self._names = SessionNames()
        self._backend = backend
        self._stages = tuple(stages)
        self._limits = limits
        self._store = store
        self._live: dict[str, LiveTurn] = {}
        self._by_ticket: dict[str, LiveTurn] = {}
        self._replaying: dict[tuple[str, str], LiveTurn] = {}  # by owner and call id of the first results
        self._starting: dict[tuple[str, str], Parked] = {}  # the same keys, for turns being started
        self._parked: dict[str, LiveTurn] = {}  # in parking order
        self._closing = False

    @property
    def parked(self) -> int:
        return len(self._parked)

    @property
    def live(self) -> int:
        return len(self._live)

    def turns(self, limit: int | None = None) -> list[TurnView]:
        """Live turns, the oldest first."""
        return [turn_view(live) for live in islice(self._live.values(), limit)]

    def said(self) -> dict[str, int]:
        """Turn id -> estimated tokens of its response, for turns with a response."""
        return {sid: live.fold.tokens for sid, live in self._live.items() if live.fold is not None}

    def cancel(self, sid: str, why: GatewayError) -> bool:
        """End a turn; its reader gets the error `why`. False if there is no such turn."""
        live = self._live.get(sid)
        if live is not None:
            live.cancelled = why
            self._finish(live, Happening.CANCELLED)
        return live is not None

    def forget(self, conversation: str, why: GatewayError) -> int:
        """End the turns of a conversation and return their number. Their records no longer name the conversation."""
        turns = [sid for sid, live in self._live.items() if live.account.conversation == conversation]
        for sid in turns:
            self._live[sid].account.conversation = ""
            self.cancel(sid, why)
        return len(turns)

    def held_elsewhere(self, request: TurnRequest, owner: str = "") -> tuple[Held, ...] | None:
        """The gateways with the turns that wait for this request's results; None if one of the turns is here."""
        tickets = [result.call_id for result in new_results(request)]
        given = [(owner, ticket) for ticket in tickets]
        if not (self._by_ticket.keys().isdisjoint(tickets) and self._replaying.keys().isdisjoint(given)):
            return None
        if not self._starting.keys().isdisjoint(given):
            return None
        return tuple([held for ticket in tickets if (held := held_by(ticket)) is not None])

    async def open(self, request: TurnRequest, origin: RequestOrigin = FROM_NOWHERE, gone: str = "") -> Response:
        """A response for this request; raises GatewayError if the request cannot be served. `gone`: why a turn that is
        not known here cannot be resumed."""
        if request.fallbacks:
            request = going_on(request, self._known(request, origin.owner).values())
        model_request = await self._guarded(request, origin.owner)
        mode = request.session or self._limits.mode
        decision = await self._planned(request, model_request, origin, mode, gone)
        known: Continue | None = None
        conversation = ""
        recoveries: list[tuple[str, str]] = []
        label: Label
        match decision:
            case Resume(sid=sid, reason=reason):
                live = self._live[sid]
                try:
                    await self._resume(live, request, decision)
                except GatewayError as lost:
                    if lost.kind is not ErrorKind.TURN_GONE:
                        raise
                    self._finish(live, Happening.LOST)
                    step = remedy(Situation(Loss.GONE, holding((Fact.FIXED, mode is SessionMode.REQUIRED))))
                    if step.remedy is not Remedy.FRESH_RUN:
                        raise
                    log.info("a parked turn is gone, its history is replayed: %s", lost.message)
                    label, reason, conversation = "replayed", "the parked turn was lost", live.account.conversation
                    recoveries.append((step.remedy.label, Loss.GONE.label))
                else:
                    return self._respond(live, request, model_request, "resumed", reason)
            case Repeat(sid=sid, reason=reason):
                live = self._live[sid]
                again = LiveTurn(repeated_turn(live.answer, live.tickets), live.tickets, request, account=live.account)
                return Response(REPEATER, again, request, "resumed", reason, (), None)
            case Continue(reason=reason):
                known, label, conversation = decision, "continued", decision.snapshot.conversation
            case Replay(reason=reason, instead_of=sid):
                label = "replayed"
                if sid is not None:
                    conversation = self._live[sid].account.conversation
                    self._finish(self._live[sid], Happening.STOPPED)
            case Fresh(reason=reason):
                label, conversation = "fresh", self._conversations.fresh(origin.caller.key, request)
        if known is None and (compacted := self._names.compacted(origin.caller.key, request)) is not None:
            reason, conversation = COMPACTED, compacted
        account = RunAccount(origin, conversation or self._conversations.replayed(origin.caller.key, request))
        fixed = holding((Fact.FIXED, mode is SessionMode.REQUIRED and label != "fresh"))
        while True:
            try:
                live = await self._start(request, model_request, account, known)
                break
            except GatewayError as refusal:
                following = after_refusal(request, refusal, fixed)
                if following is None:
                    raise
                recoveries.append((Remedy.NEXT_MODEL.label, refusal.code or refusal.kind.value))
                request, reason = following
                model_request = same_model(request, model_request)
                known, label = None, "fresh" if label == "fresh" else "replayed"
        response = self._respond(live, request, model_request, label, reason)
        response.recoveries += recoveries
        return response

    async def _planned(
        self, request: TurnRequest, model_request: TurnRequest, origin: RequestOrigin, mode: SessionMode, gone: str
    ) -> Plan:
        chains = await aside(history_chains, model_request) if request.large else None
        compare = await self._compared(request, origin.owner) if request.large else alike
        if not self._store.settled and may_continue(request):
            await self._store.settle()
        if self._store.shared and may_continue(request):
            chains = chains or history_chains(model_request)
            await self._store.bring(self._key(chains.whole.digest(), origin.owner))
        return plan(
            model_request,
            mode=mode,
            abilities=self._backend.abilities,
            parked=self._known(request, origin.owner),
            recall=partial(self._recall, origin.owner),
            chains=chains,
            said=request.messages,
            compare=compare,
            gone=gone,
        )

    async def _guarded(self, request: TurnRequest, owner: str) -> TurnRequest:
        """The request for the model, with a warning if the model loops. Raises GatewayError(TOOL_LOOP), which also ends
        the parked turns that the request would resume."""
        try:
            return await aside(self._guard, request) if request.large else self._guard(request)
        except GatewayError:
            for sid in {parked.sid for parked in self._known(request, owner).values() if parked.waiting}:
                self._finish(self._live[sid], Happening.STOPPED)
            raise

    def _key(self, transcript: bytes, owner: str) -> bytes:
        """The store's key of a transcript. The store outlives a change of backend, host or account, so the key includes
        these and the owner."""
        scope = f"{self._limits.scope}\0{owner}" if owner else self._limits.scope
        return hashlib.sha256(scope.encode() + b"\0" + transcript).digest()

    def _recall(self, owner: str, transcript: bytes) -> Snapshot | None:
        snapshot = self._store.recall(self._key(transcript, owner))
        return snapshot if snapshot is not None and snapshot.backend == self._backend.name else None

    def _known(self, request: TurnRequest, owner: str) -> dict[str, Parked]:
        """The owner's turns for the new results in this request. A sub-agent may begin with a copy of its caller's
        conversation, including results: the caller's turn does not belong to it."""
        known: dict[str, Parked] = {}
        for ticket in [result.call_id for result in new_results(request)]:
            asked, replayed = self._by_ticket.get(ticket), self._replaying.get((owner, ticket))
            if asked is not None and asked.account.origin.owner == owner and not _is_anothers(request, asked.request):
                known[ticket] = asked.parked(own=True)
            elif replayed is not None and not _is_anothers(request, replayed.request):
                known[ticket] = replayed.parked(own=False)
            elif (owner, ticket) in self._starting:
                known[ticket] = self._starting[owner, ticket]
        return known

    async def _compared(self, request: TurnRequest, owner: str) -> Compare:
        """`alike`, computed in advance for the turns that this large request may repeat. A turn that resumes meanwhile
        is compared again."""
        done: list[tuple[tuple[Message, ...], Alike]] = []
        for parked in self._known(request, owner).values():
            if not any(history is parked.history for history, _ in done):
                done.append((parked.history, await aside(alike, request.messages, parked.history)))

        def compare(said: tuple[Message, ...], history: tuple[Message, ...]) -> Alike:
            known = [found for one, found in done if one is history and said is request.messages]
            return known[0] if known else alike(said, history)

        return compare

    async def _start(
        self, request: TurnRequest, model_request: TurnRequest, account: RunAccount, known: Continue | None = None
    ) -> LiveTurn:
        if self._closing:
            raise gateway_stops()
        if self._charges is not None:
            account.charge = self._charges.charge(account.origin.caller.key, account.conversation)
            if account.charge is not None:
                model_request = replace(model_request, charge=account.charge)
        given = new_results(model_request)
        owner = account.origin.owner
        for result in given:  # a client may repeat this request immediately
            self._starting[owner, result.call_id] = Parked.starting(request, given)
        try:
            live = await self._started(request, model_request, account, known)
        finally:
            for result in given:
                self._starting.pop((owner, result.call_id), None)
        self._live[live.tickets.sid] = live
        live.given = given
        for result in given:
            self._replaying[owner, result.call_id] = live
        return live

    async def _started(
        self, request: TurnRequest, model_request: TurnRequest, account: RunAccount, known: Continue | None
    ) -> LiveTurn:
        chain, unchained, snapshot = None, request.messages, None
        if known is not None:
            chain, snapshot = known.chain, known.snapshot
            unchained = request.messages[last_answer(request.messages) :]
        if request.large:  # now, not after the answer
            chain = await aside(chained, chain, request.tools, unchained)
            unchained = ()
        turn = await self._backend.start(model_request, snapshot)
        tickets = Tickets(new_sid(), request.call_prefix, self._replica())
        return LiveTurn(turn, tickets, request, chain, unchained, account=account)

    def _forget_given(self, live: LiveTurn) -> None:
        for result in live.given:
            given = live.account.origin.owner, result.call_id
            if self._replaying.get(given) is live:
                del self._replaying[given]

    async def _resume(self, live: LiveTurn, request: TurnRequest, decision: Resume) -> None:
        live.happened(Happening.RESULTS)  # claimed: a second request for this ticket finds the turn running
        self._parked.pop(live.tickets.sid, None)
        live.open.clear()
        self._forget_given(live)
        live.given = decision.results
        live.goes_on(request, request.messages[decision.known :])
        demanded = request.tool_choice.name if request.tool_choice.mode == "named" else ""
        results = [live.tickets.inward(result) for result in decision.results]
        await live.turn.submit(results, decision.extra, demanded)

    def _respond(
        self, live: LiveTurn, request: TurnRequest, model_request: TurnRequest, label: Label, reason: str
    ) -> Response:
        account = live.account
        account.answers(label, reason)
        self._names.remember(account.origin.caller.key, request, account.conversation)
        if account.charge is not None:
            request = replace(request, charge=account.charge)

        required = (request.session or self._limits.mode) is SessionMode.REQUIRED and label != "fresh"
        return Response(
            self,
            live,
            request,
            label,
            reason,
            self._stages,
            None if required else partial(self._again, account, model_request),
            max_bytes=self._limits.max_answer_bytes,
            arguments=self._limits.arguments,
        )

    async def _again(self, account: RunAccount, form: TurnRequest, reopened: int, request: TurnRequest) -> LiveTurn:
        """A fresh run for the whole request, in the `form` for the model. `reopened`: how many were opened for it."""
        form = replace(same_model(request, form), reopened=reopened)
        return await self._start(request, form, RunAccount(account.origin, account.conversation))

    # ---- callbacks of a response

    def issue(self, live: LiveTurn, ticket: str) -> None:
        live.open.append(ticket)
        live.issued.append(ticket)
        self._by_ticket[ticket] = live

    def settle(self, live: LiveTurn, happening: Happening, reply: Reply) -> None:
        live.fold = None
        if reply.error is not None:
            live.account.error = reply.error.code or reply.error.kind.value
        if live.account.charge is not None:
            live.account.charge.response_ended(live.request.choice.exactly or live.request.model, reply.usage)
        if reply.usage is not None and reply.usage.run is not None:
            self._tell(live, happening.name.lower(), reply.usage.run)
        if live.state is SessionState.OVER:
            return  # the gateway has stopped the turn meanwhile
        live.answer = answer_message(reply)
        if happening is Happening.PAUSED:
            self._park(live)
            return
        if happening is Happening.ENDED and (snapshot := live.turn.snapshot()) is not None:
            snapshot = snapshot.of(live.account.conversation)
            self._store.remember(self._key(live.transcript(), live.account.origin.owner), snapshot)
        self._finish(live, happening)

    def let_go(self, response: Response) -> None:
        live = response.live
        response.give_up()
        if live.state is SessionState.RUNNING:
            live.happened(Happening.HUNG_UP)
            Drain(response, self._limits.disconnect_grace, self._give_up)

    def _give_up(self, response: Response) -> None:
        response.give_up()
        live = response.live  # not the old turn if the response was restarted
        if live.state is SessionState.RUNNING:
            live.happened(Happening.HUNG_UP)
        if live.state is SessionState.DETACHED:
            self._finish(live, Happening.EXPIRED)

    # ---- parked turns

    def _park(self, live: LiveTurn) -> None:
        live.happened(Happening.PAUSED)
        live.before()  # computed now, while no client waits
        sid = live.tickets.sid
        self._parked[sid] = live
        loop = asyncio.get_running_loop()
        wait = patience(live.request, self._limits.parked_timeout)
        live.timer = loop.call_later(wait, self._finish, live, Happening.EXPIRED)
        while len(self._parked) > self._limits.max_parked:
            log.info("more than %d turns are parked: one is let go", self._limits.max_parked)
            self._finish(first_to_go(self._parked.values()), Happening.EVICTED)

    def _tell(self, live: LiveTurn, outcome: str, usage: RunUsage | None = None) -> None:
        backend = self._backend.name
        self._run_ended(live.account.record(live.tickets.sid, backend, live.request, outcome, usage))

    def _finish(self, live: LiveTurn, happening: Happening) -> None:
        if live.account.due:
            detached = live.state is SessionState.DETACHED and happening is Happening.EXPIRED
            self._tell(live, "hung_up" if detached else happening.name.lower())
        live.happened(happening)
        sid = live.tickets.sid
        self._live.pop(sid, None)
        self._parked.pop(sid, None)
        for ticket in live.issued:
            self._by_ticket.pop(ticket, None)
        self._forget_given(live)
        live.turn.close()

    async def aclose(self) -> None:
        self._closing = True
        turns = list(self._live.values())
        for live in turns:
            self._finish(live, Happening.SHUTDOWN)
        await asyncio.gather(*(live.turn.aclose() for live in turns))
