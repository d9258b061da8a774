"""The protocol of one turn, sans I/O: the effect of each server message (deltas, execs, blobs, queries, checkpoints,
`turn_ended`), and of tool results and the text that comes with them. `run_life.py` handles attempts and retries.

Input: serialised AgentServerMessages, tool results, the time, and the loss of an attempt. Output: `events` for the
client, `outgoing` messages in order, `jobs` for the gateway. Each KV request is answered in the call that brings it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from ...core.errors import ErrorKind, GatewayError
from ...core.event_buffer import weight
from ...core.events import Event, ReasoningDelta, TextDelta, TurnEnded, TurnStarted, UsageReported, WebSearch
from ...core.named_tool import demand
from ...core.recovery import Loss
from ...core.request import Text, ToolResult, TurnRequest, system_text
from ...core.turn import Snapshot
from ...cursor.wire import heavy
from ...cursor.wire.heavy import UPDATE_TAG, Oversized, read_delta
from ...cursor.wire.messages import pb
from ...schemas.check import CORRECTIONS, ArgumentCheck
from ..builtin_tools import execs
from ..builtin_tools.execs import Convert, EndTurn, Policy, Redirect, Refuse, RunHere
from ..builtin_tools.policy import ToolRules
from ..builtin_tools.queries import WebSearchBy, WebSearches, answer_query, plan_text
from .arguments import arguments_json
from .calls import MAX_ARGUMENT_CHARS, Call
from .compose import Composer, Opening, RunContext, blob_source, message_bytes, write_state
from .lost_run import NAMELESS, Diverged, diverged_fault, held_results
from .run_life import Retry, RunLife, RunPhase
from .tally import CACHE_LIFE_S, Learn, UnseenTokens, read_total
from .turn_clock import ConversationLimits, StepPace, StepPaces
from .wire_calls import (
    MAX_OVERSIZED,
    cannot_go_on,
    client_name,
    mcp_answer,
    offered_names,
    ready_answer,
    too_large,
    whole,
    wire_ids,
    with_extra,
)

# ---- Text that the model writes after a response has ended with calls: kept for the next response, at most 1 MiB.
# Pure.

MAX_LATE_BYTES: Final = 1024 * 1024


class LateWords:
    __slots__ = ("_bytes", "_events")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._bytes = 0

    def keep(self, events: Sequence[Event]) -> bool:
        """Store the events. Returns False if they exceed `MAX_LATE_BYTES`."""
        self._events += events
        self._bytes += sum(map(weight, events))
        return self._bytes <= MAX_LATE_BYTES

    def take(self) -> tuple[Sequence[Event], int]:
        """(the stored events, the number of characters in their text)."""
        events, self._events, self._bytes = self._events, [], 0
        return events, sum([len(event.text) for event in events if isinstance(event, TextDelta | ReasoningDelta)])


__all__ = ["Conversation", "Retry", "RunPhase"]

_READ_ONLY: Final = frozenset({"read_args", "redacted_read_args", "ls_args", "grep_args", "diagnostics_args"})


class Conversation(RunLife):
    """One turn's conversation. The caller takes the output from `events`, `outgoing`, `jobs` and `aborted_jobs` and
    empties them. `feed` returns whether there is more to do than to report events, so that a delta is cheap."""

    __slots__ = (
        "_check",
        "_kept",
        "_late_words",
        "_learn",
        "_older",
        "_oversized",
        "_parent",
        "_policy",
        "_searches",
        "_tools",
        "_unread",
        "_unseen",
        "_web",
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
        unseen: int = 0,
        learn: Learn | None = None,
        pace: StepPace | None = None,
        web: WebSearchBy = "client",
    ) -> None:
        """`unseen`: the tokens that the opening assumes for Cursor's own instructions; `learn` receives the real count.
        `pace`: the model's known pauses between calls. `web`: who searches the web."""
        super().__init__(opening, request, limits, fetch_blob, pace)
        self._tools = offered_names(request)
        self._check = ArgumentCheck(request.tools, CORRECTIONS)
        self._policy = policy
        self._parent = parent
        self._unseen = unseen
        self._learn = learn
        self._web = web
        self._searches = WebSearches() if web == "cursor" and request.web_search else None
        self._older: frozenset[bytes] = frozenset()  # messages of the checkpoint before the newest
        self._kept = True  # `_checkpoint` is the newest checkpoint
        self._oversized = 0
        self._late_words = LateWords()
        self._unread: Sequence[Text] = ()
        """System text that came with results that cannot carry text: it waits for a result that can, or for the user's
        next turn."""

    def feed(self, payloads: Sequence[bytes], now: float) -> bool:
        """Process the messages of one read. Returns True if there may be more to do than to report `events`. May end
        the turn; never raises."""
        self.watch.heard = now
        more, kind, words = False, 0, ""
        try:
            for payload in payloads:
                if (
                    payload[:1] == UPDATE_TAG
                    and self.phase is RunPhase.RUNNING
                    and (delta := read_delta(payload)) is not None
                ):
                    if delta[0] == kind:
                        words += delta[1]  # deltas of one read are reported as one event
                        continue
                    if words:
                        self._delta(kind, words, now)
                    kind, words = delta
                    continue
                if words:
                    self._delta(kind, words, now)
                    kind, words = 0, ""
                more = True
                if self.phase in (RunPhase.OVER, RunPhase.LOST) and not self.ended:
                    return True
                message = pb.AgentServerMessage.FromString(payload)
                if type(payload) is Oversized:
                    self._too_large(message.exec_server_message, now)
                else:
                    self._take(message, now)
            if words:
                self._delta(kind, words, now)
        except DecodeError as broken:
            self._fail(ErrorKind.UPSTREAM_PROTOCOL, f"Cursor sent a message that cannot be read: {broken}")
        except Diverged as other_way:
            in_call = other_way.in_call or self._calls.writing > 0
            self.lost(Loss.DIVERGED, diverged_fault(other_way, in_call=in_call))
            return True
        except GatewayError as fault:
            self._refused(fault)
            return True
        return more

    # ---- the client's side

    def submit(self, results: Sequence[ToolResult], extra: Sequence[Text], now: float, demanded: str = "") -> None:
        """Answer the calls of the step. Raises GatewayError(TURN_GONE), before anything is sent, if that is
        impossible."""
        if self.phase is not RunPhase.PAUSED:
            raise GatewayError(ErrorKind.TURN_GONE, f"The turn cannot take tool results: it is {self.phase.value}.")
        if max([message_bytes(result.content) for result in results], default=0) > self._limits.max_message_bytes:
            raise GatewayError(ErrorKind.TURN_GONE, "A result is larger than Cursor can be sent.")  # a replay says more
        if demanded and (self._calls.waits or self._calls.writing):
            raise GatewayError(ErrorKind.TURN_GONE, "The model has made more calls, and a certain one is demanded.")
        if demanded and any(self._calls.carries_text(result.call_id) for result in results):
            extra = (*extra, system_text(demand(demanded)))
        if extra or self._unread:
            results, self._unread = with_extra(results, (*self._unread, *extra), self._calls.carries_text)
        self.phase = RunPhase.RUNNING
        self.visible = False
        self._tally.next_response(results, warm=self.watch.hush(now) <= CACHE_LIFE_S)
        # Drop the events that the last response left unread.
        self._named.next_step(demanded)
        self.events = [TurnStarted(self._tally.expected, self._opening.adapted), *self._said_late()]
        self.outgoing.extend(self._calls.submit(results))
        self.watch.progressed = now
        self._results_given = self._heard = self._unconfirmed = True
        self._known_there = False
        self._spoke = False
        self._progress_made()
        if waiting := self._calls.next_waiting():
            self._show(waiting)
            self._settle_step(now)

    def _said_late(self) -> Sequence[Event]:
        """Events that arrived after the last response had ended."""
        events, chars = self._late_words.take()
        if events:
            self.visible = self._moved = True
            self._tally.spoken_chars += chars
        return events

    def finish_job(self, call: Call, messages: Sequence[bytes], now: float) -> None:
        """Answer a call whose job ran in the gateway."""
        self.watch.progressed = now
        self._heard = True
        self._known_there = False
        self._spoke = False
        self.outgoing.extend(self._calls.ran(call, messages))

    def snapshot(self, backend: str) -> Snapshot | None:
        if self._checkpoint is None or not self._kept or not self.ended:
            return None
        unread = "\n\n".join([text.text for text in self._unread]) if self._unread else ""
        state = write_state(self._opening.kept_as, self._checkpoint, unread)
        return Snapshot(backend, state, dict(self._blobs.own), self._blobs.fetch, self._parent)

    # ---- the server's side

    def _take(self, message: pb.AgentServerMessage, now: float) -> None:
        match message.WhichOneof("message"):
            case "interaction_update":
                self._update(message.interaction_update, now)
            case "kv_server_message":
                news = self._blobs.news
                answer = self._blobs.answer(message.kv_server_message)  # at once, also while parked
                if self._blobs.news > news:
                    self.watch.progressed = now
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
                self.watch.progressed = now
                self._tally.calling()
                self._tally.answered()
                self.outgoing.append(answer_query(message.interaction_query, self._web, self._tools))
                if self._searches is not None:
                    search = message.interaction_query.web_search_request_query.args
                    self._searched(self._searches.begun(search.tool_call_id, search.search_term))
                if plan := plan_text(message.interaction_query):
                    self._words(heavy.TEXT, plan, now)  # always the same: an attempt may repeat it
            case _:
                pass  # a message of a newer server: the official client does not answer unknown messages either

    def _save(self, checkpoint: pb.ConversationStateStructure, now: float) -> None:
        self.watch.progressed = now
        state = checkpoint.SerializeToString()
        self._kept = bool(state)
        if not state:
            return  # the checkpoint is too large to keep (`wire.heavy`): a new attempt starts from the previous one
        self._checkpoint = state
        if self._unconfirmed:
            self._confirmed()
        if (more := self._tally.details(checkpoint.token_details)) is not None and self._learn is not None:
            self._learn(self._unseen + more)
        if self._calls.answered:
            held = held_results(checkpoint, self._blobs.own, self._older)
            self._calls.checkpointed(held, spoke=self._spoke)
            self._older = frozenset(checkpoint.root_prompt_messages_json)
        self._echo.saved()
        if self._moved:
            self._progress_made()

    def _update(self, update: pb.InteractionUpdate, now: float) -> None:
        match update.WhichOneof("message"):
            case "text_delta":
                self._words(heavy.TEXT, update.text_delta.text, now)
            case "thinking_delta":
                self._words(heavy.THINKING, update.thinking_delta.text, now)
            case "token_delta":
                self._more_comes(now)  # long reasoning may send nothing else for minutes
                self._tally.counted(update.token_delta.tokens)
            case "heartbeat" | None:
                pass
            case "tool_call_started":
                self._more_comes(now)
                self._tally.calling()
                self._see_search(update.tool_call_started)
            case "tool_call_delta":
                self._more_comes(now)
            case "partial_tool_call":
                self._more_comes(now)
                self._tally.calling()
                self._partial(update.partial_tool_call, now)
            case "tool_call_completed":
                self.watch.progressed = now
                self._tally.answered()
                if self._unconfirmed:
                    self._confirmed()
                completed = update.tool_call_completed
                self._calls.taken(wire_ids(completed.tool_call, completed.call_id))
                self._see_search(completed)
            case "tool_requests_listed":
                self._calls.listed(update.tool_requests_listed.call_count)
                self._settle_step(now)
            case "turn_ended":
                self._turn_ended(update.turn_ended)
            case "step_started":
                self.watch.progressed = now
                if self._unconfirmed:
                    self._confirmed()
            case _:
                self.watch.progressed = now

    def _more_comes(self, now: float) -> None:
        """Note that the model is writing, and how long it was silent before."""
        watch = self.watch
        silence = now - max(watch.called, watch.spoken)
        if silence > self._silence:
            self._silence = silence
        watch.progressed = watch.spoken = now

    def _words(self, kind: int, words: str, now: float) -> None:
        if self.phase is not RunPhase.PAUSED:
            self._delta(kind, words, now)
            return
        before = len(self.events)
        self._delta(kind, words, now)
        late = self.events[before:]
        del self.events[before:]
        self._keep_late(late)

    def _keep_late(self, events: Sequence[Event]) -> None:
        if not self._late_words.keep(events):
            self.lost(Loss.INCOMPLETE, None)  # the client's results go to a fresh run

    def _see_search(self, update: pb.ToolCallStartedUpdate | pb.ToolCallCompletedUpdate) -> None:
        """Report a web search that Cursor makes itself."""
        if self._searches is None or not update.tool_call.HasField("web_search_tool_call"):
            return
        call = update.tool_call.web_search_tool_call
        call_id = call.args.tool_call_id or update.tool_call.tool_call_id or update.call_id
        if isinstance(update, pb.ToolCallCompletedUpdate):
            self._searched(self._searches.over(call_id, call))
        else:
            self._searched(self._searches.begun(call_id, call.args.search_term))

    def _searched(self, events: Sequence[WebSearch]) -> None:
        if not events or self._echo.skip:  # a new attempt repeats what was shown
            return
        if self.phase is RunPhase.RUNNING:
            self.visible = self._moved = True
            self.events += events
        elif self.phase is RunPhase.PAUSED:
            self._keep_late(events)

    def _delta(self, kind: int, words: str, now: float) -> None:
        watch = self.watch
        watch.progressed = watch.spoken = now
        self._spoke = True
        if kind == heavy.TEXT:
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

    def _partial(self, partial: pb.PartialToolCallUpdate, now: float) -> None:
        call = partial.tool_call
        ids = wire_ids(call, partial.call_id)
        if not ids:
            return
        if call.WhichOneof("tool") == "mcp_tool_call":
            name = client_name(call.mcp_tool_call.args, self._tools)
            if name in self._tools and self._named.name in ("", name):
                self._next_step()
                self._show(self._calls.begin(ids, name, mcp_answer))
        self._show(self._calls.grow(ids, partial.args_text_delta))
        if self._calls.writing:
            self._settle_step(now)  # the step has another call

    def _turn_ended(self, ended: pb.TurnEndedUpdate) -> None:
        if self.phase is not RunPhase.RUNNING:
            return
        if self._calls.owed or self._calls.writing or self._echo.skip:
            raise Diverged("the model ended its answer before it was where it had been")
        if not (ended.input_tokens or ended.output_tokens) and self.reshapable:
            self.empty_turn = True
            return
        if self._unconfirmed:
            self._confirmed()
        self.events.append(UsageReported(self._tally.ended(read_total(ended))))
        if self._named.rejected:
            self.events.append(self._named.note)
        self.events.append(TurnEnded())
        self._ended = True
        self.phase = RunPhase.OVER

    # ---- execs: each gets an answer

    def _exec(self, exec_: pb.ExecServerMessage, now: float) -> None:
        self.watch.progressed = now
        ready = ready_answer(exec_, self._tools, self._opening.context)
        if ready is not None:
            if exec_.HasField("mcp_args"):
                self._tally.calling()
            self.outgoing += ready
        elif not exec_.HasField("mcp_args"):
            self._built_in(exec_, now)
        elif self._named.name and self._rejects(
            exec_.mcp_args.tool_call_id,
            client_name(exec_.mcp_args, self._tools),
            arguments_json(exec_.mcp_args.args),
        ):
            self._reject(exec_, now)
        elif len(arguments := arguments_json(exec_.mcp_args.args)) > MAX_ARGUMENT_CHARS:
            self._too_large(exec_, now)
        else:
            name, call_id = client_name(exec_.mcp_args, self._tools), exec_.mcp_args.tool_call_id
            if self._calls.unseen(call_id) and (correction := self._check.correction(name, arguments)):
                self._tally.calling()
                self.outgoing += mcp_answer(exec_.id, ToolResult("", (Text(correction),), is_error=True))
            else:
                self._ask(exec_, call_id, name, arguments, mcp_answer, now)

    def _too_large(self, exec_: pb.ExecServerMessage, now: float) -> None:
        """The call's arguments are too large to process. If the model's own text of the call has arrived whole, it is
        used; otherwise the answer tells the model that the call was too large."""
        self.watch.progressed = now
        name, call_id = client_name(exec_.mcp_args, self._tools), exec_.mcp_args.tool_call_id
        if name in self._tools and self._named.rejects(name):
            self._reject(exec_, now)
            return
        text, begun = self._calls.written(call_id)
        if name in self._tools and len(text) <= MAX_ARGUMENT_CHARS and whole(text):
            self._ask(exec_, call_id, name, text, mcp_answer, now)
            return
        self._oversized += 1
        if begun or self._oversized > MAX_OVERSIZED:
            raise cannot_go_on(name or exec_.WhichOneof("message") or "a tool", begun=begun)
        self._tally.calling()
        self.outgoing.extend(too_large(exec_))

    def _built_in(self, exec_: pb.ExecServerMessage, now: float) -> None:
        self._tally.calling()
        match self._policy(exec_):
            case Redirect(name=name, arguments=arguments) if self._rejects(execs.call_id(exec_), name, arguments):
                self._reject(exec_, now)
            case Redirect(name=name, arguments=arguments, convert=convert, carries_text=carries):
                self._ask(exec_, execs.call_id(exec_), name, arguments, convert, now, typed=not carries)
            case RunHere():
                kind = exec_.WhichOneof("message") or ""
                self._worked_here = self._worked_here or kind not in _READ_ONLY
                self._ask(exec_, execs.call_id(exec_), kind, execs.essence(exec_), None, now)
            case Refuse(reason=reason):
                self.outgoing.extend(execs.refuse(exec_, reason))
            case EndTurn(error=error):
                raise error

    def _rejects(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether `tool_choice` forbids the call. A new attempt may repeat allowed calls of earlier steps."""
        return not self._calls.knows(call_id, name, arguments) and self._named.rejects(name)

    def _reject(self, exec_: pb.ExecServerMessage, now: float) -> None:
        """Reject a call of another tool than the demanded tool. The last rejection is withheld: either the demanded
        call comes in the same step, or the turn ends."""
        self._tally.calling()
        self._heard = True
        self._calls.left_out()
        rejection = execs.refuse(exec_, self._named.rejection)
        if self._named.spent and self.phase is RunPhase.RUNNING and not self._calls.step:
            self._withheld += rejection
            self.watch.called = now
        else:
            self.outgoing += rejection
        self._settle_step(now)

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
        self._next_step()
        asked = self._calls.ask((call_id,), exec_.id, name, arguments, convert, typed=typed)
        if asked.replies:
            self._spoke = False
            self.outgoing.extend(asked.replies)
        self._show(asked.events)
        if asked.run:
            self.jobs = (*self.jobs, (asked.call, exec_))
        elif not asked.replies:
            silence = self.watch.hush(now)
            late = not asked.call.shown if self.phase is RunPhase.PAUSED else bool(asked.events) and self._unconfirmed
            if late:
                silence = self._silence or silence  # the silence ended with the first sign of the call
                self._pace.late(silence)
            silence = max(silence, self._silence)
            self._silence = 0.0
            sibling = late or len(self._calls.step) > 1
            self._longest_silence = max(self._longest_silence, silence) if sibling else 0.0
            self.watch.called = now
        self._settle_step(now)

    def _next_step(self) -> None:
        if self._spoke:
            if self._unconfirmed:
                self._confirmed()
                self._longest_silence = 0.0
            self._calls.went_on()

    def _confirmed(self) -> None:
        """Upstream has the results of the step: a later call is not a sibling of the answered calls."""
        self._pace.settled(self._longest_silence)
        self._unconfirmed = False
        self._silence = 0.0


# ---- Begins the conversations of one account, for any transport: composes openings, finds blobs of earlier turns, and
# keeps what one turn learned (tokens that Cursor adds, pauses between calls) for the next.


class NewConversations:
    def __init__(self, limits: ConversationLimits, surroundings: RunContext, *, check_limits: bool) -> None:
        self._limits = limits
        self._web = surroundings.web
        self.compose = Composer(surroundings, limits.max_message_bytes, check_limits=check_limits).compose
        self.unseen = UnseenTokens()
        self._paces = StepPaces(limits.sibling_quiet, limits.sibling_cap)

    def begin(
        self,
        opening: Opening,
        request: TurnRequest,
        rules: ToolRules,
        snapshot: Snapshot | None,
        unseen: int,
    ) -> Conversation:
        return Conversation(
            opening,
            request,
            policy=rules.policy,
            limits=self._limits,
            fetch_blob=blob_source(snapshot),
            parent=snapshot.parent if snapshot is not None else None,
            unseen=unseen,
            learn=self.unseen.learner(request) if snapshot is None else None,
            pace=self._paces.of(request.model),
            web=self._web,
        )
