"""A turn on the Agent API with its I/O: opens attempts, renews a refused token once, asks for quota or another
host, tries simpler schemas, runs local jobs, lingers for blobs at the end; a slow reader's stream waits (backpressure).

Socket callbacks feed the conversation directly; in that same callback answers leave and the reader is told that there
are events. When it does not take them and the buffer is full, only this turn's stream is held back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from ...core.errors import ErrorKind, GatewayError
from ...core.event_buffer import EventBuffer
from ...core.recovery import Cause
from ...core.request import Text, ToolResult
from ...core.turn import Snapshot
from ...cursor.transport.faults import fault_from_connect, retryable, unheard
from ...cursor.transport.identity import new_id
from ...cursor.transport.ports import RunHandler, RunStream
from ...cursor.transport.refusals import TEAM_REGION
from ...cursor.wire.envelope import End, ErrorSyntax, read_end
from ...cursor.wire.messages import pb
from ...processes.tasks import spawn
from ..builtin_tools.execs import JobRunner
from .calls import Call
from .compose import Opening
from .conversation import Conversation, Retry, RunPhase
from .models import is_bare
from .run_life import cause_of

# ---- The interfaces that a backend gives to its turn: opening attempts, asking for the quota, simpler schemas, and
# telling what was learned of a model; and the handler that tells late news of an old attempt apart.

Result = TypeVar("Result")

QuotaCheck = Callable[[GatewayError], Awaitable[GatewayError | None]]
"""What to tell the client instead of this refusal when the account's usage is spent; None when it is not, or nobody
knows."""
Learned = Callable[[int, bool], None]
"""Is told which way to ask for the model was understood, and whether the schemas had to be simplified."""
Simplify = Callable[[], Awaitable[Opening | None]]
"""The opening with simpler schemas; None when there is nothing to simplify."""


class RunGone(Exception):
    """The run cannot be opened again: only its history can be told to a fresh one."""

    def __init__(self, fault: GatewayError) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Opener(Protocol):
    """Opens the attempts of one run."""

    def open_now(self, handler: RunHandler) -> RunStream | None:
        """The first attempt, when nothing has to be waited for; None: nothing was done."""
        ...

    async def open(self, handler: RunHandler, *, refused: bool, alone: bool) -> RunStream:
        """`refused`: the credentials of the attempt before were. `alone`: on a connection of its own."""
        ...

    async def move(self, *, sure: bool) -> bool:
        """The host of the last attempt may not serve the account (`sure`: it does not). Whether the next one goes to
        another."""
        ...


class Attempt:
    """The handler of one attempt: late news of an attempt that was given up are recognised by its number."""

    __slots__ = ("number", "on_closed", "on_messages")

    def __init__(
        self,
        number: int,
        hear: Callable[[int, list[bytes]], None],
        closed: Callable[[int, GatewayError | None], None],
    ) -> None:
        self.number = number
        self.on_messages = partial(hear, number)
        self.on_closed = partial(closed, number)


async def asked(question: Awaitable[Result], what: str) -> Result | None:
    """The answer; None when asking failed. Whatever it was, the turn goes on as if nobody knew."""
    try:
        return await question
    except Exception as failure:  # of any kind: a turn that waits for an answer must not be left waiting
        log.error("%s failed", what, exc_info=failure)
        return None


log = logging.getLogger(__name__)

LINGER_S: Final = 2.0
"""How long a finished turn may go on storing blobs before its stream is closed."""

LATE_S: Final = 0.02
"""An alarm that rings this much too late was held up by this process: what upstream said meanwhile is read first."""

RETRYABLE_KINDS: Final = frozenset({ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT})


class AgentTurn:
    __slots__ = (
        "_alarm",
        "_attempt",
        "_backend",
        "_buffer",
        "_closed",
        "_conversation",
        "_jobs",
        "_learn",
        "_loop",
        "_opener",
        "_opening",
        "_quota",
        "_refused",
        "_renewable",
        "_running",
        "_simplify",
        "_stream",
        "_timer",
        "listen",
        "take",
    )

    def __init__(
        self,
        backend: str,
        conversation: Conversation,
        opener: Opener,
        *,
        renewable: bool,
        buffer_bytes: int,
        jobs: JobRunner | None = None,
        learn: Learned | None = None,
        quota: QuotaCheck | None = None,
        simplify: Simplify | None = None,
    ) -> None:
        """`quota` is asked before a refusal without a reason is taken for a matter of the model. `simplify` is asked
        when the tools' schemas were refused."""
        self._backend = backend
        self._conversation = conversation
        self._opener = opener
        self._jobs = jobs
        self._learn = learn
        self._quota = quota
        self._simplify = simplify
        self._buffer = EventBuffer(buffer_bytes, self._hold_back, self._go_on)
        self.listen, self.take = self._buffer.listen, self._buffer.take
        self._loop = asyncio.get_running_loop()
        self._stream: RunStream | None = None
        self._attempt = 0
        self._alarm = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._running: dict[Call, asyncio.Task[None]] = {}
        self._renewable = renewable
        self._refused = False
        self._closed = False

    # ---- the reader's side

    def start(self) -> None:
        self._conversation.open(self._loop.time())
        self._begin_response()
        attempt = self._new_attempt()
        try:
            stream = self._opener.open_now(attempt)
        except Exception as failure:  # anything but a GatewayError is a bug in the gateway, and ends this turn only
            self._not_opened(failure)
            return
        if stream is not None:
            self._opened(attempt, stream)
        else:
            self._opening = spawn(self._open_attempt(Retry(0.0, alone=False)), "agent-attempt")

    async def submit(self, results: Sequence[ToolResult], extra: Sequence[Text] = (), demanded: str = "") -> None:
        if self._closed:
            raise GatewayError(ErrorKind.TURN_GONE, "The gateway is stopping.")
        self._conversation.submit(results, extra, self._loop.time(), demanded)
        self._begin_response()
        self._after()

    def _begin_response(self) -> None:
        events, self._conversation.events = self._conversation.events, []
        self._buffer.begin(events)

    def snapshot(self) -> Snapshot | None:
        return self._conversation.snapshot(self._backend)

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._opening is not None:
            self._opening.cancel()
        for job in self._running.values():
            job.cancel()
        self._buffer.close()
        if self._stream is not None and self._conversation.ended:
            self._loop.call_soon(self._linger)  # soon: the end of the stream may come in this very read
        elif self._stream is not None:
            self._stream.close()

    def _linger(self) -> None:
        if self._stream is not None:
            self._loop.call_later(LINGER_S, self._stream.close)

    # ---- attempts

    async def _open_attempt(self, retry: Retry) -> None:
        if retry.delay:
            await asyncio.sleep(retry.delay)
        attempt = self._new_attempt()
        refused, self._refused = self._refused, False  # a later attempt may use what this one gets
        try:
            stream = await self._opener.open(attempt, refused=refused, alone=retry.alone)
        except Exception as failure:  # as in start()
            self._waited_for(attempt.number)
            self._not_opened(failure)
        else:
            self._waited_for(attempt.number)
            self._opened(attempt, stream)

    def _waited_for(self, attempt: int) -> bool:
        """The attempt's task is as good as done; forgotten, it spares a kilobyte. False: nobody waits for it now."""
        if attempt != self._attempt or self._closed:
            return False
        self._opening = None
        return True

    def _new_attempt(self) -> Attempt:
        self._attempt += 1
        return Attempt(self._attempt, self.hear, self.stream_closed)

    def _not_opened(self, failure: Exception) -> None:
        if isinstance(failure, RunGone):
            self._lost(Cause.INCOMPLETE, failure.fault, True)
            return
        if isinstance(failure, GatewayError):
            self._lost(Cause.CUT, failure, failure.kind in RETRYABLE_KINDS and failure.may_repeat)
            return
        log.error("opening a run failed", exc_info=failure)
        self._conversation.fail(GatewayError(ErrorKind.INTERNAL, f"Opening the run failed: {type(failure).__name__}."))
        self._after()

    def _opened(self, attempt: Attempt, stream: RunStream) -> None:
        if self._closed or attempt.number != self._attempt:
            stream.close()
            return
        self._stream = stream
        if self._buffer.full:  # what the attempt before brought was not taken yet
            stream.pause()
        messages, self._conversation.outgoing = self._conversation.outgoing, []
        for message in messages:
            stream.send(message)
        self._arm()

    def hear(self, attempt: int, messages: list[bytes]) -> None:
        if attempt != self._attempt:
            return
        conversation, last = self._conversation, messages[-1]
        ends = type(last) is End
        if ends:
            messages.pop()
        if conversation.feed(messages, self._loop.time()):
            if conversation.empty_turn:
                self._refused_run(Cause.SHAPE, None)
                return
            self._after()
        elif conversation.events:
            events, conversation.events = conversation.events, []
            self._buffer.put(events)
        if ends and not conversation.ended:
            self._end_of_stream(last)

    def _end_of_stream(self, payload: bytes) -> None:
        try:
            error = read_end(payload)
        except ErrorSyntax as broken:
            fault = GatewayError(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor's stream ended strangely: {broken}")
            self._lost(Cause.CUT, fault, False)
            return
        if error is None:
            self._lost(Cause.CUT, None, True)
            return
        fault = fault_from_connect(error, self._conversation.asked)
        cause = cause_of(error, fault, self._conversation, simplifiable=self._simplify is not None)
        if self._once_more(fault):
            self._lost(Cause.TOKEN, fault, True)
        elif fault.code == TEAM_REGION and not self._conversation.visible:
            self._look_elsewhere(Cause.REFUSED, fault, again=False)
        elif self._quota is not None and (is_bare(error) or fault.kind is ErrorKind.QUOTA):
            self._drop_attempt()
            self._opening = spawn(self._ask_quota(self._attempt, cause, fault, self._quota), "agent-quota")
        elif cause is Cause.SCHEMA and self._simplify is not None:
            simplify, self._simplify = self._simplify, None  # once
            self._drop_attempt()
            self._opening = spawn(self._send_simpler(self._attempt, fault, simplify), "agent-simplify")
        else:
            self._refused_run(cause, fault, again=retryable(error))

    async def _ask_quota(self, attempt: int, cause: Cause, fault: GatewayError, quota: QuotaCheck) -> None:
        """What may help is tried, unless the refusal was about the quota."""
        spent = await asked(quota(fault), "asking for the account's usage")
        if self._waited_for(attempt):
            if spent is None:
                self._refused_run(cause, fault)
            else:
                self._lost(Cause.REFUSED, spent, False)

    async def _send_simpler(self, attempt: int, fault: GatewayError, simplify: Simplify) -> None:
        opening = await asked(simplify(), "simplifying the tools' schemas")
        if self._waited_for(attempt):
            if opening is not None:
                self._conversation.simplify(opening)
            self._refused_run(Cause.REFUSED if opening is None else Cause.SCHEMA, fault)

    def _refused_run(self, cause: Cause, fault: GatewayError | None, *, again: bool = False) -> None:
        """`again`: a run that is refused as it was is worth another try."""
        if cause is Cause.SHAPE or cause is Cause.SCHEMA:
            self._conversation.rename(new_id())
        self._lost(cause, fault, again or cause is not Cause.REFUSED)

    def _look_elsewhere(self, cause: Cause, fault: GatewayError, *, again: bool) -> None:
        """The host may be the wrong one for this account: Cursor is asked for another."""
        self._drop_attempt()
        self._opening = spawn(self._ask_host(self._attempt, cause, fault, again), "agent-host")

    async def _ask_host(self, attempt: int, cause: Cause, fault: GatewayError, again: bool) -> None:
        moved = bool(await asked(self._opener.move(sure=cause is Cause.REFUSED), "asking for the account's host"))
        if self._waited_for(attempt):
            self._lost(Cause.HOST if moved else cause, fault, again or moved)

    def _once_more(self, fault: GatewayError) -> bool:
        """The token may have expired early: once more with a new one, while nothing was shown."""
        if fault.kind is not ErrorKind.SIGNED_OUT or not self._renewable or self._conversation.visible:
            return False
        self._refused, self._renewable = True, False
        return True

    def stream_closed(self, attempt: int, error: GatewayError | None) -> None:
        if attempt == self._attempt:
            self._stream = None
            if self._conversation.ended:
                return
            if error is not None and self._once_more(error):
                self._lost(Cause.TOKEN, error, True)
            elif error is None and self._conversation.watch.unheard:
                self._look_elsewhere(Cause.UNHEARD, unheard(), again=True)
            else:
                self._lost(Cause.CUT, error, error is None or error.kind in RETRYABLE_KINDS)

    def _lost(self, cause: Cause, fault: GatewayError | None, again: bool) -> None:
        if self._stream is not None and cause in (Cause.SILENT, Cause.STALLED):
            self._stream.doubt()
        self._drop_attempt()
        retry = self._conversation.lost(cause, fault, retryable=again)
        if retry is not None and not self._closed:
            why = fault and fault.message  # without what to type: that is for the error when nothing helped
            log.info("a run was lost (%s) and is opened again in %.2f s: %s", cause.value, retry.delay, why)
            self._conversation.outgoing.clear()
            self._conversation.open(self._loop.time())
            self._opening = spawn(self._open_attempt(retry), "agent-attempt")
        self._after()

    def _drop_attempt(self) -> None:
        """Give up the lost attempt; its callbacks are ignored from now on."""
        self._attempt += 1
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # ---- after anything happened

    def _after(self) -> None:
        """Send what is to be sent, start what is to be run, and tell the reader last: it may close the turn."""
        conversation, stream = self._conversation, self._stream
        if stream is not None and conversation.outgoing:
            messages, conversation.outgoing = conversation.outgoing, []
            for message in messages:
                stream.send(message)
        if conversation.jobs or conversation.aborted_jobs:
            self._mind_jobs()
        if conversation.watch.due() < self._alarm:
            self._arm()
        found = conversation.shape or conversation.simplified or self._simplify is not None
        if self._learn is not None and found and conversation.understood:
            self._has_learned(conversation)
        if conversation.events:
            events, conversation.events = conversation.events, []
            self._buffer.put(events)

    def _has_learned(self, conversation: Conversation) -> None:
        """The model has answered: what was found out is remembered, and what would be tried next let go."""
        learn, self._learn, self._simplify = self._learn, None, None
        if learn is not None and (conversation.shape or conversation.simplified):
            learn(conversation.shape, conversation.simplified)

    def _hold_back(self) -> None:
        """Backpressure: the reader is slow, and so is this turn's stream from now on."""
        if self._stream is not None:
            self._stream.pause()

    def _go_on(self) -> None:
        if self._stream is not None:
            self._stream.resume()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._closed or self._conversation.phase not in (RunPhase.RUNNING, RunPhase.PAUSED):
            self._alarm = 0.0
            return
        self._alarm = self._conversation.watch.due()
        self._timer = self._loop.call_at(self._alarm, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._alarm and now - self._alarm > LATE_S:
            self._alarm = 0.0  # once: the next ring counts, whenever it comes
            self._timer = self._loop.call_at(now + LATE_S, self._tick)
            return
        self._timer = None
        given_up = self._conversation.tick(now, reading=not self._buffer.full and self._stream is not None)
        if given_up is not None:
            self._lost(given_up.cause, given_up.error, True)
        self._after()
        self._arm()

    def _mind_jobs(self) -> None:
        conversation = self._conversation
        jobs, conversation.jobs = conversation.jobs, ()
        aborted, conversation.aborted_jobs = conversation.aborted_jobs, ()
        for call in aborted:
            if (job := self._running.pop(call, None)) is not None:
                job.cancel()
        for call, exec_ in jobs:
            self._running[call] = spawn(self._run_job(call, exec_), "agent-job")

    async def _run_job(self, call: Call, exec_: pb.ExecServerMessage) -> None:
        assert self._jobs is not None
        messages = await self._jobs.run(exec_)
        self._running.pop(call, None)
        self._conversation.finish_job(call, messages, self._loop.time())
        self._after()
