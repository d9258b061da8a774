"""The second part of a run: the model's steps, acted out on the wire.

Words become deltas, calls become execs that are waited for, and after every tool result the conversation is stored in
blobs and a checkpoint is sent. Keeps the account of tokens. Knows nothing of HTTP.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, assert_never

import msgspec

from ..wire.messages import pb
from . import brain, execs, faults, models, queries, toolbox, updates
from .exchange import SimExchange
from .history import piece
from .model_input import InputCall, InputMessage, InputResult, InputText, Part, Thought, find
from .pending import Pending
from .script import (
    Drop,
    Exec,
    Fail,
    Hang,
    Loop,
    Mute,
    Query,
    Recall,
    Result,
    Say,
    ScriptCall,
    ScriptStream,
    Stall,
    Step,
    Think,
    ToolUse,
    Wait,
)
from .shared import Shared
from .start import Blobs, RunRefused, SimConversation
from .tokens import Piece, estimate, preamble

DROP_PAUSE_S: Final = 0.05
"""Before a scripted cut: a reset may overtake what the client has not read yet, and a checkpoint must not be lost."""
_ARGS_PIECES: Final = 3
_DELTAS_PER_COUNT: Final = 16
_DELTAS_PER_TURN: Final = 64


class Dropped(Exception):
    """The script cuts the connection here."""


@dataclass(slots=True)
class StepUsage:
    cached: int = 0
    uncached: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class _Made:
    """One tool call on its way: what was asked, and the answer that is awaited."""

    call: InputCall
    request: pb.ExecServerMessage
    args: pb.McpArgs | None
    outcome: asyncio.Future[execs.ExecOutcome]

    def shown(self, outcome: execs.ExecOutcome | None) -> pb.ToolCall | None:
        if self.args is not None:
            return execs.shown_mcp(self.args, self.call.call_id, outcome)
        return execs.shown_exec(self.request, self.call.call_id, outcome)


class Performance:
    def __init__(
        self,
        world: Shared,
        exchange: SimExchange,
        mail: Pending,
        blobs: Blobs,
        conversation: SimConversation,
        run_key: str,
        request_id: str,
        first_query: int,
    ) -> None:
        self._world = world
        self._exchange = exchange
        self._mail = mail
        self._blobs = blobs
        self._conversation = conversation
        self._history = conversation.history
        self._run_key = run_key
        self._request_id = request_id
        self._next_query = first_query
        self._next_id = 0
        self.usage = StepUsage()
        self._steps = world.steps.open(conversation.id, run_key, conversation.model)
        self.muted = False
        system = Piece(f"system\x00{conversation.system}", estimate(conversation.system))
        home = Piece(f"conversation\x00{conversation.id}", 0)
        self._prompt = [preamble(conversation.model), home, system, toolbox.piece(conversation.tools)]
        self._prompt += [piece(message) for message in self._history if message.role != "system"]
        # said and thought since the last record; `_joins` when the next text continues one
        self._text: list[str] = []
        self._text_chars = 0
        self._thought: list[str] = []
        self._thinking = False
        self._joins = False
        self._spoke = False
        self._results: tuple[str, ...] = ()
        self._new_results = 0
        self._looped = 0
        self._at = 0
        self._stalls = False

    async def play(self) -> None:
        conversation = self._conversation
        plan = brain.plan(self._history, conversation.tools, thinks=models.thinks(conversation.model))
        self._results, self._joins, self._looped, self._at = plan.results, plan.said, plan.looped, plan.at
        after = self._history[plan.at + 1 :]
        self._new_results = sum(isinstance(part, InputResult) for message in after for part in message.parts)
        for step in plan.steps:
            if isinstance(step, Fail) and step.when == "before":
                raise RunRefused(faults.SCRIPTED[step.code])
        self._think_call()
        for place, (step, following) in enumerate(zip_longest(plan.steps, plan.steps[1:]), plan.first):
            self._stalls = isinstance(following, Stall) and self._stall_due(place + 1, following.times)
            await self._do(step, place)
        self._close_thought()
        await self._record()
        self._exchange.write(updates.turn_ended(self._ended()))

    async def _do(self, step: Step, place: int) -> None:
        match step:
            case Say(text):
                await self._say(text)
            case Think(text):
                await self._think(text)
            case Result():
                await self._say("\n".join(self._results))
            case Recall():
                await self._say(brain.recall(self._history, self._at, self._new_results))
            case ScriptStream():
                await self._stream(step)
            case ScriptCall(uses, before):
                await self._call(uses, before)
            case Loop(use):
                offered = find(self._conversation.tools, use.name) is not None
                for _ in range(self._looped, brain.LOOP_LIMIT if offered else 1):
                    await self._call((use,))
                self._looped = 0
            case Exec(kind, args):
                await self._exec(kind, args)
            case Query(kind, args):
                await self._query(kind, args)
            case Fail(code, when):
                if when == "after" and not self._spoke:
                    await self._say(brain.PARTIAL_ANSWER)
                raise RunRefused(faults.SCRIPTED[code])
            case Drop(times):
                await self._drop(place, times)
            case Hang() | Mute():
                self.muted = isinstance(step, Mute)
                await asyncio.Event().wait()
            case Stall():
                pass  # acted out by the call before it
            case Wait(delay_ms):
                await asyncio.sleep(delay_ms / 1000)
            case _:
                assert_never(step)

    # ------------------------------------------------------------------ words

    async def _room(self) -> None:
        if self._exchange.congested:
            await self._exchange.drained()

    async def _say(self, text: str) -> None:
        if not text:
            return
        self._close_thought()
        for number, word in enumerate(updates.words("\n" + text if self._joins else text)):
            count = estimate(word)
            self._count_out(count)
            self._exchange.write(updates.text(word) + updates.tokens(count))
            await self._breathe(number)
        self._keep("\n" + text if self._joins else text)

    async def _think(self, text: str) -> None:
        if self._thinking:
            text = "\n" + text
        self._thinking = True
        for number, word in enumerate(updates.words(text)):
            count = estimate(word)
            self._count_out(count, reasoning=True)
            self._exchange.write(updates.thinking(word) + updates.tokens(count))
            await self._breathe(number)
        self._thought.append(text)

    def _close_thought(self) -> None:
        if self._thinking:
            self._thinking = False
            self._exchange.write(updates.thinking_completed(1))

    async def _stream(self, step: ScriptStream) -> None:
        """The hot path: one write per delta, and nothing else that costs."""
        self._close_thought()
        if self._joins:
            self._exchange.write(updates.text("\n"))
            self._keep("\n")
        template = updates.StreamTemplate(step)
        exchange, loop = self._exchange, asyncio.get_running_loop()
        delay, due = step.delay_ms / 1000, loop.time()
        tokens = -(-step.size // 4)
        for index in range(step.count):
            exchange.write(template.delta(index))
            if index % _DELTAS_PER_COUNT == _DELTAS_PER_COUNT - 1:
                exchange.write(updates.tokens(tokens * _DELTAS_PER_COUNT))
            if delay:
                due += delay
                await asyncio.sleep(max(0.0, due - loop.time()))
            if exchange.congested:
                await exchange.drained()
            elif index % _DELTAS_PER_TURN == _DELTAS_PER_TURN - 1:
                await asyncio.sleep(0)  # other streams want their turn
        exchange.write(updates.tokens(tokens * (step.count % _DELTAS_PER_COUNT)))
        self._count_out(tokens * step.count)
        if step.count * step.size:
            self._keep(brain.streamed(step))

    async def _breathe(self, number: int) -> None:
        await self._room()
        if number % _DELTAS_PER_TURN == _DELTAS_PER_TURN - 1:
            await asyncio.sleep(0)

    def _keep(self, text: str) -> None:
        kept = text[: max(0, brain.MAX_RECORDED_CHARS - self._text_chars)]
        self._text.append(kept)
        self._text_chars += len(kept)
        self._joins = self._spoke = True

    # ------------------------------------------------------------------ tools

    async def _call(self, uses: Sequence[ToolUse], before: tuple[str, ...] = ()) -> None:
        offered = [(use, tool) for use in uses if (tool := find(self._conversation.tools, use.name))]
        made: list[_Made] = []
        self._close_thought()
        model_call = self._new_id("model")
        requests = []
        for use, tool in offered:
            call_id = self._new_id("call")
            args = execs.mcp_args(tool, use, call_id)
            text = msgspec.json.encode(use.args).decode()
            self._count_out(estimate(use.name) + estimate(text))
            empty = pb.McpArgs()
            empty.CopyFrom(args)
            empty.args.clear()
            self._exchange.write(updates.call_started(call_id, execs.shown_mcp(args, call_id), model_call))
            for so_far in _growing(text, _ARGS_PIECES):
                partial = execs.shown_mcp(empty, call_id)
                self._exchange.write(updates.partial_call(call_id, partial, so_far, model_call))
            requests.append((InputCall(call_id, tool.shown, text), args))
        if len(requests) > 1:
            self._exchange.write(updates.calls_listed(len(requests)))
        for call, args in requests:
            request = pb.ExecServerMessage(mcp_args=args)
            made.append(_Made(call, request, args, self._mail.execute(request, self._new_id("exec"))))
        self._results = ()
        if made:
            await self._settle(made, model_call)
        self._results = before + self._results
        for use in uses:
            if find(self._conversation.tools, use.name) is None:
                await self._say(brain.not_offered(use.name))

    async def _exec(self, kind: str, args: dict[str, object]) -> None:
        call_id, model_call = self._new_id("call"), self._new_id("model")
        try:
            request = execs.request(kind, args, call_id)
        except execs.BadArguments as wrong:
            await self._say(f"[sim: {wrong}]")
            return
        self._close_thought()
        text = msgspec.json.encode(args).decode()
        self._count_out(estimate(kind) + estimate(text))
        shown = execs.shown_exec(request, call_id)
        if shown is not None:
            self._exchange.write(updates.call_started(call_id, shown, model_call))
            self._exchange.write(updates.partial_call(call_id, shown, text, model_call))
        outcome = self._mail.execute(request, self._new_id("exec"))
        await self._settle([_Made(InputCall(call_id, kind, text), request, None, outcome)], model_call)

    async def _settle(self, made: Sequence[_Made], model_call: str) -> None:
        """Wait for every result, show each as it comes, then record the calls in the order in which they were made."""

        async def one(call: _Made) -> execs.ExecOutcome:
            outcome = await call.outcome
            shown = call.shown(outcome)
            if shown is not None:
                self._exchange.write(updates.call_completed(call.call.call_id, shown, model_call))
            return outcome

        outcomes = await asyncio.gather(*[one(call) for call in made])
        results = [
            InputResult(call.call.call_id, call.call.name, outcome.text(), outcome.is_error())
            for call, outcome in zip(made, outcomes, strict=True)
        ]
        shown = [call.shown(outcome) for call, outcome in zip(made, outcomes, strict=True)]
        if self._stalls:
            kept = InputMessage("tool", tuple(results))
            await self._blobs.store(self._conversation.ledger.add_messages([kept]))
            await asyncio.Event().wait()
        await self._record([call.call for call in made], results, [call for call in shown if call is not None])

    async def _query(self, kind: str, args: dict[str, object]) -> None:
        call_id = self._new_id("call")
        try:
            query = queries.request(kind, args, self._next_query, call_id)
        except execs.BadArguments as wrong:
            await self._say(f"[sim: {wrong}]")
            return
        self._close_thought()
        self._next_query += 1
        text = queries.text(await self._mail.ask(query))
        call = InputCall(call_id, kind, msgspec.json.encode(args).decode())
        await self._record([call], [InputResult(call_id, kind, text, not text.startswith(("approved", "success")))], [])

    def _stall_due(self, place: int, times: int) -> bool:
        """By the script's own words: a fresh run of the same conversation counts on."""
        script = hashlib.sha256(self._history[self._at].text.encode()).hexdigest()
        return self._world.drops.due(script, self._at, place, times)

    async def _drop(self, place: int, times: int) -> None:
        if not self._world.drops.due(self._run_key, self._at, place, times):
            return
        self._close_thought()
        if self._text or self._thought:
            await self._record()
        await self._room()
        await asyncio.sleep(DROP_PAUSE_S)
        raise Dropped

    # ------------------------------------------------------------------ memory and account

    async def _record(
        self, calls: Sequence[InputCall] = (), results: Sequence[InputResult] = (), shown: Sequence[pb.ToolCall] = ()
    ) -> None:
        """Store what was said and done since the last time, then send a checkpoint."""
        thought, text = "".join(self._thought), "".join(self._text)
        self._thought, self._text, self._text_chars = [], [], 0
        parts: list[Part] = []
        steps: list[pb.ConversationStep] = []
        if thought:
            parts.append(Thought(thought))
            steps.append(pb.ConversationStep(thinking_message=pb.ThinkingMessage(text=thought)))
        if text:
            parts.append(InputText(text))
            steps.append(pb.ConversationStep(assistant_message=pb.AssistantMessage(text=text)))
        parts.extend(calls)
        steps.extend(pb.ConversationStep(tool_call=call) for call in shown)
        messages = [InputMessage("assistant", tuple(parts))] if parts else []
        messages += [InputMessage("tool", (result,)) for result in results]
        self._history.extend(messages)
        self._prompt += [piece(message) for message in messages]
        ledger = self._conversation.ledger
        await self._blobs.store([*ledger.add_messages(messages), *ledger.add_steps(steps)])
        await self._blobs.store([ledger.write_turn()])
        used = sum(part.tokens for part in self._prompt)
        self._exchange.write(updates.checkpoint(ledger.checkpoint(used)))
        await self._room()
        if results:
            self._results = tuple(result.text for result in results)
            self._new_results += len(results)
            self._joins = False
            self._think_call()  # the model reads the results: one more call, most of it cached

    def _think_call(self) -> None:
        charge = self._world.cache.charge(self._prompt)
        self.usage.cached += charge.cached
        self.usage.uncached += charge.uncached
        self._world.stats.tokens_in_cached += charge.cached
        self._world.stats.tokens_in_uncached += charge.uncached
        self._steps.step(charge.cached, charge.uncached)

    def _count_out(self, tokens: int, *, reasoning: bool = False) -> None:
        self.usage.output += tokens
        self.usage.reasoning += tokens if reasoning else 0
        self._world.stats.tokens_out += tokens
        self._steps.said(tokens)

    def _ended(self) -> pb.TurnEndedUpdate:
        usage = self.usage
        self._steps.ended = True
        written = usage.uncached if models.writes_cache(self._conversation.model) else 0
        return pb.TurnEndedUpdate(
            input_tokens=usage.cached + usage.uncached,
            output_tokens=usage.output,
            cache_read_tokens=usage.cached,
            cache_write_tokens=written,
            reasoning_tokens=usage.reasoning,
            ended_at_ms=int(self._world.clock() * 1000),
        )

    def _new_id(self, kind: str) -> str:
        """Unique, because the request id is; the same every time, because nothing here is random."""
        self._next_id += 1
        digest = hashlib.sha256(f"{self._request_id}/{kind}/{self._next_id}".encode()).hexdigest()
        return f"{kind}_{digest[:16]}"


def _growing(text: str, pieces: int) -> list[str]:
    """Arguments as they are told: each time all of the text so far."""
    size = -(-len(text) // pieces)
    return [text[: start + size] for start in range(0, len(text), size)]
