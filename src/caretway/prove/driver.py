"""Asks the questions of the cases through a real backend, one after the other, and keeps the facts.

A thin edge: what is asked is in `asking`, what a run showed in `sightings`, what it means in `judging`. Each question
has a time limit; whatever goes wrong in one is told in its cases, and the others are asked all the same.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from ..core.errors import GatewayError
from ..core.request import Message, ModelChoice, ToolCall, ToolSpec, TurnRequest
from ..core.turn import Backend
from ..models.catalogue import ModelCatalogue
from ..wire import paths
from ..wire.messages import ai, pb
from . import asking, sightings
from .cases import NEEDS_TEXT, PRIVATE, Case, judged
from .choosing import SLOW_COMPOSER, Roles
from .conversing import Answer, Hold, Talk, converse
from .facts import Fact, CaseVerdict, checked, code_of
from .watching import Moment, RunNotes, Watch

PATIENCE_S: Final = 180.0
"""For one question; ten steps of a real model take a minute."""
QUOTA_PATIENCE_S: Final = 5.0
HOLD_S: Final = 1.6
"""A checkpoint was seen up to 1.5 s after a call, and so was a call after its sibling."""
NO_SUCH_MODEL: Final = "caretway-prove-no-such-model"


@dataclass(frozen=True, slots=True)
class Bench:
    """A backend to ask, the models it lists, and what passes below it; `watch` is None where that is not ours to see."""

    backend: Backend
    models: ModelCatalogue
    watch: Watch | None = None


Changes = Mapping[str, object]
"""Setting -> value, for one question."""
OpenBench = Callable[[Changes], AbstractAsyncContextManager[Bench]]


class Killable(Protocol):
    """A gateway in a process of its own."""

    async def ask(self, messages: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], str]:
        """Chat completions with the tool `lookup`: the assistant's message, and how the session went on."""
        ...

    async def kill(self) -> None:
        """Without a warning."""
        ...


StartGateway = Callable[[str], AbstractAsyncContextManager[Killable]]
"""The model -> a gateway with the settings of this run."""


class Skipped(Exception):
    """The question cannot be asked here, for this reason."""


def marker() -> str:
    return f"m{secrets.token_hex(6)}"


class Prover:
    def __init__(
        self,
        open_bench: OpenBench,
        bench: Bench,
        roles: Roles,
        start_gateway: StartGateway | None = None,
        other_version: str = "",
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._open_bench = open_bench
        self._bench = bench
        self._roles = roles
        self._start_gateway = start_gateway
        self._other_version = other_version
        self._patience = patience_s
        self._changes: dict[str, object] = {}
        """What all later questions need, too."""
        self._dead = False
        self._asked: dict[str, str] = {}
        """Question -> why it found nothing out; empty when it did."""
        self.facts: dict[str, Fact] = {}

    async def try_case(self, case: Case) -> CaseVerdict:
        if self._bench.backend.name not in case.backends:
            return judged(case, {}, PRIVATE)
        if case.question not in self._asked:
            self._asked[case.question] = await self._ask(case)
        return judged(case, self.facts, self._asked[case.question])

    async def _ask(self, case: Case) -> str:
        if self._dead and case.runs:
            return NEEDS_TEXT
        try:
            async with asyncio.timeout(self._patience):
                await QUESTIONS[case.question](self)
        except Skipped as why:
            return str(why)
        except TimeoutError:
            return f"no answer within {self._patience:.0f} s"
        except GatewayError as error:
            return f"the question failed: {code_of(error.code or error.kind.value)}"
        return ""

    def _found(self, facts: Mapping[str, Fact]) -> None:
        self.facts |= {name: checked(name, value) for name, value in facts.items()}

    # ---- without a run

    async def lists(self) -> None:
        probe = await self._probe()
        flat = await probe(paths.USABLE_MODELS, paths.UNARY_TYPE, b"")
        wanted = ai.AvailableModelsRequest(use_model_parameters=True, do_not_use_markdown=True)
        bases = await probe(paths.AVAILABLE_MODELS, paths.UNARY_TYPE, wanted.SerializeToString())
        listed = pb.GetUsableModelsResponse.FromString(flat.body if flat.status == 200 else b"").models
        based = ai.AvailableModelsResponse.FromString(bases.body if bases.status == 200 else b"").models
        thinking = sum(model.HasField("thinking_details") for model in listed)
        self._found({"flat_models": len(listed), "base_models": len(based), "thinking_details": thinking})

    async def list_type(self) -> None:
        probe = await self._probe()
        self._found({"list_type_status": (await probe(paths.USABLE_MODELS, paths.STREAM_TYPE, b"")).status})

    async def http1_run(self) -> None:
        async with self._open_bench({**self._changes, "agent_transport": "http1"}) as bench:
            probe = await self._probe(bench)
            self._found({"http1_run_status": (await probe(paths.RUN, paths.STREAM_TYPE, b"")).status})

    async def quota(self) -> None:
        probe = await self._probe()
        try:
            async with asyncio.timeout(QUOTA_PATIENCE_S):
                response = await probe(paths.PERIOD_USAGE, paths.JSON_TYPE, b"{}")
        except (TimeoutError, GatewayError):
            self._found({"quota": "silent"})
        else:
            self._found({"quota": "told" if response.status == 200 else "refused"})

    async def _probe(self, bench: Bench | None = None) -> "_Probe":
        bench = bench or self._bench
        assert bench.watch is not None and bench.watch.transport is not None  # cases of `agent` alone come here
        await bench.backend.models()  # its headers are those of the probes
        return bench.watch.transport.probe

    # ---- text

    async def text(self) -> None:
        wanted = marker()
        talk, moments = await self._talk(asking.reply_with(wanted))
        await self._end_heard()
        outcome = talk.outcome(wanted)
        if outcome == "refused" and moments and sightings.outcome(moments) == "empty":
            outcome = "empty"
        self._found({"text": outcome} | _refusal("text_code", talk, moments))
        if self._bench.watch is None:
            self._found(_usage(talk) if self._bench.backend.abilities.usage else {})
        elif outcome == "right":
            for sight in (sightings.ends, sightings.first_checkpoint, sightings.preamble, sightings.usage):
                self._found(sight(moments))
        self._dead = outcome in ("refused", "empty", "failed")
        if self._dead and self._other_version and self._bench.watch is not None:
            await self._as_another()

    async def _as_another(self) -> None:
        """The user named another version to try. If that is served, everything else is asked in its name."""
        changes = {"agent_client_version": self._other_version}
        wanted = marker()
        async with self._open_bench(changes) as bench:
            talk, moments = await self._talk(asking.reply_with(wanted), bench=bench)
            await self._end_heard()
        self._found({"other_version": talk.outcome(wanted)})
        if talk.outcome(wanted) != "right":
            return
        self._dead = False
        self._changes |= changes
        for sight in (sightings.ends, sightings.first_checkpoint, sightings.preamble, sightings.usage):
            self._found(sight(moments))

    async def _end_heard(self) -> None:
        """A turn is over at `turn_ended`; the frame that ends its stream comes a little later."""
        for run in self._last_runs:
            await _wait(run, lambda moments: bool(sightings.of(moments, "end")))

    # ---- tools

    async def call(self) -> None:
        key, value = f"{marker()}-{secrets.token_hex(24)}", marker()
        arguments: list[str] = []

        def answer(call: ToolCall) -> str:
            arguments.append(call.arguments)
            return value

        talk, moments = await self._talk(
            asking.call_and_tell(asking.LOOKUP, key=key), asking.LOOKUP, answer=answer, hold=_checkpoint_seen
        )
        self._found({"call": talk.outcome(value) if _has_key(arguments, key) else talk.outcome("\0")})
        for sight in (sightings.arguments, sightings.call_ids, sightings.checkpoint_after_call):
            self._found(sight(moments))

    async def parallel(self) -> None:
        values = {marker(): marker() for _ in range(3)}
        talk, moments = await self._talk(
            asking.call_at_once(asking.LOOKUP, list(values)),
            asking.LOOKUP,
            answer=lambda call: values.get(_key(call), "unknown key"),
            hold=_siblings_seen(len(values)),
        )
        self._found({"parallel": talk.outcome(*values.values()), "calls_per_step": talk.calls_per_step})
        self._found(sightings.step(moments, len(values)))

    async def loop(self) -> None:
        values = [marker() for _ in range(asking.LOOP_STEPS)]
        left = iter(values)
        talk, _ = await self._talk(asking.loop(), asking.STEP, answer=lambda _: next(left, "no more steps"))
        self._found({"loop": talk.outcome(values[-1]), "loop_steps": sum(talk.calls_per_step)})

    async def schema(self) -> None:
        value = marker()
        talk, _ = await self._talk(
            asking.call_and_tell(asking.UNION, key=marker()), asking.UNION, answer=lambda _: value
        )
        self._found({"schema": talk.outcome(value)})
        if self._bench.watch is not None:
            codes = [sightings.code(run.moments) for run in self._last_runs]
            self._found(
                {"schema_refused": any("provider_error" in code for code in codes), "family": _word(self._roles)}
            )

    # ---- history

    async def system(self) -> None:
        word = marker()
        messages = (asking.system(asking.instructions(word)), asking.user(asking.OWN_INSTRUCTIONS))
        talk, _ = await self._talk(messages)
        self._found({"system": talk.outcome(word)})

    async def continuation(self) -> None:
        word, wanted = marker(), marker()
        first, _ = await self._talk(asking.remember(word, wanted))
        if first.snapshot is None:
            raise Skipped("the first turn left nothing to continue")
        messages = (*first.messages, asking.user(asking.RECALL))
        request = await self._request(self._bench, messages, self._roles.cheap)
        talk = await converse(self._bench.backend, request, snapshot=first.snapshot)
        self._found({"continuation": talk.outcome(word)})

    async def replay(self) -> None:
        messages, value = _replayed()
        talk, _ = await self._talk(messages, asking.LOOKUP, answer=lambda _: "")
        self._found({"replay": talk.outcome(value)})

    async def resume(self) -> None:
        if self._roles.cheap != SLOW_COMPOSER:
            raise Skipped(f"known of {SLOW_COMPOSER} alone")
        messages, _ = _replayed()
        async with self._open_bench({**self._changes, "replay_action": "resume"}) as bench:
            await self._talk(messages, asking.LOOKUP, answer=lambda _: "", bench=bench)
            self._found({"resume": sightings.outcome(self._last_runs[0].moments)})

    async def kill(self) -> None:
        if self._start_gateway is None:
            raise Skipped("no second gateway can be started here")
        word, wanted, value = marker(), marker(), marker()
        messages: list[Mapping[str, object]] = [{"role": "user", "content": asking.remember(word, wanted)}]
        ask = f"{asking.call_and_tell(asking.LOOKUP, key=marker())}\n{asking.RECALL}"
        async with self._start_gateway(self._roles.cheap) as gateway:
            said, _ = await gateway.ask(messages)
            messages += [said, {"role": "user", "content": ask}]
            said, _ = await gateway.ask(messages)
            calls = said.get("tool_calls")
            if not isinstance(calls, list) or not calls:
                self._found({"kill": "other"})
                return
            await gateway.kill()
        messages += [said, *({"role": "tool", "tool_call_id": call["id"], "content": value} for call in calls)]
        async with self._start_gateway(self._roles.cheap) as gateway:
            said, session = await gateway.ask(messages)
        text = str(said.get("content") or "")
        self._found({"kill": "right" if word in text and value in text else "other" if text else "empty"})
        if session in ("resumed", "continued", "replayed", "fresh"):
            self._found({"session": session})

    # ---- models

    async def shape_base(self) -> None:
        await self._shape("base")

    async def shape_details(self) -> None:
        await self._shape("details")

    async def shape_both(self) -> None:
        await self._shape("both")

    async def shape_requested(self) -> None:
        await self._shape("requested")

    async def _shape(self, shape: str) -> None:
        model = await self._with_flat_id()
        async with self._open_bench({**self._changes, "agent_model_shape": shape}) as bench:
            _, moments = await self._talk(asking.reply_with(marker()), model=model, bench=bench)
            self._found({f"shape_{shape}": sightings.outcome(moments)})

    async def _with_flat_id(self) -> str:
        """A cheap model in a variant that has a flat id of its own: the four ways to name it must differ."""
        base = self._roles.cheap.partition("[")[0]
        for name in filter(None, (self._roles.cheap, base, f"{base}[fast=true]", self._roles.tiered)):
            request = await self._request(self._bench, (), name)
            if request.choice.slug and request.choice.slug != request.model:
                return name
        raise Skipped("no cheap model has a flat id of its own")

    async def bare_id(self) -> None:
        if not self._roles.tiered:
            raise Skipped("no listed model has rungs")
        request = TurnRequest(self._roles.tiered, (asking.user(asking.reply_with(marker())),))
        _, moments = await self._run(self._bench, request)
        self._found({"bare_id": sightings.outcome(moments)})

    async def unknown_model(self) -> None:
        request = TurnRequest(NO_SUCH_MODEL, (asking.user(asking.reply_with(marker())),), choice=ModelChoice())
        talk, moments = await self._run(self._bench, request)
        found: dict[str, Fact] = {"unknown_model": sightings.outcome(moments)}
        self._found(found | _refusal("unknown_model_code", talk, moments))

    async def thinking(self) -> None:
        wanted = marker()
        messages = (asking.user(asking.think_then_reply(wanted)),)
        request = await self._request(self._bench, messages, self._second(), thinking=True)
        talk, _ = await self._run(self._bench, request)
        outcome = talk.outcome(wanted)
        self._found({"thinking": "empty" if outcome == "right" and not talk.reasoning else outcome})

    async def picture(self) -> None:
        if not self._bench.backend.abilities.images:
            raise Skipped("this backend takes no pictures")
        colour = secrets.choice(list(asking.COLOURS))
        messages = (asking.user(asking.COLOUR, asking.picture(colour)),)
        talk, _ = await self._run(self._bench, await self._request(self._bench, messages, self._second()))
        self._found(
            {"picture": talk.outcome(colour) if talk.error else ("right" if colour in talk.text.lower() else "other")}
        )

    def _second(self) -> str:
        if not self._roles.second:
            raise Skipped("no listed model thinks and sees; name one: --second-model")
        return self._roles.second

    # ---- one conversation

    async def _talk(
        self,
        messages: str | Sequence[Message],
        *tools: ToolSpec,
        answer: Answer | None = None,
        hold: "Callable[[RunNotes], Awaitable[None]] | None" = None,
        model: str = "",
        bench: Bench | None = None,
    ) -> tuple[Talk, list[Moment]]:
        if isinstance(messages, str):
            messages = (asking.user(messages),)
        if bench is None and self._changes:
            async with self._open_bench(self._changes) as changed:
                return await self._talk(messages, *tools, answer=answer, hold=hold, model=model, bench=changed)
        bench = bench or self._bench
        request = await self._request(bench, tuple(messages), model or self._roles.cheap)
        return await self._run(bench, replace(request, tools=tools), answer, hold)

    async def _request(
        self, bench: Bench, messages: Sequence[Message], model: str, thinking: bool | None = None
    ) -> TurnRequest:
        return await bench.models.fit(TurnRequest(model, tuple(messages), thinking=thinking))

    async def _run(
        self,
        bench: Bench,
        request: TurnRequest,
        answer: Answer | None = None,
        hold: "Callable[[RunNotes], Awaitable[None]] | None" = None,
    ) -> tuple[Talk, list[Moment]]:
        """The moments are those of the last attempt."""
        watch = bench.watch
        before = len(watch.runs) if watch else 0
        waits: Hold | None = None
        if hold is not None and watch is not None:
            held, seen = hold, watch

            async def waits() -> None:
                await held(seen.runs[-1])

        talk = await converse(bench.backend, request, answer, waits)
        self._last_runs = watch.runs[before:] if watch else []
        return talk, self._last_runs[-1].moments if self._last_runs else []


_Probe = Callable[[str, str, bytes], Awaitable["_Response"]]


class _Response(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def body(self) -> bytes: ...


QUESTIONS: Final[dict[str, Callable[[Prover], Awaitable[None]]]] = {
    name: getattr(Prover, name)
    for name in (
        "lists",
        "list_type",
        "http1_run",
        "quota",
        "text",
        "call",
        "parallel",
        "loop",
        "system",
        "continuation",
        "replay",
        "resume",
        "kill",
        "shape_base",
        "shape_details",
        "shape_both",
        "shape_requested",
        "schema",
        "unknown_model",
        "bare_id",
        "thinking",
        "picture",
    )
}


def _replayed() -> tuple[tuple[Message, ...], str]:
    """A history that ends with a result, under an id of another maker; and what it is to be answered with."""
    key, value = marker(), marker()
    call = ToolCall(asking.FOREIGN_ID, asking.LOOKUP.name, json.dumps({"key": key}))
    asked = asking.user(asking.call_and_tell(asking.LOOKUP, key=key))
    return (asked, asking.called(call), asking.returned((asking.FOREIGN_ID, value))), value


def _key(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return ""
    return str(arguments.get("key", "")) if isinstance(arguments, dict) else ""


def _has_key(arguments: Sequence[str], key: str) -> bool:
    return any(_key(ToolCall("", "", text)) == key for text in arguments)


def _refusal(name: str, talk: Talk, moments: Sequence[Moment]) -> dict[str, Fact]:
    if talk.error is None:
        return {}
    return {name: sightings.code(moments) or code_of(talk.error.code or talk.error.kind.value)}


def _usage(talk: Talk) -> dict[str, Fact]:
    usage = talk.replies[-1].usage if talk.replies else None
    if usage is None or usage.estimated or not usage.input_tokens:
        return {"usage_told": False}
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    return {
        "usage_told": bool(usage.output_tokens),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens or 0,
        "cache_in_input": cached <= usage.input_tokens,
    }


def _word(roles: Roles) -> str:
    """The family of the cheap model, by the first word of its name."""
    return code_of(roles.cheap.partition("-")[0].partition("[")[0])


async def _checkpoint_seen(notes: RunNotes) -> None:
    await _wait(
        notes, lambda moments: sightings.checkpoint_after_call(moments).get("checkpoint_after_call_ms", -1) != -1
    )


def _siblings_seen(wanted: int) -> Callable[[RunNotes], Awaitable[None]]:
    async def hold(notes: RunNotes) -> None:
        await _wait(notes, lambda moments: len(sightings.of(moments, "started")) >= wanted)

    return hold


async def _wait(notes: RunNotes, seen: Callable[[Sequence[Moment]], bool]) -> None:
    """Until it is seen, or will not be."""
    try:
        async with asyncio.timeout(HOLD_S):
            while not seen(notes.moments):
                await notes.more()
    except TimeoutError:
        pass
