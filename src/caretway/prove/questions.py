"""Questions that cost runs: each asks something, looks at the answer and at what passed, and tells the facts.

The words are in `asking`, what moments mean is in `sightings`. A question that cannot be asked raises Skipped.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..core.request import Message, ToolCall, TurnRequest
from . import asking, sightings
from .choosing import SLOW_COMPOSER
from .conversing import Talk
from .desk import Desk, HoldRun, Skipped, marker, wait_for
from .facts import Fact, code_of
from .watching import Moment, RunNotes

NO_SUCH_MODEL: Final = "caretway-prove-no-such-model"
ASKED_S: Final = 1.0
"""A call that is written is asked for at once, or not before the one before it has its result."""
SHAPES: Final = ("base", "details", "both", "requested")
SESSIONS: Final = ("resumed", "continued", "replayed", "fresh")

# ---------------------------------------------------------------------------------------------- text


async def text(desk: Desk) -> None:
    wanted = marker()
    talk, moments = await desk.talk(await desk.request(asking.reply_with(wanted)))
    outcome = talk.outcome(wanted)
    if outcome == "refused" and moments and sightings.outcome(moments) == "empty":
        outcome = "empty"
    desk.found({"text": outcome} | _refusal("text_code", talk, moments))
    desk.dead = outcome in ("refused", "empty", "failed")
    if outcome == "right":
        _see_text(desk, moments)
    elif desk.dead and desk.other_version and moments:
        await _as_another(desk)


def _see_text(desk: Desk, moments: Sequence[Moment]) -> None:
    """What the moments show of the text; nothing without moments."""
    for sight in (sightings.ends, sightings.first_checkpoint, sightings.preamble):
        desk.found(sight(moments) if moments else {})


async def _as_another(desk: Desk) -> None:
    """The user named another version to try. If that is served, everything else is asked in its name."""
    wanted = marker()
    changes = {"agent_client_version": desk.other_version}
    talk, moments = await desk.talk(await desk.request(asking.reply_with(wanted)), changes=changes)
    outcome = talk.outcome(wanted)
    desk.found({"other_version": outcome})
    if outcome == "right":
        desk.dead = False
        desk.changes |= changes
        _see_text(desk, moments)


# ---------------------------------------------------------------------------------------------- tools


async def call(desk: Desk) -> None:
    key, value = f"{marker()}-{secrets.token_hex(24)}", marker()  # long enough to be told in pieces
    talk, moments = await desk.talk(
        await desk.request(asking.call_and_tell(asking.LOOKUP, key=key), asking.LOOKUP),
        lambda made: value if _key(made) == key else "there is no such key",
        _checkpoint_seen,
    )
    desk.found({"call": talk.outcome(value)} | ({"call_waits": talk.resumed} if talk.calls_per_step else {}))
    for sight in (sightings.arguments, sightings.call_ids, sightings.checkpoint_after_call):
        desk.found(sight(moments))


async def parallel(desk: Desk) -> None:
    values = {marker(): marker() for _ in range(3)}
    talk, moments = await desk.talk(
        await desk.request(asking.call_at_once(asking.LOOKUP, list(values)), asking.LOOKUP),
        lambda made: values.get(_key(made), "there is no such key"),
        _siblings_seen(len(values)),
    )
    desk.found({"parallel": talk.outcome(*values.values()), "calls_per_step": talk.calls_per_step})
    desk.found(sightings.step(moments, len(values)))


async def loop(desk: Desk) -> None:
    values = [marker() for _ in range(asking.LOOP_STEPS)]
    left = iter(values)
    talk, _ = await desk.talk(
        await desk.request(asking.loop(), asking.STEP), lambda made: next(left, "there are no more steps")
    )
    desk.found({"loop": talk.outcome(values[-1]), "loop_steps": sum(talk.calls_per_step)})


async def schema(desk: Desk) -> None:
    value = marker()
    request = await desk.request(asking.call_and_tell(asking.UNION, key=marker()), asking.UNION)
    talk, _ = await desk.talk(request, lambda made: value)
    desk.found({"schema": talk.outcome(value)})
    if desk.last_runs:
        codes = [sightings.code(run.moments) for run in desk.last_runs]
        family = code_of(desk.roles.cheap.partition("[")[0].partition("-")[0])
        desk.found({"schema_refused": any("provider_error" in code for code in codes), "family": family})


def _key(made: ToolCall) -> str:
    try:
        arguments = json.loads(made.arguments)
    except ValueError:
        return ""
    return str(arguments.get("key", "")) if isinstance(arguments, dict) else ""


async def _checkpoint_seen(notes: RunNotes) -> None:
    await wait_for(notes, lambda moments: sightings.checkpoint_after_call(moments).get(_DELAY, -1) != -1)


_DELAY: Final = "checkpoint_after_call_ms"


def _siblings_seen(wanted: int) -> HoldRun:
    async def hold(notes: RunNotes) -> None:
        await wait_for(notes, lambda moments: len(sightings.of(moments, "started")) >= wanted)
        await wait_for(notes, lambda moments: len(sightings.of(moments, "exec")) >= wanted, ASKED_S)

    return hold


# ---------------------------------------------------------------------------------------------- history


async def system(desk: Desk) -> None:
    word = marker()
    messages = (asking.system(asking.instructions(word)), asking.user(asking.OWN_INSTRUCTIONS))
    talk, _ = await desk.talk(await desk.request(messages))
    desk.found({"system": talk.outcome(word)})


async def continuation(desk: Desk) -> None:
    word = marker()
    first, _ = await desk.talk(await desk.request(asking.remember(word, marker())))
    if first.snapshot is None:
        raise Skipped("the first turn left nothing to continue")
    messages = (*first.messages, asking.user(asking.RECALL))
    talk, moments = await desk.talk(await desk.request(messages), continued=first)
    desk.found({"continuation": talk.outcome(word)})
    if talk.outcome(word) == "right":  # the second turn has read from the cache
        desk.found(sightings.usage(moments) if moments else _usage(desk, talk))


async def replay(desk: Desk) -> None:
    messages, value = _replayed()
    talk, _ = await desk.talk(await desk.request(messages, asking.LOOKUP), lambda made: "")
    desk.found({"replay": talk.outcome(value)})


async def resume(desk: Desk) -> None:
    if desk.roles.cheap != SLOW_COMPOSER:
        raise Skipped(f"known of {SLOW_COMPOSER} alone")
    messages, _ = _replayed()
    request = await desk.request(messages, asking.LOOKUP)
    await desk.talk(request, lambda made: "", changes=desk.with_quirk("replay", "resume"))
    desk.found({"resume": sightings.outcome(desk.last_runs[0].moments)})


def _replayed() -> tuple[tuple[Message, ...], str]:
    """A history that ends with a result, under an id of another maker; and what it is to be answered with."""
    key, value = marker(), marker()
    made = ToolCall(asking.FOREIGN_ID, asking.LOOKUP.name, json.dumps({"key": key}))
    asked = asking.user(asking.call_and_tell(asking.LOOKUP, key=key))
    return (asked, asking.called(made), asking.returned((asking.FOREIGN_ID, value))), value


async def kill(desk: Desk) -> None:
    """One gateway answers, parks a call and is killed; the next one has only what the first one kept."""
    word, value = marker(), marker()
    messages: list[Mapping[str, object]] = [{"role": "user", "content": asking.remember(word, marker())}]
    async with desk.gateway() as gateway:
        said, _ = await gateway.ask(messages)
        asked = f"{asking.call_and_tell(asking.LOOKUP, key=marker())}\n{asking.RECALL}"
        messages += [said, {"role": "user", "content": asked}]
        said, _ = await gateway.ask(messages)
        calls = said.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            desk.found({"kill": "other"})
            return
        await gateway.kill()
    messages += [said, *({"role": "tool", "tool_call_id": made["id"], "content": value} for made in calls)]
    async with desk.gateway() as gateway:
        said, session = await gateway.ask(messages)
    answer = str(said.get("content") or "")
    desk.found({"kill": "right" if word in answer and value in answer else "other" if answer else "empty"})
    if session in SESSIONS:
        desk.found({"session": session})


# ---------------------------------------------------------------------------------------------- models


async def shapes(desk: Desk) -> None:
    """Each way to name a model. If nothing was answered before, the first that is served serves all that follows."""
    request = await _with_flat_id(desk)
    for shape in SHAPES:
        _, moments = await desk.talk(request, changes=desk.with_quirk("model", shape))
        outcome = sightings.outcome(moments)
        desk.found({f"shape_{shape}": outcome})
        if desk.dead and outcome == "right":
            desk.dead = False
            desk.changes |= desk.with_quirk("model", shape)
            desk.roles = replace(desk.roles, cheap=request.choice.exactly or request.model)
            _see_text(desk, moments)


async def _with_flat_id(desk: Desk) -> TurnRequest:
    """For a cheap model in a variant that has a flat id of its own: the four ways to name it must differ."""
    base = desk.roles.cheap.partition("[")[0]
    for name in filter(None, (desk.roles.cheap, base, f"{base}[fast=true]", desk.roles.tiered)):
        request = await desk.request(asking.reply_with(marker()), model=name)
        if request.choice.slug and request.choice.slug != request.model:
            return request
    raise Skipped("no cheap model has a flat id of its own")


async def bare_id(desk: Desk) -> None:
    if not desk.roles.tiered:
        raise Skipped("no listed model has rungs")
    _, moments = await desk.talk(TurnRequest(desk.roles.tiered, (asking.user(asking.reply_with(marker())),)))
    desk.found({"bare_id": sightings.outcome(moments)})


async def unknown_model(desk: Desk) -> None:
    talk, moments = await desk.talk(TurnRequest(NO_SUCH_MODEL, (asking.user(asking.reply_with(marker())),)))
    outcome: dict[str, Fact] = {"unknown_model": sightings.outcome(moments)}
    desk.found(outcome | _refusal("unknown_model_code", talk, moments))


async def thinking(desk: Desk) -> None:
    wanted = marker()
    request = await desk.request(asking.think_then_reply(wanted), model=_second(desk), thinking=True)
    talk, _ = await desk.talk(request)
    outcome = talk.outcome(wanted)
    desk.found({"thinking": "empty" if outcome == "right" and not talk.reasoning else outcome})


async def picture(desk: Desk) -> None:
    if not desk.main.backend.abilities.images:
        raise Skipped("this backend takes no images")
    colour = secrets.choice(list(asking.COLOURS))
    messages = (asking.user(asking.COLOUR, asking.picture(colour)),)
    talk, _ = await desk.talk(await desk.request(messages, model=_second(desk)))
    desk.found({"picture": talk.outcome(colour)})


def _second(desk: Desk) -> str:
    if not desk.roles.second:
        raise Skipped("no listed model thinks and sees; name one: --second-model")
    return desk.roles.second


# ---------------------------------------------------------------------------------------------- answers


def _refusal(name: str, talk: Talk, moments: Sequence[Moment]) -> dict[str, Fact]:
    if talk.error is None:
        return {}
    return {name: sightings.code(moments) or code_of(talk.error.code or talk.error.kind.value)}


def _usage(desk: Desk, talk: Talk) -> dict[str, Fact]:
    """As the backend reports it, where the service's own figures are not seen."""
    if not desk.main.backend.abilities.usage:
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
