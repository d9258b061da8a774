"""A turn on the Agent API with its I/O: opens attempts, carries out what the table of `core/recovery.py` decides after
a lost one, runs local jobs, and stays open at the end for blobs.

A socket callback feeds the conversation, sends the answers and notifies the reader of new events. If the reader is slow
and the buffer is full, only this turn's stream is paused (backpressure).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from ...core.errors import ErrorKind, GatewayError
from ...core.event_buffer import EventBuffer
from ...core.recovery import Fact, Loss, Remedy, Step
from ...core.request import Text, ToolResult
from ...core.turn import Snapshot
from ...cursor.transport.faults import fault_from_connect, unheard
from ...cursor.transport.identity import new_id
from ...cursor.transport.ports import RunHandler, RunStream
from ...cursor.wire.envelope import End, ErrorSyntax, read_end
from ...cursor.wire.messages import pb
from ...processes.tasks import spawn
from ..builtin_tools.execs import JobRunner
from .calls import Call
from .compose import Opening
from .conversation import Conversation, Retry, RunPhase
from .models import is_bare
from .run_life import loss_of

# ---- The interfaces that a backend gives to its turn: open attempts, ask for the quota, simplify schemas, report what
# was learned of a model; and the handler that recognises callbacks from an abandoned attempt.

Result = TypeVar("Result")

QuotaCheck = Callable[[GatewayError], Awaitable[GatewayError | None]]
"""Takes a refusal and returns the error for the client if the account's usage is spent; None if it is not, or if this
is unknown."""
Learned = Callable[[int, bool], None]
"""Receives the index of the model name that Cursor understood, and whether the schemas had to be simplified."""
Simplify = Callable[[], Awaitable[Opening | None]]
"""Returns the opening with simpler schemas; None if nothing can be simplified."""


class RunGone(Exception):
    """The run cannot be opened again: only a fresh run with its history can continue."""

    def __init__(self, fault: GatewayError) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Opener(Protocol):
    """Opens the attempts of one run."""

    def open_now(self, handler: RunHandler) -> RunStream | None:
        """Open the first attempt if that needs no waiting; otherwise do nothing and return None."""
        ...

    async def open(self, handler: RunHandler, *, refused: bool, alone: bool) -> RunStream:
        """Open an attempt. `refused`: the previous attempt's credentials were refused. `alone`: on a separate
        connection."""
        ...

    async def move(self, *, sure: bool) -> bool:
        """The last attempt's host may not serve the account (`sure`: it does not). Returns whether the next attempt
        goes to another host."""
        ...


class Attempt:
    """The handler of one attempt. Callbacks from an abandoned attempt are recognised by its number."""

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
    """The answer, or None if the question failed for any reason: the turn continues without an answer."""
    try:
        return await question
    except Exception as failure:  # of any kind: a turn that waits for an answer must not be left waiting
        log.error("%s failed", what, exc_info=failure)
        return None


log = logging.getLogger(__name__)

LINGER_S: Final = 2.0
"""Seconds in which a finished turn may still store blobs before its stream is closed."""

LATE_S: Final = 0.02
"""If a timer fires later than this, this process was busy: messages that arrived meanwhile are read first."""

CUT_KINDS: Final = frozenset({ErrorKind.UPSTREAM_DOWN, ErrorKind.TIMEOUT})
LOOKED_INTO: Final = frozenset({Remedy.ASK_USAGE, Remedy.OTHER_HOST, Remedy.SIMPLER_SCHEMAS})
"""Remedies that begin with a question."""


def _cut_or_final(error: GatewayError) -> Loss:
    return Loss.CUT if error.kind in CUT_KINDS and error.may_repeat else Loss.FINAL


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
        """`quota` is asked before a refusal without a reason is blamed on the model. `simplify` is asked when Cursor
        refused the tools' schemas."""
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
            self._loop.call_soon(self._linger)  # the end of the stream may come in the current read
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
        refused, self._refused = self._refused, False  # a later attempt may use this attempt's new token
        try:
            stream = await self._opener.open(attempt, refused=refused, alone=retry.alone)
        except Exception as failure:  # as in start()
            self._waited_for(attempt.number)
            self._not_opened(failure)
        else:
            self._waited_for(attempt.number)
            self._opened(attempt, stream)

    def _waited_for(self, attempt: int) -> bool:
        """Release the attempt's task, which saves a kilobyte. Returns False if the attempt was abandoned."""
        if attempt != self._attempt or self._closed:
            return False
        self._opening = None
        return True

    def _new_attempt(self) -> Attempt:
        self._attempt += 1
        return Attempt(self._attempt, self.hear, self.stream_closed)

    def _not_opened(self, failure: Exception) -> None:
        if isinstance(failure, RunGone):
            self._lost(Loss.INCOMPLETE, failure.fault)
            return
        if isinstance(failure, GatewayError):
            self._lost(_cut_or_final(failure), failure)
            return
        log.error("opening a run failed", exc_info=failure)
        self._conversation.fail(GatewayError(ErrorKind.INTERNAL, f"Opening the run failed: {type(failure).__name__}."))
        self._after()

    def _opened(self, attempt: Attempt, stream: RunStream) -> None:
        if self._closed or attempt.number != self._attempt:
            stream.close()
            return
        self._stream = stream
        if self._buffer.full:  # the reader has not taken the previous attempt's events yet
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
                self._lost(Loss.SHAPE, None)
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
            self._lost(Loss.FINAL, fault)
            return
        if error is None:
            self._lost(Loss.CUT, None)
            return
        fault = fault_from_connect(error, self._conversation.asked)
        loss = loss_of(error, fault, self._conversation)
        unclear = self._quota is not None and (is_bare(error) or fault.kind is ErrorKind.QUOTA)
        self._lost(loss, fault, Fact.USAGE_OPEN if unclear else None)

    def stream_closed(self, attempt: int, error: GatewayError | None) -> None:
        if attempt == self._attempt:
            self._stream = None
            if self._conversation.ended:
                return
            if error is not None:
                self._lost(Loss.TOKEN if error.kind is ErrorKind.SIGNED_OUT else _cut_or_final(error), error)
            elif self._conversation.watch.unheard:
                self._lost(Loss.UNHEARD, unheard())
            else:
                self._lost(Loss.CUT, None)

    def _lost(self, loss: Loss, fault: GatewayError | None, fact: Fact | None = None) -> None:
        """Give up the attempt and carry out the remedy. `fact`: what is known besides the state of the conversation."""
        if self._stream is not None and loss in (Loss.SILENT, Loss.STALLED):
            self._stream.doubt()
        self._drop_attempt()
        facts = [] if fact is None else [fact]
        if (loss is Loss.TOKEN and not self._renewable) or (loss is Loss.SCHEMA and self._simplify is None):
            facts.append(Fact.NONE_LEFT)
        step = self._conversation.step_after(loss, facts)
        if step is None:
            self._after()
        elif step.remedy in LOOKED_INTO:
            self._opening = spawn(self._look_into(self._attempt, step, loss, fault), f"agent-{loss.label}")
        else:
            self._carry_out(step, loss, fault)

    async def _look_into(self, attempt: int, step: Step, loss: Loss, fault: GatewayError | None) -> None:
        """Ask what the remedy needs to know, and carry the remedy out; without an answer, another remedy is chosen."""
        match step.remedy:
            case Remedy.ASK_USAGE if self._quota is not None and fault is not None:
                spent = await asked(self._quota(fault), "asking for the account's usage")
                if self._waited_for(attempt):
                    self._lost(loss, spent or fault, Fact.SPENT if spent is not None else None)
            case Remedy.OTHER_HOST:
                moved = await asked(self._opener.move(sure=loss is Loss.HOST), "asking for the account's host")
                if self._waited_for(attempt):
                    self._found(step, Loss.HOST if moved else loss, fault, found=bool(moved))
            case Remedy.SIMPLER_SCHEMAS if self._simplify is not None:
                simplify, self._simplify = self._simplify, None  # once
                opening = await asked(simplify(), "simplifying the tools' schemas")
                if self._waited_for(attempt):
                    if opening is not None:
                        self._conversation.simplify(opening)
                    self._found(step, loss, fault, found=opening is not None)

    def _found(self, step: Step, loss: Loss, fault: GatewayError | None, *, found: bool) -> None:
        if found:
            self._carry_out(step, loss, fault)
        else:
            self._lost(loss, fault, Fact.NONE_LEFT)

    def _carry_out(self, step: Step, loss: Loss, fault: GatewayError | None) -> None:
        if step.remedy is Remedy.OTHER_NAME or step.remedy is Remedy.SIMPLER_SCHEMAS:
            self._conversation.rename(new_id())
        elif step.remedy is Remedy.NEW_TOKEN:
            self._refused, self._renewable = True, False
        retry = self._conversation.carry_out(step, loss, fault)
        if retry is not None and not self._closed:
            why = fault and fault.message  # without the hint, which is for the final error
            log.info("a run was lost (%s) and is opened again in %.2f s: %s", loss.label, retry.delay, why)
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

    # ---- after each change

    def _after(self) -> None:
        """Send outgoing messages, start jobs, and notify the reader last, because it may close the turn."""
        conversation, stream = self._conversation, self._stream
        if stream is not None and conversation.outgoing:
            messages, conversation.outgoing = conversation.outgoing, []
            for message in messages:
                stream.send(message)
        if conversation.jobs or conversation.aborted_jobs:
            self._mind_jobs()
        pause_at = conversation.watch.pause_at  # heartbeats only move to later
        if pause_at is not None and pause_at < self._alarm:
            self._arm()
        found = conversation.shape or conversation.simplified or self._simplify is not None
        if self._learn is not None and found and conversation.understood:
            self._has_learned(conversation)
        if conversation.events:
            events, conversation.events = conversation.events, []
            self._buffer.put(events)

    def _has_learned(self, conversation: Conversation) -> None:
        """The model has answered: report what was learned, and drop the remaining remedies."""
        learn, self._learn, self._simplify = self._learn, None, None
        if learn is not None and (conversation.shape or conversation.simplified):
            learn(conversation.shape, conversation.simplified)

    def _hold_back(self) -> None:
        """Pause this turn's stream, because the reader is slow (backpressure)."""
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
            self._alarm = 0.0  # only once: the next tick counts even if it is late
            self._timer = self._loop.call_at(now + LATE_S, self._tick)
            return
        self._timer = None
        given_up = self._conversation.tick(now, reading=not self._buffer.full and self._stream is not None)
        if given_up is not None:
            self._lost(given_up.loss, given_up.error)
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
