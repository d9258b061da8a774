"""One turn of the Agent API, sans I/O.

In: serialised AgentServerMessages, tool results, the time, and that an attempt was lost. Out: `events` for the client,
`outgoing` messages in the order in which they must be sent, `jobs` to be run on this side. Remembered: blobs, the last
checkpoint, the calls, and what was said since the checkpoint, so that an attempt after a dropped connection never says
a thing twice. Every KV request and every exec request is answered in the same call in which it arrives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from google.protobuf.message import DecodeError

from ...core.errors import ErrorKind, GatewayError
from ...core.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
    TurnFailed,
    TurnPaused,
    TurnStarted,
    UsageReported,
)
from ...core.request import Text, ToolResult, TurnRequest
from ...core.turn import Snapshot
from ...wire import deltas
from ...wire.deltas import read_delta
from ...wire.messages import pb
from . import execs
from .blob_desk import BlobDesk
from .calls import CallDesk, CallMismatch, Convert, Policy, Redirect, Refuse, RunHere, arguments_json
from .compose import Opening
from .echo import Diverged, Echo
from .snapshots import write_state
from .tally import Tally

NO_PERSON: Final = "Nobody can be asked: this client answers through an API. Decide yourself and go on."
_NONE: Final[frozenset[Any]] = frozenset()  # shared: most turns have no tools and no jobs, and a set is large
_HEARTBEAT: Final = pb.AgentClientMessage(client_heartbeat=pb.ClientHeartbeat()).SerializeToString()


@dataclass(frozen=True, slots=True)
class ConversationLimits:
    """All in seconds, except where the name says otherwise."""

    client_heartbeat: float = 5.0
    exec_heartbeat: float = 3.0
    silence: float = 30.0
    progress: float = 90.0
    tool_progress: float = 600.0
    sibling_quiet: float = 0.15
    retries: int = 3
    max_blob_bytes: int = 64 * 1024 * 1024


class Phase(Enum):
    NEW = "not opened"
    RUNNING = "running"
    PAUSED = "waiting for tool results"
    LOST = "lost while it waited"
    OVER = "over"


class Conversation:
    __slots__ = (
        "_attempts",
        "_blobs",
        "_checkpoint",
        "_desk",
        "_echo",
        "_ended",
        "_exec_heartbeat_at",
        "_heard",
        "_heartbeat_at",
        "_limits",
        "_opening",
        "_parent",
        "_patience",
        "_pause_at",
        "_policy",
        "_progressed",
        "_running_jobs",
        "_tally",
        "_tools",
        "aborted_jobs",
        "events",
        "jobs",
        "outgoing",
        "phase",
        "visible",
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
        self.phase = Phase.NEW
        self.outgoing: list[bytes] = []
        self.events: list[Event] = []
        self.jobs: Sequence[pb.ExecServerMessage] = ()
        """To be run; whoever takes them leaves `()`."""
        self.aborted_jobs: Sequence[int] = ()
        """The same, to be given up."""
        self.visible = False
        """The client has seen something of this response."""
        self._opening = opening
        self._tools = _names(request)
        self._policy = policy
        self._limits = limits
        self._parent = parent
        self._blobs = BlobDesk(opening.blobs, fetch_blob, limits.max_blob_bytes)
        self._checkpoint: bytes | None = None
        self._attempts = 0
        self._ended = False
        self._patience = 1
        self._echo = Echo()
        self._desk = CallDesk(parallel=request.tool_choice.parallel)
        self._running_jobs: frozenset[int] = _NONE
        self._tally = Tally(opening.prompt_chars)
        self._heard = self._progressed = 0.0
        self._heartbeat_at = self._exec_heartbeat_at = 0.0
        self._pause_at: float | None = None

    # ---- the life of the turn

    def open(self, now: float) -> None:
        """The first message of an attempt: the whole opening, or from the last checkpoint on."""
        if self.phase is Phase.NEW:
            self.events.append(TurnStarted())
        self.phase = Phase.RUNNING
        self._attempts += 1
        self.aborted_jobs = (*self.aborted_jobs, *self._running_jobs)  # a new attempt asks for them under other ids
        self._running_jobs = _NONE
        self._pause_at = None
        self._clock(now)
        self.outgoing.append(self._opening.run_request(self._checkpoint))

    def _clock(self, now: float) -> None:
        self._heard = self._progressed = now
        self._heartbeat_at = now + self._limits.client_heartbeat
        self._exec_heartbeat_at = now + self._limits.exec_heartbeat

    def feed(self, payloads: Sequence[bytes], now: float) -> bool:
        """Messages of one read. True: there may be more to do now than to tell `events`. May end the turn; never
        raises."""
        self._heard = now
        more = False
        try:
            for payload in payloads:
                if self.phase is Phase.RUNNING and (delta := read_delta(payload)) is not None:
                    kind, words = delta
                    self._delta(kind, words, now)
                    continue
                more = True
                if self.phase in (Phase.OVER, Phase.LOST) and not self.ended:
                    return True
                self._take(pb.AgentServerMessage.FromString(payload), now)
        except DecodeError as broken:
            self._fail(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor sent a message that cannot be read: {broken}")
        except CallMismatch as mismatch:
            self._fail(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor contradicted itself: {mismatch}")
        except Diverged:
            self._fail(
                ErrorKind.UPSTREAM_DOWN,
                "The connection to Cursor broke in the middle of the answer, and the model went on with another one.",
                hint="Ask again.",
            )
            return True
        return more

    @property
    def ended(self) -> bool:
        """The turn came to its proper end upstream."""
        return self.phase is Phase.OVER and self._ended

    @property
    def fills_window(self) -> bool:
        return self._tally.fills_window

    def lost(self, fault: GatewayError | None, *, retryable: bool, now: float) -> float | None:
        """The attempt is over before the turn was. Seconds until the next attempt, or None: it is settled."""
        if self.phase is Phase.PAUSED:
            self.phase = Phase.LOST  # the client's results will be replayed into a new run
        if self.phase is not Phase.RUNNING:
            return None
        if fault is None:
            fault = GatewayError(ErrorKind.UPSTREAM_DOWN, "Cursor ended the stream before the answer was complete.")
        if fault.kind is ErrorKind.TIMEOUT:  # a wait that was long already is repeated once, not `retries` times
            retryable, self._patience = retryable and self._patience > 0, self._patience - 1
        if retryable and self._attempts <= self._limits.retries and self._echo.replayable:
            self._echo.rewind()
            self._desk.reopened()
            return 0.0 if self._attempts == 1 else 0.25 * 2.0 ** (self._attempts - 2)
        self.fail(fault)
        return None

    def fail(self, error: GatewayError) -> None:
        if self.phase is not Phase.OVER:
            self.phase = Phase.OVER
            self.events.append(TurnFailed(error))

    def _fail(self, kind: ErrorKind, message: str, hint: str = "") -> None:
        self.fail(GatewayError(kind, message, hint=hint))

    # ---- time

    def deadline(self) -> float:
        """When `tick` wants to be called next."""
        at = min(self._heartbeat_at, self._exec_heartbeat_at)
        return at if self._pause_at is None else min(at, self._pause_at)

    def tick(self, now: float, *, reading: bool = True) -> GatewayError | None:
        """Heartbeats, the quiet after a tool call, the two watchdogs. A fault means: give this attempt up.

        `reading` is False while the client is so slow that upstream is held back: then its silence proves nothing.
        """
        if self.phase not in (Phase.RUNNING, Phase.PAUSED):
            return None
        if now >= self._heartbeat_at:
            self.outgoing.append(_HEARTBEAT)
            self._heartbeat_at = now + self._limits.client_heartbeat
        if now >= self._exec_heartbeat_at:
            waiting = [call.exec_id for call in self._desk.open if call.exec_id is not None]
            self.outgoing.extend(execs.heartbeat(exec_id) for exec_id in (*waiting, *self._running_jobs))
            self._exec_heartbeat_at = now + self._limits.exec_heartbeat
        if self._pause_at is not None and now >= self._pause_at:
            self._pause()
        if not reading:
            self._heard = self._progressed = now
        if now - self._heard >= self._limits.silence:
            return GatewayError(
                ErrorKind.TIMEOUT,
                f"Cursor sent nothing for {self._limits.silence:g} seconds.",
                hint="Check the network and try again.",
            )
        if self.phase is Phase.RUNNING:
            return self._no_progress(now)
        return None

    def _no_progress(self, now: float) -> GatewayError | None:
        limit = self._limits.tool_progress if self._desk.open or self._running_jobs else self._limits.progress
        if now - self._progressed < limit:
            return None
        fault = GatewayError(
            ErrorKind.TIMEOUT,
            f"Cursor kept the connection alive and made no progress for {limit:g} seconds.",
            hint="Try again; if it happens at once with another prompt too, check status.cursor.com.",
        )
        if self._patience and not self.visible:
            return fault
        self.fail(fault)
        return None

    # ---- the client's side

    def submit(self, results: Sequence[ToolResult], extra: Sequence[Text], now: float) -> None:
        """Answer the calls of the step. Raises GatewayError(TURN_GONE) before anything is sent when it cannot."""
        if self.phase is not Phase.PAUSED:
            raise GatewayError(ErrorKind.TURN_GONE, f"The turn cannot take tool results: it is {self.phase.value}.")
        if extra:
            results = self._with_extra(results, extra)
        self.phase = Phase.RUNNING
        self.visible = False
        self.events = [TurnStarted()]  # whatever the last response left unread is not this response's business
        self.outgoing.extend(self._desk.submit(results))
        self._progressed = now
        self._tally.next_response()
        if waiting := self._desk.next_waiting():
            self.events.extend(waiting)
            self.visible = True
            self._settle_step(now)

    def _with_extra(self, results: Sequence[ToolResult], extra: Sequence[Text]) -> list[ToolResult]:
        """What the user said beside the results rides on the last result that can carry text."""
        able = [n for n, result in enumerate(results) if self._desk.carries_text(result.call_id)]
        if not able:
            raise GatewayError(ErrorKind.TURN_GONE, "The parked calls cannot carry the user's words beside them.")
        said = "\n\n".join(text.text for text in extra)
        last = results[able[-1]]
        content = (*last.content, Text(f"\n\n[The user adds:]\n{said}"))
        changed = ToolResult(last.call_id, content, last.is_error)
        return [changed if result is last else result for result in results]

    def finish_job(self, exec_: pb.ExecServerMessage, messages: Sequence[bytes], now: float) -> None:
        """The outcome of a job that ran on this side."""
        if exec_.id in self._running_jobs:
            self._running_jobs -= {exec_.id}
            self._progressed = now
            self.outgoing.extend(messages)

    def snapshot(self, backend: str) -> Snapshot | None:
        if self._checkpoint is None or not self.ended:
            return None
        state = write_state(self._opening.conversation_id, self._checkpoint)
        return Snapshot(backend, state, dict(self._blobs.own), self._blobs.fetch, self._parent)

    # ---- the server's side

    def _take(self, message: pb.AgentServerMessage, now: float) -> None:
        match message.WhichOneof("message"):
            case "interaction_update":
                self._update(message.interaction_update, now)
            case "kv_server_message":
                self._kv(message.kv_server_message)
            case "exec_server_message":
                self._exec(message.exec_server_message, now)
            case "conversation_checkpoint_update":
                if not self._ended:
                    self._checkpoint = message.conversation_checkpoint_update.SerializeToString()
                    self._tally.checkpoint(message.conversation_checkpoint_update.token_details)
                    self._echo.saved()
                    self._desk.checkpointed()
            case "exec_server_control_message":
                self._abort(message.exec_server_control_message.abort.id)
            case "interaction_query":
                self.outgoing.append(execs.refuse_query(message.interaction_query, NO_PERSON))
            case _:
                pass  # newer servers say more than we know; silence is what the official client answers too

    def _abort(self, exec_id: int) -> None:
        self._desk.aborted(exec_id)
        if exec_id in self._running_jobs:
            self._running_jobs -= {exec_id}
            self.aborted_jobs = (*self.aborted_jobs, exec_id)

    def _update(self, update: pb.InteractionUpdate, now: float) -> None:
        match update.WhichOneof("message"):
            case "text_delta":
                self._delta(deltas.TEXT, update.text_delta.text, now)
            case "thinking_delta":
                self._delta(deltas.THINKING, update.thinking_delta.text, now)
            case "token_delta":
                self._tally.spoken_tokens += update.token_delta.tokens
            case "heartbeat" | None:
                pass
            case "partial_tool_call":
                self._progressed = now
                self._partial(update.partial_tool_call)
            case "tool_requests_listed":
                self._desk.listed(update.tool_requests_listed.call_count)
                self._settle_step(now)
            case "turn_ended":
                self._turn_ended(update.turn_ended)
            case _:
                self._progressed = now

    def _delta(self, kind: int, words: str, now: float) -> None:
        self._progressed = now
        if kind == deltas.TEXT:
            if text := self._echo.text(words):
                self._tally.spoken_chars += len(text)
                self.visible = True
                self.events.append(TextDelta(text))
        elif thought := self._echo.reasoning(words):
            self.visible = True
            self.events.append(ReasoningDelta(thought))

    def _show(self, event: Event) -> None:
        self.visible = True
        self.events.append(event)

    def _partial(self, partial: pb.PartialToolCallUpdate) -> None:
        call = partial.tool_call
        if (
            call.WhichOneof("tool") == "mcp_tool_call"
            and (name := _client_name(call.mcp_tool_call.args)) in self._tools
        ):
            for event in self._desk.begin(partial.call_id, name, _mcp_answer):
                self._show(event)
        for event in self._desk.grow(partial.call_id, partial.args_text_delta):
            self._show(event)

    def _turn_ended(self, ended: pb.TurnEndedUpdate) -> None:
        if self.phase is not Phase.RUNNING:
            return
        self.events.append(UsageReported(self._tally.reported(ended)))
        self.events.append(TurnEnded())
        self._ended = True
        self.phase = Phase.OVER

    # ---- KV: answered at once, also while parked

    def _kv(self, kv: pb.KvServerMessage) -> None:
        try:
            answer = self._blobs.answer(kv)
        except GatewayError as fault:
            self.fail(fault)
            return
        if answer is not None:
            self.outgoing.append(answer)

    # ---- execs: every one gets an answer

    def _exec(self, exec_: pb.ExecServerMessage, now: float) -> None:
        self._progressed = now
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
                    reply = execs.tool_not_found(exec_.id, name, sorted(self._tools))
                    self.outgoing += [execs.answer(reply), execs.stream_close(exec_.id)]
            case _:
                self._built_in(exec_, now)

    def _built_in(self, exec_: pb.ExecServerMessage, now: float) -> None:
        match self._policy(exec_):
            case Redirect(name=name, arguments=arguments, convert=convert):
                self._ask(exec_, _exec_call_id(exec_), name, arguments, convert, now, typed=True)
            case RunHere():
                self._running_jobs |= {exec_.id}
                self.jobs = (*self.jobs, exec_)
            case Refuse(reason=reason):
                self.outgoing.extend(execs.refuse(exec_, reason))

    def _ask(
        self,
        exec_: pb.ExecServerMessage,
        call_id: str,
        name: str,
        arguments: str,
        convert: Convert,
        now: float,
        *,
        typed: bool = False,
    ) -> None:
        call_id = call_id or f"exec_{exec_.id}"
        events, known = self._desk.ask(call_id, exec_.id, name, arguments, convert, typed=typed)
        if known:
            self.outgoing.extend(self._desk.again(call_id, name, arguments, exec_.id))
            return
        for event in events:
            self._show(event)
        self._settle_step(now)

    def _settle_step(self, now: float) -> None:
        """Pause when the step's calls are all out; when nobody says how many there are, a short quiet decides."""
        if self.phase is not Phase.RUNNING or not self._desk.step or self._desk.growing:
            self._pause_at = None
        elif self._desk.complete():
            self._pause()
        else:
            self._pause_at = now + self._limits.sibling_quiet

    def _pause(self) -> None:
        self._pause_at = None
        self.phase = Phase.PAUSED
        self.events.append(UsageReported(self._tally.estimate()))
        self.events.append(TurnPaused())


def _names(request: TurnRequest) -> frozenset[str]:
    if not request.tools or request.tool_choice.mode == "none":
        return _NONE
    return frozenset([tool.name for tool in request.tools])


def _client_name(args: pb.McpArgs) -> str:
    return args.tool_name or args.name


def _mcp_answer(exec_id: int, result: ToolResult) -> list[bytes]:
    return [execs.answer(execs.mcp_result(exec_id, result)), execs.stream_close(exec_id)]


def _exec_call_id(exec_: pb.ExecServerMessage) -> str:
    kind = exec_.WhichOneof("message")
    return getattr(getattr(exec_, kind), "tool_call_id", "") if kind else ""
