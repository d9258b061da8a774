"""One turn of the Agent API, sans I/O.

In: serialised AgentServerMessages, tool results, the time, and that an attempt was lost. Out: `events` for the client,
`outgoing` messages in the order in which they must be sent, `jobs` to be run on this side. Remembered: blobs, the last
checkpoint, the calls, and what was said since the checkpoint, so that an attempt after a dropped connection never says
or asks a thing twice. Every KV request and every exec request is answered in the same call in which it arrives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from google.protobuf.message import DecodeError

from ...builtin_tools import execs
from ...builtin_tools.decisions import Convert, Policy, Redirect, Refuse, RunHere
from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    Event,
    ReasoningDelta,
    Recovered,
    TextDelta,
    ToolCallReady,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    UsageReported,
)
from ...core.recovery import BROKEN, Cause, Loss, Rung, next_step
from ...core.request import Role, Text, ToolResult, TurnRequest
from ...core.turn import Snapshot
from ...wire import deltas
from ...wire.deltas import read_delta
from ...wire.messages import pb
from .arguments import arguments_json
from .blob_store import BlobStore
from .calls import Call, CallTable
from .compose import Opening
from .echo import Diverged, Echo
from .held import NAMELESS, held_results
from .snapshots import write_state
from .tally import AgentTally, read_total
from .watch import ConversationLimits, GivenUp, Watch

NO_PERSON: Final = "Nobody can be asked: this client answers through an API. Decide yourself and go on."
_NONE: Final[frozenset[Any]] = frozenset()  # shared: most turns have no tools and no jobs, and a set is large
_HEARTBEAT: Final = pb.AgentClientMessage(client_heartbeat=pb.ClientHeartbeat()).SerializeToString()
_READ_ONLY: Final = frozenset({"read_args", "redacted_read_args", "ls_args", "grep_args", "diagnostics_args"})
_BACKOFF_S: Final = 0.25


class RunPhase(Enum):
    NEW = "not opened"
    RUNNING = "running"
    PAUSED = "waiting for tool results"
    LOST = "lost while it waited"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt."""

    delay: float
    alone: bool
    """On a connection of its own: the last one broke."""


class Conversation:
    __slots__ = (
        "_attempts",
        "_blobs",
        "_calls",
        "_checkpoint",
        "_echo",
        "_ended",
        "_heard",
        "_kept",
        "_limits",
        "_moved",
        "_opening",
        "_parent",
        "_policy",
        "_reopened",
        "_results_given",
        "_spoke",
        "_tally",
        "_tools",
        "_waited",
        "_worked_here",
        "aborted_jobs",
        "events",
        "jobs",
        "nobody_there",
        "outgoing",
        "phase",
        "shape",
        "visible",
        "watch",
    )

    def __init__(
        self,
        opening: Opening,
        request: TurnRequest,
        *,
        policy: Policy,
        limits: ConversationLimits,
        fetch_blob: Callable[[bytes], bytes | None],
        parent: bytes | None = None,
    ) -> None:
        self.phase = RunPhase.NEW
        self.outgoing: list[bytes] = []
        self.events: list[Event] = []
        self.jobs: Sequence[tuple[Call, pb.ExecServerMessage]] = ()
        """To be run; whoever takes them leaves `()`."""
        self.aborted_jobs: Sequence[Call] = ()
        """The same, to be given up."""
        self.visible = False
        """The client has seen something of this response."""
        self._opening = opening
        self._tools = _names(request)
        self._policy = policy
        self._limits = limits
        self._parent = parent
        self._blobs = BlobStore(opening.blobs, fetch_blob, limits.max_blob_bytes)
        self._checkpoint: bytes | None = None
        self._kept = True  # the newest checkpoint is the one we have
        self._attempts = 0
        self._reopened = request.reopened
        self._waited = self._moved = self._worked_here = False
        self._results_given = request.messages[-1].role is Role.TOOL
        self._spoke = False  # the model, since it was given results on this attempt
        self._ended = False
        self.shape = 0
        """Which of the opening's ways to ask for the model."""
        self._heard = False  # the model was, before this response or by a tool that ran here
        self.nobody_there = False
        """The turn ended with nothing said and nothing counted, and the model can be asked for in another way."""
        self._echo = Echo()
        self._calls = CallTable(parallel=request.tool_choice.parallel)
        self._tally = AgentTally(opening.context_tokens)
        self.watch = Watch(limits)

    # ---- the life of the turn

    def open(self, now: float) -> None:
        """The first message of an attempt: the whole opening, or from the last checkpoint on."""
        if self.phase is RunPhase.NEW:
            self.events.append(TurnStarted(self._opening.context_tokens))
        self.phase = RunPhase.RUNNING
        self._attempts += 1
        self._spoke = False
        if self._attempts > 1:
            self._tally.reopened()
        self.watch.opened(now, again=self._attempts > 1)
        self.outgoing.append(self._opening.run_request(self._checkpoint, self.shape))

    def feed(self, payloads: Sequence[bytes], now: float) -> bool:
        """Messages of one read. True: there may be more to do now than to tell `events`. May end the turn; never
        raises."""
        self.watch.heard = now
        more = False
        try:
            for payload in payloads:
                if self.phase is RunPhase.RUNNING and (delta := read_delta(payload)) is not None:
                    kind, words = delta
                    self._delta(kind, words, now)
                    continue
                more = True
                if self.phase in (RunPhase.OVER, RunPhase.LOST) and not self.ended:
                    return True
                self._take(pb.AgentServerMessage.FromString(payload), now)
        except DecodeError as broken:
            self._fail(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor sent a message that cannot be read: {broken}")
        except Diverged as other_way:
            in_call = other_way.in_call or self._calls.writing > 0
            self.lost(Cause.DIVERGED, _diverged(other_way, in_call=in_call), retryable=True)
            return True
        except GatewayError as fault:
            self._refused(fault)
            return True
        return more

    @property
    def ended(self) -> bool:
        """The turn came to its proper end upstream."""
        return self.phase is RunPhase.OVER and self._ended

    @property
    def reshapable(self) -> bool:
        """Nothing was heard of the model in this turn, and there is another way to ask for it."""
        unheard = not (self.visible or self._spoke or self._heard or self._calls.step)
        return unheard and self.shape + 1 < len(self._opening.models)

    @property
    def understood(self) -> bool:
        """Something was heard of the model."""
        return self.visible or self.phase is RunPhase.PAUSED

    @property
    def fills_window(self) -> bool:
        return self._tally.fills_window

    def lost(self, cause: Cause, fault: GatewayError | None, *, retryable: bool) -> Retry | None:
        """The attempt is over before the turn was. The next attempt, or None: it is settled."""
        if self.phase is RunPhase.PAUSED:
            self.phase = RunPhase.LOST  # the client's results will be replayed into a new run
        if self.phase is not RunPhase.RUNNING:
            return None
        if fault is None:
            fault = GatewayError(ErrorKind.UPSTREAM_DOWN, "Cursor ended the stream before the answer was complete.")
        if not retryable:
            self.fail(fault)
            return None
        if cause is Cause.SHAPE:
            self.shape += 1
            self._checkpoint = None  # nothing was said: it begins anew
            self.nobody_there = False
        step = next_step(self._loss(cause))
        match step.rung:
            case Rung.GIVE_UP:
                said = f"{fault.message.rstrip()} (Not tried again: {step.reason}.)"
                self.fail(GatewayError(fault.kind, said, fault.hint, code=fault.code, retry_after=fault.retry_after))
                return None
            case Rung.HAND_OVER:
                self._recovered(step.rung, cause)
                self._pause()
                self.phase = RunPhase.LOST
                return None
            case Rung.FRESH_RUN:
                self._reopened += 1
                self._recovered(step.rung, cause)
                self.fail(GatewayError(ErrorKind.TURN_GONE, fault.message, hint=fault.hint))
                return None
            case Rung.SAME_RUN:
                delay = _BACKOFF_S * 2.0 ** (self._reopened - 1) if self._reopened else 0.0
                self._reopened += 1
                self._waited = self._waited or cause in (Cause.SILENT, Cause.STALLED)
                self._moved = False
                self._echo.rewind()
                self._calls.reopened(held_results(self._checkpoint, self._blobs.own))
                self._recovered(step.rung, cause)
                return Retry(delay, alone=cause in BROKEN)

    def _loss(self, cause: Cause) -> Loss:
        return Loss(
            cause,
            reopened=self._reopened,
            budget=self._limits.retries,
            visible=self.visible,
            calls_out=bool(self._calls.step),
            call_open=self._calls.writing > 0,
            results_given=self._results_given,
            worked_here=self._worked_here,
            repeatable=self._echo.replayable,
            waited=self._waited,
        )

    def _recovered(self, rung: Rung, cause: Cause) -> None:
        self.events.append(Recovered(rung.value, cause.value, self._reopened))

    def _progress_made(self) -> None:
        """The retry budget is renewed."""
        self._reopened = 0
        self._waited = False

    def fail(self, error: GatewayError) -> None:
        if self.phase is not RunPhase.OVER:
            self.phase = RunPhase.OVER
            self.events.append(TurnFailed(error.after_work() if self._worked_here else error))

    def _fail(self, kind: ErrorKind, message: str, hint: str = "") -> None:
        self.fail(GatewayError(kind, message, hint=hint))

    def _refused(self, fault: GatewayError) -> None:
        """Something that upstream sent cannot be done."""
        if fault.kind is ErrorKind.TURN_GONE:
            self.lost(Cause.INCOMPLETE, fault, retryable=True)
        else:
            self.fail(fault)

    # ---- time

    def tick(self, now: float, *, reading: bool = True) -> GivenUp | None:
        """Heartbeats, the quiet after a tool call, the two watchdogs. A verdict means: this attempt is lost.

        `reading` is False while the client is so slow that upstream is held back: then its silence proves nothing.
        """
        if self.phase not in (RunPhase.RUNNING, RunPhase.PAUSED):
            return None
        watch = self.watch
        if watch.beats(now):
            self.outgoing.append(_HEARTBEAT)
        if watch.exec_beats(now):
            self.outgoing.extend(map(execs.heartbeat, self._calls.open))
        if watch.pause_at is not None and now >= watch.pause_at:
            self._pause()
        if not reading:
            watch.held_back(now)
        verdict = watch.silent(now)
        if verdict is None and self.phase is RunPhase.RUNNING:
            verdict = watch.stalled(now, tool_runs=self._calls.runs_here)
        return verdict

    # ---- the client's side

    def submit(self, results: Sequence[ToolResult], extra: Sequence[Text], now: float) -> None:
        """Answer the calls of the step. Raises GatewayError(TURN_GONE) before anything is sent when it cannot."""
        if self.phase is not RunPhase.PAUSED:
            raise GatewayError(ErrorKind.TURN_GONE, f"The turn cannot take tool results: it is {self.phase.value}.")
        if extra:
            results = self._with_extra(results, extra)
        self.phase = RunPhase.RUNNING
        self.visible = False
        self._tally.next_response(results)
        # Whatever the last response left unread is not this response's business.
        self.events = [TurnStarted(self._tally.expected)]
        self.outgoing.extend(self._calls.submit(results))
        self.watch.progressed = now
        self._results_given = self._heard = True
        self._spoke = False
        self._progress_made()
        if waiting := self._calls.next_waiting():
            self._show(waiting)
            self._settle_step(now)

    def _with_extra(self, results: Sequence[ToolResult], extra: Sequence[Text]) -> list[ToolResult]:
        """What the user said beside the results rides on the last result that can carry text."""
        able = [n for n, result in enumerate(results) if self._calls.carries_text(result.call_id)]
        if not able:
            raise GatewayError(ErrorKind.TURN_GONE, "The parked calls cannot carry the user's words beside them.")
        said = "\n\n".join(text.text for text in extra)
        last = results[able[-1]]
        content = (*last.content, Text(f"\n\n[The user adds:]\n{said}"))
        changed = ToolResult(last.call_id, content, last.is_error)
        return [changed if result is last else result for result in results]

    def finish_job(self, call: Call, messages: Sequence[bytes], now: float) -> None:
        """The outcome of a job that ran on this side."""
        self.watch.progressed = now
        self._heard = True
        self._spoke = False
        self.outgoing.extend(self._calls.ran(call, messages))

    def snapshot(self, backend: str) -> Snapshot | None:
        if self._checkpoint is None or not self._kept or not self.ended:
            return None
        state = write_state(self._opening.conversation_id, self._checkpoint)
        return Snapshot(backend, state, dict(self._blobs.own), self._blobs.fetch, self._parent)

    # ---- the server's side

    def _take(self, message: pb.AgentServerMessage, now: float) -> None:
        match message.WhichOneof("message"):
            case "interaction_update":
                self._update(message.interaction_update, now)
            case "kv_server_message":
                answer = self._blobs.answer(message.kv_server_message)  # at once, also while parked
                if answer is not None:
                    self.outgoing.append(answer)
            case "exec_server_message":
                self._exec(message.exec_server_message, now)
            case "conversation_checkpoint_update":
                if not self._ended:
                    self._save(message.conversation_checkpoint_update, now)
            case "exec_server_control_message":
                aborted = self._calls.aborted(message.exec_server_control_message.abort.id)
                if aborted is not None and aborted.here:
                    self.aborted_jobs = (*self.aborted_jobs, aborted)
            case "interaction_query":
                self._tally.calling()
                self._tally.answered()
                self.outgoing.append(execs.refuse_query(message.interaction_query, NO_PERSON))
            case _:
                pass  # newer servers say more than we know; silence is what the official client answers too

    def _save(self, checkpoint: pb.ConversationStateStructure, now: float) -> None:
        self.watch.progressed = now
        state = checkpoint.SerializeToString()
        self._kept = bool(state)
        if not state:
            return  # one came that is too large to be kept (`wire.heavy`): the last one stays good for a new attempt
        self._checkpoint = state
        self._tally.details(checkpoint.token_details)
        self._calls.checkpointed(spoke=self._spoke)
        self._echo.saved()
        if self._moved:
            self._progress_made()

    def _update(self, update: pb.InteractionUpdate, now: float) -> None:
        match update.WhichOneof("message"):
            case "text_delta":
                self._delta(deltas.TEXT, update.text_delta.text, now)
            case "thinking_delta":
                self._delta(deltas.THINKING, update.thinking_delta.text, now)
            case "token_delta":
                self.watch.progressed = now  # long reasoning may tell nothing else for minutes
                self._tally.counted(update.token_delta.tokens)
            case "heartbeat" | None:
                pass
            case "tool_call_started":
                self.watch.progressed = now
                self._tally.calling()
            case "partial_tool_call":
                self.watch.progressed = now
                self._tally.calling()
                self._partial(update.partial_tool_call)
            case "tool_call_completed":
                self.watch.progressed = now
                self._tally.answered()
                completed = update.tool_call_completed
                self._calls.taken(_ids(completed.tool_call, completed.call_id))
            case "tool_requests_listed":
                self._calls.listed(update.tool_requests_listed.call_count)
                self._settle_step(now)
            case "turn_ended":
                self._turn_ended(update.turn_ended)
            case _:
                self.watch.progressed = now

    def _delta(self, kind: int, words: str, now: float) -> None:
        self.watch.progressed = now
        self._spoke = True
        if kind == deltas.TEXT:
            if text := self._echo.text(words):
                if self._calls.owed:
                    raise Diverged("the model spoke where it called a tool before")
                self._tally.spoken_chars += len(text)
                self.visible = self._moved = True
                self.events.append(TextDelta(text))
        elif (thought := self._echo.reasoning(words)) and not self._calls.owed:
            self._tally.spoken_chars += len(thought)
            self.visible = self._moved = True
            self.events.append(ReasoningDelta(thought))

    def _show(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ToolCallReady):
                self._tally.called(event.name, event.arguments)
            self.visible = self._moved = True
            self.events.append(event)

    def _partial(self, partial: pb.PartialToolCallUpdate) -> None:
        call = partial.tool_call
        ids = _ids(call, partial.call_id)
        if not ids:
            return
        if (
            call.WhichOneof("tool") == "mcp_tool_call"
            and (name := _client_name(call.mcp_tool_call.args)) in self._tools
        ):
            self._show(self._calls.begin(ids, name, _mcp_answer))
            if self._calls.writing:
                self.watch.pause_at = None  # the step has one more call
        self._show(self._calls.grow(ids, partial.args_text_delta))

    def _turn_ended(self, ended: pb.TurnEndedUpdate) -> None:
        if self.phase is not RunPhase.RUNNING:
            return
        if self._calls.owed or self._calls.writing or self._echo.skip:
            raise Diverged("the model ended its answer before it was where it had been")
        if not (ended.input_tokens or ended.output_tokens) and self.reshapable:
            self.nobody_there = True
            return
        self.events.append(UsageReported(self._tally.ended(read_total(ended))))
        self.events.append(TurnEnded())
        self._ended = True
        self.phase = RunPhase.OVER

    # ---- execs: every one gets an answer

    def _exec(self, exec_: pb.ExecServerMessage, now: float) -> None:
        self.watch.progressed = now
        match exec_.WhichOneof("message"):
            case "request_context_args":
                context = b"".join(self._opening.context)
                self.outgoing += [execs.context_answer(exec_.id, context), execs.stream_close(exec_.id)]
            case "mcp_args":
                args = exec_.mcp_args
                name = _client_name(args)
                if name in self._tools:
                    self._ask(exec_, args.tool_call_id, name, arguments_json(args.args), _mcp_answer, now)
                else:
                    self._tally.calling()
                    reply = execs.tool_not_found(exec_.id, name, sorted(self._tools))
                    self.outgoing += [execs.answer(reply), execs.stream_close(exec_.id)]
            case _:
                self._built_in(exec_, now)

    def _built_in(self, exec_: pb.ExecServerMessage, now: float) -> None:
        self._tally.calling()
        match self._policy(exec_):
            case Redirect(name=name, arguments=arguments, convert=convert):
                self._ask(exec_, execs.call_id(exec_), name, arguments, convert, now, typed=True)
            case RunHere():
                kind = exec_.WhichOneof("message") or ""
                self._worked_here = self._worked_here or kind not in _READ_ONLY
                self._ask(exec_, execs.call_id(exec_), kind, execs.essence(exec_), None, now)
            case Refuse(reason=reason):
                self.outgoing.extend(execs.refuse(exec_, reason))

    def _ask(
        self,
        exec_: pb.ExecServerMessage,
        call_id: str,
        name: str,
        arguments: str,
        convert: Convert | None,
        now: float,
        *,
        typed: bool = False,
    ) -> None:
        call_id = call_id or f"{NAMELESS}{self._attempts}_{exec_.id}"
        asked = self._calls.ask((call_id,), exec_.id, name, arguments, convert, typed=typed)
        if asked.replies:
            self._spoke = False
            self.outgoing.extend(asked.replies)
        self._show(asked.events)
        if asked.run:
            self.jobs = (*self.jobs, (asked.call, exec_))
        self._settle_step(now)

    def _settle_step(self, now: float) -> None:
        """Pause when the step's calls are all out; when nobody says how many there are, a short quiet decides."""
        if self.phase is not RunPhase.RUNNING or not self._calls.step or self._calls.writing:
            self.watch.pause_at = None
        elif self._calls.complete():
            self._pause()
        else:
            self.watch.pause_at = now + self._limits.sibling_quiet

    def _pause(self) -> None:
        self.watch.pause_at = None
        self.phase = RunPhase.PAUSED
        self.events.append(UsageReported(self._tally.paused()))
        self.events.append(TurnPaused())


def _names(request: TurnRequest) -> frozenset[str]:
    if not request.tools or request.tool_choice.mode == "none":
        return _NONE
    return frozenset([tool.name for tool in request.tools])


def _client_name(args: pb.McpArgs) -> str:
    return args.tool_name or args.name


def _ids(call: pb.ToolCall, envelope: str) -> tuple[str, ...]:
    """The ids under which a call is told of. The inner one, which its exec will use, comes first."""
    inner = call.mcp_tool_call.args.tool_call_id if call.WhichOneof("tool") == "mcp_tool_call" else ""
    return tuple(dict.fromkeys(one for one in (inner, call.tool_call_id, envelope) if one))


def _mcp_answer(exec_id: int, result: ToolResult) -> list[bytes]:
    return [execs.answer(execs.mcp_result(exec_id, result)), execs.stream_close(exec_id)]


def _diverged(why: Diverged, *, in_call: bool) -> GatewayError:
    """What the client is told when the answer it has a part of cannot be completed."""
    if in_call:
        return GatewayError(
            ErrorKind.UPSTREAM_DOWN,
            f"Cursor did not complete a tool call that it had begun: {why}.",
            hint="Do not run that call. Ask again.",
            code="tool_call_cut",
        )
    return GatewayError(
        ErrorKind.UPSTREAM_DOWN,
        f"The connection to Cursor broke in the middle of the answer, and then {why}.",
        hint="Ask again.",
    )
