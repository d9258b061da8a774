"""The questions that cost runs: each sends a prompt and records facts from the answer and the traffic.

`conversing` has the prompts, `watching` interprets the traffic. A question that cannot be asked raises Skipped.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from google.protobuf.message import DecodeError

from ..core.errors import GatewayError
from ..core.request import Message, ToolCall, TurnRequest
from ..cursor.transport.ports import UnaryResponse
from ..cursor.wire import paths
from ..cursor.wire.messages import ai, pb
from . import conversing, watching
from .cases import NEEDS_TEXT, PRIVATE, Case, judged
from .context import SLOW_COMPOSER, Bench, HoldRun, ProveContext, Skipped, marker, wait_for
from .conversing import Talk
from .facts import CaseVerdict, Fact, code_of
from .watching import Moment, RunNotes

NO_SUCH_MODEL: Final = "caretway-prove-no-such-model"
ASKED_S: Final = 1.0
"""Cursor asks for a written call within this time, or only after the preceding call has its result."""
SHAPES: Final = ("base", "details", "both", "requested")
SESSIONS: Final = ("resumed", "continued", "replayed", "fresh")

# ---------------------------------------------------------------------------------------------- text


async def text(context: ProveContext) -> None:
    wanted = marker()
    talk, moments = await context.talk(await context.request(conversing.reply_with(wanted)))
    outcome = talk.outcome(wanted)
    if outcome == "refused" and moments and watching.outcome(moments) == "empty":
        outcome = "empty"
    context.found({"text": outcome} | _refusal("text_code", talk, moments))
    context.dead = outcome in ("refused", "empty", "failed")
    if outcome == "right":
        _see_text(context, moments)
    elif context.dead and context.other_version and moments:
        await _as_another(context)


def _see_text(context: ProveContext, moments: Sequence[Moment]) -> None:
    """Records the facts that the moments show; none without moments."""
    for sight in (watching.ends, watching.first_checkpoint, watching.preamble):
        context.found(sight(moments) if moments else {})


async def _as_another(context: ProveContext) -> None:
    """Tries the other client version that the user named. If Cursor serves it, all later questions use it."""
    wanted = marker()
    changes = {"agent_client_version": context.other_version}
    talk, moments = await context.talk(await context.request(conversing.reply_with(wanted)), changes=changes)
    outcome = talk.outcome(wanted)
    context.found({"other_version": outcome})
    if outcome == "right":
        context.dead = False
        context.changes |= changes
        _see_text(context, moments)


# ---------------------------------------------------------------------------------------------- tools


async def call(context: ProveContext) -> None:
    key, value = f"{marker()}-{secrets.token_hex(24)}", marker()  # long enough to arrive in pieces
    talk, moments = await context.talk(
        await context.request(conversing.call_and_tell(conversing.LOOKUP, key=key), conversing.LOOKUP),
        lambda made: value if _key(made) == key else "there is no such key",
        _checkpoint_seen,
    )
    context.found({"call": talk.outcome(value)} | ({"call_waits": talk.resumed} if talk.calls_per_step else {}))
    for sight in (watching.arguments, watching.call_ids, watching.checkpoint_after_call):
        context.found(sight(moments))


async def parallel(context: ProveContext) -> None:
    values = {marker(): marker() for _ in range(3)}
    talk, moments = await context.talk(
        await context.request(conversing.call_at_once(conversing.LOOKUP, list(values)), conversing.LOOKUP),
        lambda made: values.get(_key(made), "there is no such key"),
        _siblings_seen(len(values)),
    )
    context.found({"parallel": talk.outcome(*values.values()), "calls_per_step": talk.calls_per_step})
    context.found(watching.step(moments, len(values)))


async def loop(context: ProveContext) -> None:
    values = [marker() for _ in range(conversing.LOOP_STEPS)]
    left = iter(values)
    talk, _ = await context.talk(
        await context.request(conversing.loop(), conversing.STEP), lambda made: next(left, "there are no more steps")
    )
    context.found({"loop": talk.outcome(values[-1]), "loop_steps": sum(talk.calls_per_step)})


async def schema(context: ProveContext) -> None:
    value = marker()
    request = await context.request(conversing.call_and_tell(conversing.UNION, key=marker()), conversing.UNION)
    talk, _ = await context.talk(request, lambda made: value)
    context.found({"schema": talk.outcome(value)})
    if context.last_runs:
        codes = [watching.code(run.moments) for run in context.last_runs]
        family = code_of(context.roles.cheap.partition("[")[0].partition("-")[0])
        context.found({"schema_refused": any("provider_error" in code for code in codes), "family": family})


def _key(made: ToolCall) -> str:
    try:
        arguments = json.loads(made.arguments)
    except ValueError:
        return ""
    return str(arguments.get("key", "")) if isinstance(arguments, dict) else ""


async def _checkpoint_seen(notes: RunNotes) -> None:
    await wait_for(notes, lambda moments: watching.checkpoint_after_call(moments).get(_DELAY, -1) != -1)


_DELAY: Final = "checkpoint_after_call_ms"


def _siblings_seen(wanted: int) -> HoldRun:
    async def hold(notes: RunNotes) -> None:
        await wait_for(notes, lambda moments: len(watching.of(moments, "started")) >= wanted)
        await wait_for(notes, lambda moments: len(watching.of(moments, "exec")) >= wanted, ASKED_S)

    return hold


# ---------------------------------------------------------------------------------------------- history


async def system(context: ProveContext) -> None:
    word = marker()
    messages = (conversing.system(conversing.instructions(word)), conversing.user(conversing.OWN_INSTRUCTIONS))
    talk, _ = await context.talk(await context.request(messages))
    context.found({"system": talk.outcome(word)})


async def continuation(context: ProveContext) -> None:
    word = marker()
    first, _ = await context.talk(await context.request(conversing.remember(word, marker())))
    if first.snapshot is None:
        raise Skipped("the first turn left nothing to continue")
    messages = (*first.messages, conversing.user(conversing.RECALL))
    talk, moments = await context.talk(await context.request(messages), continued=first)
    context.found({"continuation": talk.outcome(word)})
    if talk.outcome(word) == "right":  # the second turn read from the cache
        context.found(watching.usage(moments) if moments else _usage(context, talk))


async def replay(context: ProveContext) -> None:
    messages, value = _replayed()
    talk, _ = await context.talk(await context.request(messages, conversing.LOOKUP), lambda made: "")
    context.found({"replay": talk.outcome(value)})


async def resume(context: ProveContext) -> None:
    if context.roles.cheap != SLOW_COMPOSER:
        raise Skipped(f"known of {SLOW_COMPOSER} alone")
    messages, _ = _replayed()
    request = await context.request(messages, conversing.LOOKUP)
    await context.talk(request, lambda made: "", changes=context.with_quirk("replay", "resume"))
    context.found({"resume": watching.outcome(context.last_runs[0].moments)})


def _replayed() -> tuple[tuple[Message, ...], str]:
    """A history that ends with a result under another maker's id, and the text expected in the answer."""
    key, value = marker(), marker()
    made = ToolCall(conversing.FOREIGN_ID, conversing.LOOKUP.name, json.dumps({"key": key}))
    prompt = conversing.user(conversing.call_and_tell(conversing.LOOKUP, key=key))
    return (prompt, conversing.called(made), conversing.returned((conversing.FOREIGN_ID, value))), value


async def kill(context: ProveContext) -> None:
    """One gateway answers, parks a call and is killed; a second gateway has only what the first one stored."""
    word, value = marker(), marker()
    messages: list[Mapping[str, object]] = [{"role": "user", "content": conversing.remember(word, marker())}]
    async with context.gateway() as gateway:
        said, _ = await gateway.ask(messages)
        prompt = f"{conversing.call_and_tell(conversing.LOOKUP, key=marker())}\n{conversing.RECALL}"
        messages += [said, {"role": "user", "content": prompt}]
        said, _ = await gateway.ask(messages)
        calls = said.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            context.found({"kill": "other"})
            return
        await gateway.kill()
    messages += [said, *({"role": "tool", "tool_call_id": made["id"], "content": value} for made in calls)]
    async with context.gateway() as gateway:
        said, session = await gateway.ask(messages)
    answer = str(said.get("content") or "")
    context.found({"kill": "right" if word in answer and value in answer else "other" if answer else "empty"})
    if session in SESSIONS:
        context.found({"session": session})


# ---------------------------------------------------------------------------------------------- models


async def shapes(context: ProveContext) -> None:
    """Tries each way to name a model. If nothing was answered before, later questions use the first that works."""
    request = await _with_flat_id(context)
    for shape in SHAPES:
        _, moments = await context.talk(request, changes=context.with_quirk("model", shape))
        outcome = watching.outcome(moments)
        context.found({f"shape_{shape}": outcome})
        if context.dead and outcome == "right":
            context.dead = False
            context.changes |= context.with_quirk("model", shape)
            context.roles = replace(context.roles, cheap=request.choice.exactly or request.model)
            _see_text(context, moments)


async def _with_flat_id(context: ProveContext) -> TurnRequest:
    """A request for a cheap model's variant with its own flat id, because the four ways to name it must differ."""
    base = context.roles.cheap.partition("[")[0]
    for name in filter(None, (context.roles.cheap, base, f"{base}[fast=true]", context.roles.tiered)):
        request = await context.request(conversing.reply_with(marker()), model=name)
        if request.choice.slug and request.choice.slug != request.model:
            return request
    raise Skipped("no cheap model has a flat id of its own")


async def bare_id(context: ProveContext) -> None:
    if not context.roles.tiered:
        raise Skipped("no listed model has rungs")
    _, moments = await context.talk(
        TurnRequest(context.roles.tiered, (conversing.user(conversing.reply_with(marker())),))
    )
    context.found({"bare_id": watching.outcome(moments)})


async def unknown_model(context: ProveContext) -> None:
    talk, moments = await context.talk(TurnRequest(NO_SUCH_MODEL, (conversing.user(conversing.reply_with(marker())),)))
    outcome: dict[str, Fact] = {"unknown_model": watching.outcome(moments)}
    context.found(outcome | _refusal("unknown_model_code", talk, moments))


async def thinking(context: ProveContext) -> None:
    wanted = marker()
    request = await context.request(conversing.think_then_reply(wanted), model=_second(context), thinking=True)
    talk, _ = await context.talk(request)
    outcome = talk.outcome(wanted)
    context.found({"thinking": "empty" if outcome == "right" and not talk.reasoning else outcome})


async def picture(context: ProveContext) -> None:
    if not context.main.backend.abilities.images:
        raise Skipped("this backend takes no images")
    colour = secrets.choice(list(conversing.COLOURS))
    messages = (conversing.user(conversing.COLOUR, conversing.picture(colour)),)
    talk, _ = await context.talk(await context.request(messages, model=_second(context)))
    context.found({"picture": talk.outcome(colour)})


def _second(context: ProveContext) -> str:
    if not context.roles.second:
        raise Skipped("no listed model thinks and sees; name one: --second-model")
    return context.roles.second


# ---------------------------------------------------------------------------------------------- answers


def _refusal(name: str, talk: Talk, moments: Sequence[Moment]) -> dict[str, Fact]:
    if talk.error is None:
        return {}
    return {name: watching.code(moments) or code_of(talk.error.code or talk.error.kind.value)}


def _usage(context: ProveContext, talk: Talk) -> dict[str, Fact]:
    """The usage that the backend reports; used where the service's own figures are not visible."""
    if not context.main.backend.abilities.usage:
        return {}
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


# ---- probes

# Questions that cost no run: lists, statuses, the period's usage. For the backend `agent`, whose calls we send.

QUOTA_PATIENCE_S: Final = 5.0

Probe = Callable[[str, str, bytes], Awaitable[UnaryResponse]]
"""(path, content type, body) -> the answer."""


async def _probe(bench: Bench) -> Probe:
    transport = bench.watch.transport if bench.watch else None
    assert transport is not None  # only cases of `agent` come here
    await bench.backend.models()  # the probes use the headers of this call
    return transport.probe


async def lists(context: ProveContext) -> None:
    probe = await _probe(context.main)
    flat = await probe(paths.USABLE_MODELS, paths.UNARY_TYPE, b"")
    wanted = ai.AvailableModelsRequest(use_model_parameters=True, do_not_use_markdown=True)
    bases = await probe(paths.AVAILABLE_MODELS, paths.UNARY_TYPE, wanted.SerializeToString())
    try:
        listed = pb.GetUsableModelsResponse.FromString(flat.body if flat.status == 200 else b"").models
        based = ai.AvailableModelsResponse.FromString(bases.body if bases.status == 200 else b"").models
    except DecodeError as broken:
        raise Skipped("a list is not readable") from broken
    thinking = sum(model.HasField("thinking_details") for model in listed)
    context.found({"flat_models": len(listed), "base_models": len(based), "thinking_details": thinking})


async def list_type(context: ProveContext) -> None:
    probe = await _probe(context.main)
    context.found({"list_type_status": (await probe(paths.USABLE_MODELS, paths.STREAM_TYPE, b"")).status})


async def http1_run(context: ProveContext) -> None:
    async with context.bench({"agent_transport": "http1"}) as bench:
        probe = await _probe(bench)
        context.found({"http1_run_status": (await probe(paths.RUN, paths.STREAM_TYPE, b"")).status})


async def proxy(context: ProveContext) -> None:
    """Records the kind of the proxy if the case `text` got its fact through it. Costs no run."""
    if not context.main.proxy:
        raise Skipped("no proxy is set for this address")
    if "text" not in context.facts:
        raise Skipped("shown by the case text, which was not tried")
    context.found({"proxy": context.main.proxy})


async def quota(context: ProveContext) -> None:
    probe = await _probe(context.main)
    try:
        async with asyncio.timeout(QUOTA_PATIENCE_S):
            response = await probe(paths.PERIOD_USAGE, paths.JSON_TYPE, b"{}")
    except (TimeoutError, GatewayError):
        context.found({"quota": "silent"})
    else:
        context.found({"quota": "told" if response.status == 200 else "refused"})


# ---- driver

# Tries one case after another: asks its question unless it was asked before, and judges the facts.

PATIENCE_S: Final = 180.0
"""The time limit for one question; ten steps of a real model take a minute."""

EVEN_SO: Final = ("shapes",)
"""Questions that are asked even if no text is answered, because they may show the reason."""

QUESTIONS: Final[dict[str, Callable[[ProveContext], Awaitable[None]]]] = {
    question.__name__: question
    for question in (
        lists,
        list_type,
        http1_run,
        quota,
        proxy,
        text,
        call,
        parallel,
        loop,
        system,
        continuation,
        replay,
        resume,
        kill,
        shapes,
        schema,
        unknown_model,
        bare_id,
        thinking,
        picture,
    )
}


class Prover:
    def __init__(self, context: ProveContext, patience_s: float = PATIENCE_S) -> None:
        self._context = context
        self._patience = patience_s
        self._outcomes: dict[str, str] = {}
        """Question -> why it found no fact; empty if it found one."""

    async def try_case(self, case: Case) -> CaseVerdict:
        if self._context.main.backend.name not in case.backends:
            return judged(case, {}, PRIVATE)
        if case.question not in self._outcomes:
            self._outcomes[case.question] = await self._ask(case)
        return judged(case, self._context.facts, self._outcomes[case.question])

    async def _ask(self, case: Case) -> str:
        if self._context.dead and case.runs and case.question not in EVEN_SO:
            return NEEDS_TEXT
        try:
            async with asyncio.timeout(self._patience):
                await QUESTIONS[case.question](self._context)
        except Skipped as why:
            return str(why)
        except TimeoutError:
            return f"no answer within {self._patience:.0f} s"
        except GatewayError as error:
            return f"the question failed: {code_of(error.code or error.kind.value)}"
        return ""
