"""Performs the simulated model's calls: arguments in pieces, gaps between siblings, parallel or sequential calls, a
checkpoint before the result, approval probes, queries.

Each call is shown as its arguments are written, sent as an exec or a query, and awaited; its result is recorded in the
minutes.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from caretway.cursor.wire.messages import pb

from . import brain, execs, updates
from .exchange import SimExchange
from .manners import Manners
from .model_input import InputCall, InputResult, Tool, estimate, find
from .pending import Pending
from .script import ToolUse
from .voice import Meter, Minutes, Voice

# ---- call ids

# Deterministic ids of simulated calls, models and execs; some profiles use long ids with a newline, or different ids in
# the envelope and in the call.


@dataclass(frozen=True, slots=True)
class CallIds:
    envelope: str
    """In the updates that show the call."""
    inner: str
    """In the call itself; the result has this id."""


class Ids:
    def __init__(self, request_id: str, manners: Manners) -> None:
        self._request_id = request_id
        self._manners = manners
        self._last = 0

    def new(self, kind: str) -> str:
        return f"{kind}_{self._digest(kind)[:16]}"

    def call(self) -> CallIds:
        digest = self._digest("call")
        inner = long_id(digest, self._last) if self._manners.long_ids else f"call_{digest[:16]}"
        return CallIds(f"toolu_{digest[40:64]}" if self._manners.two_ids else inner, inner)

    def _digest(self, kind: str) -> str:
        self._last += 1
        return hashlib.sha256(f"{self._request_id}/{kind}/{self._last}".encode()).hexdigest()


def long_id(digest: str, number: int) -> str:
    """Two ids joined by a newline, 85 characters for the first nine, as recorded from Cursor."""
    return f"call-{_uuid(digest[:32])}-{number}\nfc_{_uuid(digest[32:64])}_{number}"


def _uuid(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


# ---- play calls


_ARGS_PIECES: Final = 3


class Left(Exception):
    """The script ends the stream here without an error and without `turn_ended`."""


@dataclass(frozen=True, slots=True)
class _Made:
    """One tool call in progress: its request and the awaited result."""

    ids: CallIds
    call: InputCall
    request: pb.ExecServerMessage
    args: pb.McpArgs | None
    outcome: asyncio.Future[execs.ExecOutcome]

    def shown(self, outcome: execs.ExecOutcome | None) -> pb.ToolCall | None:
        if self.args is not None:
            return execs.shown_mcp(self.args, self.ids.inner, outcome)
        return execs.shown_exec(self.request, self.ids.inner, outcome)


_Answered = tuple[execs.ExecOutcome, pb.ToolCall | None]
"""The result of a call, and the call as it is displayed with the result."""


@dataclass(slots=True)
class Given:
    """The results of the last calls, the number of results in this turn, and all results of this run."""

    results: tuple[str, ...] = ()
    new: int = 0
    all_results: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CallPlayer:
    manners: Manners
    exchange: SimExchange
    pending: Pending
    tools: tuple[Tool, ...]
    ids: Ids
    meter: Meter
    voice: Voice
    minutes: Minutes
    next_query: int
    given: Given = field(default_factory=Given)
    stalls: bool = False
    """The results of the next call are stored, and the run sends nothing more."""
    abandons: bool = False
    """The next call is made, but its results are not awaited."""

    async def call(self, uses: Sequence[ToolUse], before: tuple[str, ...] = ()) -> None:
        offered = [(use, tool) for use in uses if (tool := find(self.tools, use.name))]
        self.voice.close_thought()
        model_call = self.ids.new("model")
        written: list[tuple[CallIds, InputCall, pb.McpArgs]] = []
        made: list[_Made] = []
        for index, (use, tool) in enumerate(offered):
            if index and (gap := gap_before(self.manners, index)):
                await self._gap(gap)
            written.append(self._write(use, tool, model_call))
            if not self.manners.lists_calls and not self.manners.asks_in_turn:
                made.append(self._ask(*written[-1]))
        if self.manners.lists_calls and len(written) > 1:
            listed = pb.ToolRequestsListedUpdate(call_count=len(written))
            self.exchange.write(updates.update(tool_requests_listed=listed))
        for one in written[len(made) :]:
            made.append(self._ask(*one))
            if self.manners.asks_in_turn:
                await asyncio.wait([made[-1].outcome])
        self.given.results = ()
        if made:
            await self._settle(made, model_call)
        self.given.results = before + self.given.results
        for use in uses:
            if find(self.tools, use.name) is None:
                await self.voice.say(brain.not_offered(use.name))

    def _write(self, use: ToolUse, tool: Tool, model_call: str) -> tuple[CallIds, InputCall, pb.McpArgs]:
        """Show a call while its arguments are written."""
        ids = self.ids.call()
        args = execs.mcp_args(tool, use, ids.inner)
        text = msgspec.json.encode(use.args).decode()
        self.meter.said(estimate(use.name) + estimate(text))
        empty = pb.McpArgs()
        empty.CopyFrom(args)
        empty.args.clear()
        self._show(execs.shown_mcp(args, ids.inner), ids, model_call)
        for written in argument_texts(text, _ARGS_PIECES, self.manners):
            self._show_arguments(execs.shown_mcp(empty, ids.inner), ids, written, model_call)
        return ids, InputCall(ids.inner, tool.shown, text), args

    def _show(self, shown: pb.ToolCall, ids: CallIds, model_call: str) -> None:
        started = pb.ToolCallStartedUpdate(call_id=ids.envelope, tool_call=shown, model_call_id=model_call)
        self.exchange.write(updates.update(tool_call_started=started))

    def _show_arguments(self, shown: pb.ToolCall, ids: CallIds, text: str, model_call: str) -> None:
        partial = pb.PartialToolCallUpdate(
            call_id=ids.envelope, tool_call=shown, args_text_delta=text, model_call_id=model_call
        )
        self.exchange.write(updates.update(partial_tool_call=partial))

    def _show_completed(self, shown: pb.ToolCall, ids: CallIds, model_call: str) -> None:
        completed = pb.ToolCallCompletedUpdate(call_id=ids.envelope, tool_call=shown, model_call_id=model_call)
        self.exchange.write(updates.update(tool_call_completed=completed))

    def _ask(self, ids: CallIds, call: InputCall, args: pb.McpArgs) -> _Made:
        request = pb.ExecServerMessage(mcp_args=args)
        return _Made(ids, call, request, args, self.pending.execute(request, self.ids.new("exec")))

    async def _gap(self, delay_ms: int) -> None:
        """Wait while the model writes its next call."""
        if self.manners.tokens_in_gaps:
            await self.voice.ponder(delay_ms, reasoning=False)
        else:
            await asyncio.sleep(delay_ms / 1000)

    async def exec(self, kind: str, args: dict[str, object]) -> None:
        ids, model_call = self.ids.call(), self.ids.new("model")
        if kind == "write_shell_stdin" and "shell_id" not in args:
            args = args | {"shell_id": execs.started_shell(self.given.results)}
        try:
            request = execs.request(kind, args, ids.inner)
        except execs.BadArguments as wrong:
            await self.voice.say(f"[sim: {wrong}]")
            return
        self.voice.close_thought()
        text = msgspec.json.encode(args).decode()
        self.meter.said(estimate(kind) + estimate(text))
        shown = execs.shown_exec(request, ids.inner)
        if shown is not None:
            self._show(shown, ids, model_call)
            self._show_arguments(shown, ids, text, model_call)
        outcome = self.pending.execute(request, self.ids.new("exec"))
        await self._settle([_Made(ids, InputCall(ids.inner, kind, text), request, None, outcome)], model_call)

    async def probe(self, use: ToolUse) -> None:
        """Ask whether a call would be approved. It is not run and not recorded."""
        tool = find(self.tools, use.name)
        if tool is None:
            await self.voice.say(brain.not_offered(use.name))
            return
        args = execs.mcp_args(tool, use, self.ids.call().inner)
        args.smart_mode_approval_only = True
        outcome = await self.pending.execute(pb.ExecServerMessage(mcp_args=args), self.ids.new("exec"))
        self.given.results = (outcome.text(),)

    async def _settle(self, made: Sequence[_Made], model_call: str) -> None:
        """Wait for all results, show each as it comes, then record the calls in the order in which they were made."""

        async def one(call: _Made) -> _Answered:
            outcome = await call.outcome
            shown = call.shown(outcome)
            if shown is not None:
                self._show_completed(shown, call.ids, model_call)
            return outcome, shown

        if self.abandons:
            raise Left
        settled = asyncio.gather(*[one(call) for call in made])
        settled.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved: the run may be over
        try:
            calls = await self._checkpoint_at([call.call for call in made], settled)
            answered = await settled
        finally:
            settled.cancel()
        results = [
            InputResult(call.call.call_id, call.call.name, outcome.text(), outcome.is_error())
            for call, (outcome, _) in zip(made, answered, strict=True)
        ]
        if self.stalls:
            await self.minutes.keep(results)
            await asyncio.Event().wait()
        await self._record(calls, results, [shown for _, shown in answered if shown is not None])

    async def _checkpoint_at(
        self, calls: list[InputCall], settled: "asyncio.Future[list[_Answered]]"
    ) -> list[InputCall]:
        """Record the calls without results in a checkpoint, if the results take longer than the set delay. Returns the
        calls that are not recorded yet."""
        delay = self.manners.checkpoint_after_call_ms
        if delay is None:
            return calls
        done, _ = await asyncio.wait([settled], timeout=delay / 1000)
        if done:
            return calls
        await self.minutes.record(calls)
        return []

    async def query(self, kind: str, args: dict[str, object]) -> None:
        ids = self.ids.call()
        try:
            query = execs.query(kind, args, self.next_query, ids.inner)
        except execs.BadArguments as wrong:
            await self.voice.say(f"[sim: {wrong}]")
            return
        self.voice.close_thought()
        self.next_query += 1
        model_call = self.ids.new("model")
        if (shown := execs.shown_query(query, ids.inner)) is not None:
            self._show(shown, ids, model_call)
        text = execs.query_text(await self.pending.ask(query))
        if (shown := execs.shown_query(query, ids.inner, text)) is not None:
            self._show_completed(shown, ids, model_call)
        call = InputCall(ids.inner, kind, msgspec.json.encode(args).decode())
        result = InputResult(ids.inner, kind, text, not execs.agreed(text))
        await self._record([call], [result], [shown] if shown is not None else [])

    async def _record(
        self, calls: Sequence[InputCall], results: Sequence[InputResult], shown: Sequence[pb.ToolCall]
    ) -> None:
        await self.minutes.record(calls, results, shown)
        self.given.results = tuple(result.text for result in results)
        self.given.new += len(results)
        self.given.all_results.extend(self.given.results)
        self.voice.joins = False
        self.meter.model_call()  # the model reads the results in one more call, mostly from the cache


def gap_before(manners: Manners, index: int) -> int:
    """Milliseconds before the call with this index of a step."""
    gaps = manners.sibling_gaps_ms
    return gaps[(index - 1) % len(gaps)] if gaps else 0


def argument_texts(text: str, pieces: int, manners: Manners) -> list[str]:
    """The texts of the argument updates: each holds all of the text so far, or only the new part."""
    size = max(1, -(-len(text) // pieces))
    starts = range(0, len(text), size)
    if manners.argument_text == "pieces":
        return [text[start : start + size] for start in starts]
    return [text[: start + size] for start in starts]
