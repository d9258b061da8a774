"""The attempts of one run, sans I/O: retry budget (renewed by progress), backoff (first retry at once, then 0.25 s,
doubling), what follows a lost attempt; heartbeats; the pause after a step of calls.

`conversation.py` handles the messages. The state is the last checkpoint, the text since then, the calls, and the number
of retries. `core.recovery` chooses the remedy.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    Event,
    Recovered,
    ToolCallReady,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    UsageReported,
)
from ...core.named_tool import NamedTool
from ...core.recovery import Fact, Loss, Remedy, Situation, Step, holding, remedy
from ...core.request import TurnRequest, ends_with_results
from ...cursor.transport.faults import BLOB_NOT_FOUND, retryable
from ...cursor.transport.refusals import SCHEMA_REFUSED, TEAM_REGION, AskedRun, may_be_conversation
from ...cursor.wire.embedding import embed_deep, tag
from ...cursor.wire.envelope import ConnectError
from ...cursor.wire.messages import pb
from ..builtin_tools import execs
from .calls import Call, CallTable
from .compose import Opening
from .lost_run import Echo, held_results
from .models import may_be_shape
from .tally import AgentTally
from .turn_clock import ConversationLimits, GivenUp, StepPace, Watch, step_ends_at
from .wire_calls import EMPTY_TOOLS

# ---- Answers Cursor's requests for blobs (KV requests): a missing blob ends the run (TURN_GONE) instead of an empty
# answer, and the bytes that Cursor may store in one turn are limited. Sans I/O.
#
# The store keeps this turn's blobs and the size of the blobs that Cursor stored, including ids; blobs of earlier turns
# are fetched.

PIECE_BYTES: Final = 200
"""The memory overhead of a blob, in addition to its data and its id."""
LARGE_BYTES: Final = 64 * 1024
"""Above this size joining the bytes is faster than the encoder, which copies the data several times."""
_KV: Final = tag(pb.AgentClientMessage, "kv_client_message")
_GOT: Final = tag(pb.KvClientMessage, "get_blob_result")
_DATA: Final = tag(pb.GetBlobResult, "blob_data")


class BlobStore:
    __slots__ = ("_bytes", "_limit", "fetch", "news", "own")

    def __init__(self, own: dict[bytes, bytes], fetch: Callable[[bytes], bytes | None], limit: int) -> None:
        """`own`: the blobs of the turn's opening. `limit`: the bytes that Cursor may add."""
        self.own = own
        self.fetch = fetch
        self._bytes = 0
        self._limit = limit
        self.news = 0
        """The number of requests that show work: all except storing a blob that is already here."""

    def answer(self, kv: pb.KvServerMessage) -> bytes | None:
        """The answer to a KV request; None if its type is unknown. Raises GatewayError if the turn cannot continue."""
        match kv.WhichOneof("message"):
            case "get_blob_args":
                self.news += 1
                reply = pb.KvClientMessage(id=kv.id)
                key = kv.get_blob_args.blob_id
                data = self.own.get(key)
                if data is None:
                    data = self.fetch(key)
                if data is None:
                    # Never an empty answer: the model would continue with a gap in its history.
                    raise GatewayError(ErrorKind.TURN_GONE, "Cursor asked for a part of the conversation that is gone.")
                if len(data) > LARGE_BYTES:
                    return embed_deep(((b"", _KV), (reply.SerializeToString(), _GOT), (b"", _DATA)), data)
                reply.get_blob_result.blob_data = data
                return pb.AgentClientMessage(kv_client_message=reply).SerializeToString()
            case "set_blob_args":
                key, data = kv.set_blob_args.blob_id, kv.set_blob_args.blob_data
                before = self.own.get(key)
                self._bytes += len(data) + (PIECE_BYTES + len(key) if before is None else -len(before))
                if self._bytes > self._limit:
                    raise self._too_much()
                if before != data:
                    self.news += 1
                self.own[key] = data
                return _stored(kv.id)
            case _:
                return None

    def _too_much(self) -> GatewayError:
        return GatewayError(
            ErrorKind.UPSTREAM_PROTOCOL,
            f"Cursor stores more than {self._limit >> 20} MiB in one turn of this conversation.",
            hint="Start a new conversation.",
        )


@lru_cache(maxsize=1024)
def _stored(kv_id: int) -> bytes:
    """The answer to a request that stores a blob. The ids begin anew in every run."""
    reply = pb.KvClientMessage(id=kv_id)
    reply.set_blob_result.SetInParent()
    return pb.AgentClientMessage(kv_client_message=reply).SerializeToString()


_HEARTBEAT: Final = pb.AgentClientMessage(client_heartbeat=pb.ClientHeartbeat()).SerializeToString()
_BACKOFF_S: Final = 0.25


class RunPhase(Enum):
    NEW = "not opened"
    RUNNING = "running"
    PAUSED = "waiting for tool results"
    LOST = "lost while it waited"
    OVER = "over"


class Retry(Struct, frozen=True):
    """How to open the next attempt."""

    delay: float
    alone: bool
    """Use a separate connection, because the last one broke."""


class RunLife:
    __slots__ = (
        "_attempts",
        "_blobs",
        "_calls",
        "_checkpoint",
        "_echo",
        "_ended",
        "_heard",
        "_known_there",
        "_limits",
        "_longest_silence",
        "_lost_by",
        "_moved",
        "_named",
        "_opening",
        "_pace",
        "_reopened",
        "_results_given",
        "_silence",
        "_spoke",
        "_tally",
        "_unconfirmed",
        "_waited",
        "_withheld",
        "_worked_here",
        "aborted_jobs",
        "empty_turn",
        "events",
        "jobs",
        "outgoing",
        "phase",
        "shape",
        "simplified",
        "visible",
        "watch",
    )

    def __init__(
        self,
        opening: Opening,
        request: TurnRequest,
        limits: ConversationLimits,
        fetch_blob: Callable[[bytes], bytes | None],
        pace: StepPace | None,
    ) -> None:
        self.phase = RunPhase.NEW
        self.outgoing: list[bytes] = []
        self.events: list[Event] = []
        self.jobs: Sequence[tuple[Call, pb.ExecServerMessage]] = ()
        """Calls for the gateway to run. The caller takes them and leaves `()`."""
        self.aborted_jobs: Sequence[Call] = ()
        """Calls whose jobs the caller cancels; it leaves `()`."""
        self.visible = False
        """The client has seen something of this response."""
        self._opening = opening
        self._limits = limits
        self._pace = pace or StepPace(limits.sibling_quiet, limits.sibling_cap)
        self._blobs = BlobStore(opening.blobs, fetch_blob, limits.max_blob_bytes)
        self._checkpoint: bytes | None = None
        self._attempts = 0
        self._reopened = request.reopened
        self._waited = self._moved = self._worked_here = False
        self._results_given = ends_with_results(request.messages)
        self._spoke = False  # the model produced output after this attempt's newest results
        self._unconfirmed = False  # results were sent, and upstream has not continued yet
        self._silence = 0.0  # the longest silence before a delta since the newest call or the pause
        self._longest_silence = 0.0  # the longest silence before a sibling of this step
        self._ended = False
        self.shape = 0
        """The index in the opening's `models`: the current way to name the model."""
        self.simplified = False
        """The tools' schemas are simpler than the rules of the model's family require."""
        self._lost_by: Loss | None = None  # the cause that ended the previous attempt
        self._known_there = False  # this attempt continues a conversation that Cursor has
        self._heard = False  # the model was heard before this response, or through a tool that ran here
        self.empty_turn = False
        """The turn ended without output and without counted tokens, and there is another way to name the model."""
        self._echo = Echo()
        self._calls = CallTable(parallel=request.tool_choice.parallel)
        self._named = NamedTool(request.tool_choice.name)
        self._withheld: list[bytes] = []  # rejections that are sent only if the demanded call comes in the same step
        self._tally = AgentTally(opening.context_tokens)
        self.watch = Watch(limits)

    def open(self, now: float) -> None:
        """Begin an attempt with its first message, which opens the run or resumes it from the last checkpoint."""
        if self.phase is RunPhase.NEW:
            opening = self._opening
            started = TurnStarted(opening.context_tokens, opening.adapted, opening.pictures, opening.conversation_id)
            self.events.append(started)
        self.phase = RunPhase.RUNNING
        self._attempts += 1
        self._spoke = self._unconfirmed = False
        self._silence = self._longest_silence = 0.0
        if self._attempts > 1:
            self._tally.reopened()
        self._known_there = not self._opening.fresh or self._checkpoint is not None
        self.watch.opened(now, again=self._attempts > 1)
        self.outgoing.append(self._opening.run_request(self._checkpoint, self.shape))

    @property
    def ended(self) -> bool:
        """Whether Cursor ended the turn properly."""
        return self.phase is RunPhase.OVER and self._ended

    @property
    def reshapable(self) -> bool:
        """Whether the model sent nothing in this turn and there is another way to name the model."""
        return self.unheard and self.shape + 1 < len(self._opening.models)

    @property
    def unheard(self) -> bool:
        """Whether the model sent nothing in this turn."""
        return self._quiet and not self._heard

    @property
    def may_be_stale(self) -> bool:
        """Whether this attempt continues a conversation that Cursor has, without any output of the model yet."""
        return self._known_there and self._quiet

    @property
    def _quiet(self) -> bool:
        return not (self.visible or self._spoke or self._calls.step)

    def rename(self, conversation_id: str) -> None:
        """Continue under a new conversation id, because a refused one may stay refused."""
        self._opening = self._opening.renamed(conversation_id)

    def simplify(self, opening: Opening) -> None:
        """Use simpler schemas when the run is opened again."""
        self._opening = opening
        self.simplified = True

    @property
    def understood(self) -> bool:
        """Whether the model has answered, which proves that Cursor understood the request."""
        return self.visible or self.phase is RunPhase.PAUSED

    @property
    def asked(self) -> AskedRun:
        """The properties of this attempt that can explain a refusal."""
        return AskedRun(
            self._opening.model,
            tools=len(self._opening.tools) > EMPTY_TOOLS,
            history=bool(self._opening.blobs or self._opening.history),
            continued=self._known_there,
            heard=not self.unheard,
            fills_window=self._tally.fills_window,
        )

    def lost(self, loss: Loss, fault: GatewayError | None, facts: Iterable[Fact] = ()) -> Retry | None:
        """The attempt ended before the turn. Returns the next attempt, or None if the turn is over or handed over."""
        step = self.step_after(loss, facts)
        return None if step is None else self.carry_out(step, loss, fault)

    def step_after(self, loss: Loss, facts: Iterable[Fact] = ()) -> Step | None:
        """What is done after the attempt ended, with the `facts` that the caller knows; None if the turn has no attempt
        to lose: the client's results will be replayed into a new run, or the turn is over."""
        if self.phase is RunPhase.PAUSED:
            self.phase = RunPhase.LOST
        if self.phase is not RunPhase.RUNNING:
            return None
        here = holding(
            (Fact.SEEN, self.visible),
            (Fact.CALLS, bool(self._calls.step)),
            (Fact.HALF_CALL, self._calls.writing > 0),
            (Fact.RESULTS, self._results_given),
            (Fact.WORKED, self._worked_here),
            (Fact.UNRECORDED, not self._echo.replayable),
            (Fact.WAITED, self._waited),
            (Fact.EMPTY_BEFORE, self._lost_by is Loss.UNHEARD),
        )
        return remedy(Situation(loss, here.union(facts), self._reopened, self._limits.retries))

    def carry_out(self, step: Step, loss: Loss, fault: GatewayError | None) -> Retry | None:
        """Carry the remedy out. Returns the next attempt of the same run, if that is the remedy."""
        if fault is None:
            fault = GatewayError(ErrorKind.UPSTREAM_DOWN, "Cursor ended the stream before the answer was complete.")
        self._lost_by = loss
        match step.remedy:
            case Remedy.GIVE_UP:
                self.fail(replace(fault, message=step.message(fault.message)))
            case Remedy.HAND_OVER:
                self._recovered(step.remedy, loss)
                self._pause()
                self.phase = RunPhase.LOST
            case Remedy.FRESH_RUN:
                self._reopened += 1
                self._recovered(step.remedy, loss)
                self.fail(GatewayError(ErrorKind.TURN_GONE, fault.message, hint=fault.hint))
            case _:
                return self._again(step.remedy, loss)
        return None

    def _again(self, how: Remedy, loss: Loss) -> Retry:
        delay = _BACKOFF_S * 2.0 ** (self._reopened - 1) if self._reopened else 0.0
        if how is Remedy.OTHER_NAME or how is Remedy.SIMPLER_SCHEMAS:
            self.shape += how is Remedy.OTHER_NAME
            self._checkpoint = None  # the model produced nothing: the run starts from its beginning
            self.empty_turn = False
        self._reopened += 1
        self._waited = self._waited or loss in (Loss.SILENT, Loss.STALLED)
        self._moved = False
        self._echo.rewind()
        self._withheld.clear()
        self._calls.reopened(held_results(self._saved_state(), self._blobs.own))
        self._recovered(how, loss)
        return Retry(delay, alone=how is Remedy.OTHER_CONNECTION)

    def _saved_state(self) -> pb.ConversationStateStructure | None:
        return None if self._checkpoint is None else pb.ConversationStateStructure.FromString(self._checkpoint)

    def _recovered(self, how: Remedy, loss: Loss) -> None:
        adapted = self._opening.adapted if how is Remedy.SIMPLER_SCHEMAS else ""
        self.events.append(Recovered(how.label, loss.label, self._reopened, adapted))

    def _progress_made(self) -> None:
        """Renew the retry budget."""
        self._reopened = 0
        self._waited = False

    def fail(self, error: GatewayError) -> None:
        if self.phase is not RunPhase.OVER:
            self.phase = RunPhase.OVER
            self.events.append(TurnFailed(error.after_work() if self._worked_here else error))

    def _fail(self, kind: ErrorKind, message: str, hint: str = "") -> None:
        self.fail(GatewayError(kind, message, hint=hint))

    def _refused(self, fault: GatewayError) -> None:
        """Handle a message of Cursor that failed: replay the history if data is gone, otherwise fail the turn."""
        if fault.kind is ErrorKind.TURN_GONE:
            self.lost(Loss.INCOMPLETE, fault)
        else:
            self.fail(fault)

    # ---- time

    def tick(self, now: float, *, reading: bool = True) -> GivenUp | None:
        """Handle heartbeats, the pause after tool calls, and the two watchdogs. A verdict means the attempt is lost.

        `reading` is False while a slow client pauses the stream, because then silence proves nothing.
        """
        if self.phase not in (RunPhase.RUNNING, RunPhase.PAUSED):
            return None
        watch = self.watch
        if watch.beats(now):
            self.outgoing.append(_HEARTBEAT)
        if watch.exec_beats(now):
            self.outgoing.extend(map(execs.heartbeat, self._calls.open))
        if not reading:
            watch.held_back(now)
        if watch.pause_at is not None and now >= watch.pause_at:
            self._settle_step(now)
        verdict = watch.silent(now)
        if verdict is None and self.phase is RunPhase.RUNNING:
            verdict = watch.stalled(now, tool_runs=self._calls.runs_here)
        return verdict

    def _settle_step(self, now: float) -> None:
        """Pause if all calls of the step have arrived; if their number is unknown, silence decides."""
        watch, calls = self.watch, self._calls
        if self._withheld and calls.step:
            self.outgoing += self._withheld
            self._withheld.clear()
        if self.phase is not RunPhase.RUNNING or not (calls.step or self._withheld):
            watch.pause_at = None
        elif calls.writing:
            watch.pause_at = max(watch.called, watch.spoken) + self._limits.sibling_cap
            if now >= watch.pause_at:
                watch.pause_at = None  # until more of the call arrives
                if written := calls.take_written():
                    self._show(written)
                    self._pause()
        elif calls.complete():
            self._pause()
        else:
            cap = self._limits.sibling_cap
            ends = step_ends_at(watch.called, watch.spoken, cap if calls.missing else self._pace.quiet, cap)
            if now < ends:
                watch.pause_at = ends
            elif self._withheld:
                self._give_up_demand()
            else:
                self._pause()

    def _show(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ToolCallReady):
                self._tally.called(event.name, event.arguments)
            self.visible = self._moved = True
            self.events.append(event)

    def _give_up_demand(self) -> None:
        """End the run with the model's text, because the model still calls other tools after its rejections."""
        self._withheld.clear()
        self.watch.pause_at = None
        self.phase = RunPhase.OVER
        self.events += [UsageReported(self._tally.paused()), self._named.note, TurnEnded()]

    def _pause(self) -> None:
        self.watch.pause_at = None
        self._silence = 0.0
        self._calls.close_step()
        self.phase = RunPhase.PAUSED
        self.events.append(UsageReported(self._tally.paused()))
        self.events.append(TurnPaused())


# ---- What a refusal of Cursor may be about: the token, the host, the stored conversation, the model's name, the tools'
# schemas, or none of these. Pure.


def loss_of(error: ConnectError, fault: GatewayError, run: RunLife) -> Loss:
    """The loss that Cursor's error means for this run. `fault`: the error for the client."""
    if fault.kind is ErrorKind.SIGNED_OUT:
        return Loss.TOKEN
    if fault.code == TEAM_REGION:
        return Loss.HOST
    if fault.code == BLOB_NOT_FOUND:  # the kept conversation has a gap; its history can be sent again
        return Loss.INCOMPLETE
    if run.may_be_stale and may_be_conversation(error):
        return Loss.STALE
    if run.reshapable and may_be_shape(error):
        return Loss.SHAPE
    if run.unheard and fault.code == SCHEMA_REFUSED:
        return Loss.SCHEMA
    return Loss.REFUSED if retryable(error) else Loss.FINAL
