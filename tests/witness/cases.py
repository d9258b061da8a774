"""What a client that works with the real Cursor must be able to do with the simulated one. One function per case."""

import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from witness.witnesses import Seen, Witness

Case = Callable[[Witness], Awaitable[None]]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
REPLAYS = ("default", "sim-auto", "composer-2.5-fast", "claude-sonnet-5-low")
"""For some of these opencodex tells results in the steps of turns, for others in prose."""


class Wrong(Exception):
    """The client's user saw something else."""


def expect(true: object, wanted: str, seen: object) -> None:
    if not true:
        raise Wrong(f"wanted {wanted}; saw {str(seen)[:700]}")


def script(*lines: str, **more: Any) -> dict[str, Any]:
    return {"user": "\n".join(f"sim: {line}" for line in lines), **more}


def tool(name: str, *keys: str) -> dict[str, Any]:
    return {
        "name": name,
        "schema": {"type": "object", "properties": {key: {} for key in keys}, "additionalProperties": True},
    }


def fine(seen: Seen) -> Seen:
    expect(not seen.error, "a turn without an error", seen)
    return seen


def says(seen: Seen, words: str) -> None:
    expect(fine(seen).text.split() == words.split(), f"the text {words!r}", seen)


def made(seen: Seen) -> list[dict[str, Any]]:
    """The calls that the user saw, whoever ran them."""
    return [*seen.ran] if seen.ran else [*seen.calls]


async def tool_turn(
    witness: Witness, story: list[dict[str, Any]], tools: Sequence[Any], answer: str, **how: Any
) -> list[Seen]:
    """Turns until no call is open; the story grows by what was said, called and answered."""
    answers = {one["name"]: {"text": answer} for one in tools} if witness.runs_tools else None
    turns: list[Seen] = []
    while len(turns) < 5:
        seen = fine(await witness.turn(story, tools=list(tools), answers=answers, **how))
        turns.append(seen)
        story.append({"said": seen.text, "calls": seen.calls})
        if witness.runs_tools or not seen.calls:
            return turns
        story += [{"result": answer, "id": call["id"], "name": call["name"]} for call in seen.calls]
    raise Wrong(f"the calls have no end: {turns}")


def calls_of(turns: Sequence[Seen]) -> list[tuple[str, Any]]:
    return [(call["name"], call["args"]) for seen in turns for call in made(seen)]


async def models(witness: Witness) -> None:
    listed = await witness.models()
    expect("default" in listed or "sim-auto" in listed, "models", listed)


async def text(witness: Witness) -> None:
    sentence = 'Twelve "quoted" words, äöü ✓, told one after the other, as ever.'
    seen = await witness.turn([script(f"say {sentence}")])
    says(seen, sentence)
    expect(len(seen.deltas) > 3, "several deltas", seen)
    expect(seen.output > 0, "tokens of output", seen)


async def streaming(witness: Witness) -> None:
    seen = fine(await witness.turn([script("stream 10 20 80")]))
    expect(len(seen.text) == 200, "200 characters", seen)
    expect(seen.deltas[-1] - seen.deltas[0] > 300, "deltas as they are made", seen)


async def a_megabyte(witness: Witness) -> None:
    seen = fine(await witness.turn([script("stream 1000 1000")]))
    expect(len(seen.text.strip()) == 1_000_000, "a million characters", len(seen.text))


async def thinking(witness: Witness) -> None:
    seen = await witness.turn([script("think Weighing both sides.", "say Done.")], effort="high")
    says(seen, "Done.")
    expect(seen.thought.split() == ["Weighing", "both", "sides."], "thinking apart from text", seen)


async def silent_reasoning(witness: Witness) -> None:
    """For a while only tokens are counted."""
    says(await witness.turn([script("ponder 1500", "say Done.")]), "Done.")


async def instructions(witness: Witness) -> None:
    says(await witness.turn([script("say as told")], system="Answer in verse."), "as told")


async def a_call(witness: Witness) -> None:
    args = {"a": 2, "who": {"name": "Zoë", "tags": ["x", None, True, 1.5]}}
    line = f"call {witness.wire('add')} {json.dumps(args)}"
    turns = await tool_turn(witness, [script("say Calling.", line, "say Called.")], [tool("add", "a", "who")], "42")
    expect(calls_of(turns) == [("add", args)], f"one call with {args}", turns)
    expect("Calling." in turns[0].text, "the words before the call", turns)
    expect("Called." in turns[-1].text, "the words after the call", turns)


async def long_arguments(witness: Witness) -> None:
    args = {"text": 'twenty "thousand" \\ ✓ ' * 1000}
    line = f"call {witness.wire('note')} {json.dumps(args)}"
    turns = await tool_turn(witness, [script(line, "say ok")], [tool("note", "text")], "noted")
    expect(calls_of(turns) == [("note", args)], "the arguments whole", [len(str(turns))])


async def no_arguments(witness: Witness) -> None:
    turns = await tool_turn(witness, [script(f"call {witness.wire('now')} {{}}", "say ok")], [tool("now")], "noon")
    expect(calls_of(turns) == [("now", {})], "an empty object", turns)


async def two_calls_of_one_step(witness: Witness) -> None:
    left, right = witness.wire("left"), witness.wire("right")
    tools = [tool("left", "k"), tool("right", "k")]
    story = [script(f'call {left} {{"k": "one"}} & {right} {{"k": "two"}}', "say both")]
    turns = await tool_turn(witness, story, tools, "fine")
    wanted = [("left", {"k": "one"}), ("right", {"k": "two"})]
    expect(sorted(calls_of(turns)) == wanted, "each call once", turns)
    expect(len(made(turns[0])) == 2, "both in one step", turns)
    expect("both" in turns[-1].text, "the words after them", turns)


async def three_steps(witness: Witness) -> None:
    step = witness.wire("step")
    lines = [part for n in (1, 2, 3) for part in (f'call {step} {{"n": {n}}}', f"say after {n}")]
    turns = await tool_turn(witness, [script(*lines)], [tool("step", "n")], "ok")
    expect(calls_of(turns) == [("step", {"n": n}) for n in (1, 2, 3)], "three steps", turns)
    expect("after 3" in turns[-1].text, "the end", turns)


async def a_result_is_read(witness: Witness) -> None:
    """On the open stream, or from wherever this client puts it in the next request."""
    for model in REPLAYS:
        story = [script(f'call {witness.wire("add")} {{"a": 7}}', "result")]
        turns = await tool_turn(witness, story, [tool("add", "a")], f"seven for {model}", model=model)
        expect(calls_of(turns) == [("add", {"a": 7})], f"one call on {model}", turns)
        expect(f"seven for {model}" in turns[-1].text, f"the result on {model}", turns)


async def a_call_ends_soon(witness: Witness) -> None:
    """This client waits 1.5 s for the checkpoint that follows a call. The quickest of three counts."""
    fine(await witness.turn([script("say warm")]))
    took = []
    for _ in range(3):
        seen = fine(await witness.turn([script(f'call {witness.wire("add")} {{"a": 7}}')], tools=[tool("add", "a")]))
        expect(seen.calls, "a call", seen)
        took.append(seen.seconds)
    expect(min(took) < 1.5, "its end within 1.5 s", took)


async def a_failed_tool(witness: Witness) -> None:
    seen = await witness.turn(
        [script('call boom {"x": 1}', "result")],
        tools=[tool("boom", "x")],
        answers={"boom": {"text": "it broke", "failed": True}},
    )
    expect("it broke" in fine(seen).text, "the failure in the answer", seen)


async def a_tool_of_seven_seconds(witness: Witness) -> None:
    seen = await witness.turn(
        [script('call wait {"s": 7}', "result")],
        tools=[tool("wait", "s")],
        answers={"wait": {"text": "at last", "wait": 7000}},
    )
    says(seen, "at last")


async def a_handed_call(witness: Witness) -> None:
    """The call is given to the caller and the result comes with the next request."""
    for model in ("default", "sim-auto", "claude-sonnet-5-low"):
        story: list[dict[str, Any]] = [script('call add {"a": 7}', "result")]
        tools = [tool("add", "a")]
        first = fine(await witness.turn(story, tools=tools, model=model))
        expect([(c["name"], c["args"]) for c in first.calls] == [("add", {"a": 7})], f"a call on {model}", first)
        story += [{"calls": first.calls}, {"result": "seven", "id": first.calls[0]["id"], "name": "add"}]
        says(await witness.turn(story, tools=tools, model=model), "seven")


async def an_approval_probe(witness: Witness) -> None:
    """Nothing is run for it, and the turn goes on."""
    seen = fine(
        await witness.turn(
            [script('probe add {"a": 1}', "say went on")], tools=[tool("add", "a")], answers={"add": {"text": "ran"}}
        )
    )
    expect("went on" in seen.text, "the turn to go on", seen)


def recalls(seen: Seen, turns: int, word: str) -> None:
    expect(fine(seen).text.startswith(f"{turns} earlier user turn"), f"{turns} earlier turns", seen)
    expect(word in seen.text, f"the word {word}", seen)


async def a_second_turn(witness: Witness) -> None:
    first = script("say The word is PELICAN")
    said = fine(await witness.turn([first])).text
    recalls(await witness.turn([first, {"said": said}, script("recall")]), 1, "PELICAN")


async def the_same_conversation(witness: Witness) -> None:
    ident, first = str(uuid.uuid4()), script("say The word is HERON")
    said = fine(await witness.turn([first], conversation=ident)).text
    recalls(await witness.turn([first, {"said": said}, script("recall")], conversation=ident), 1, "HERON")


async def a_turn_after_a_tool(witness: Witness) -> None:
    story: list[dict[str, Any]] = [script("say The word is EGRET")]
    story.append({"said": fine(await witness.turn(story)).text})
    story.append(script(f'call {witness.wire("note")} {{"x": "y"}}', "say noted"))
    await tool_turn(witness, story, [tool("note", "x")], "fine")
    recalls(await witness.turn([*story, script("recall")], tools=[tool("note", "x")]), 2, "EGRET")


async def a_picture(witness: Witness) -> None:
    says(await witness.turn([script("say I see it", picture=PIXEL)]), "I see it")


async def a_picture_in_history(witness: Witness) -> None:
    first = script("say I see STORK", picture=PIXEL)
    recalls(await witness.turn([first, {"said": "I see STORK"}, script("recall")]), 1, "STORK")


async def ids_of_models(witness: Witness) -> None:
    """Slugs as the list has them, and bare ids; of those that need max mode only for the client that learns it."""
    slugs = ("gpt-5.4-mini-low", "claude-sonnet-5-thinking-low", "claude-4.6-opus-high-thinking", "cursor-grok-4.5-low")
    demanding = ("claude-4.6-opus-high-fast",) if witness.learns_max_mode else ()
    await witness.models()
    for model in (*slugs, "composer-2.5", "default", *demanding):
        seen = await witness.turn([script(f"say {model}")], model=model)
        expect(not seen.error and seen.text == model, f"an answer of {model}", seen)


def failure(code: str, *words: str, when: str = "") -> Case:
    async def case(witness: Witness) -> None:
        seen = await witness.turn([script(f"fail {code} {when}".strip())])
        expect(seen.error, "an error", seen)
        expect(not words or any(word in seen.error.lower() for word in words), f"one of {words}", seen.error)

    return case


async def half_an_answer(witness: Witness) -> None:
    """A connection that breaks gives an error or the whole answer."""
    seen = await witness.turn([script("say alpha", "drop 9", "say omega")])
    expect(seen.error or "omega" in seen.text, "an error or everything", seen)


async def questions(witness: Witness) -> None:
    kinds = ("web_search", "web_fetch", "ask_question", "switch_mode", "create_plan")
    seen = fine(await witness.turn([script(*(f"query {kind}" for kind in kinds), "say went on")]))
    expect("went on" in seen.text, "the turn to go on", seen)


async def built_in_tools(witness: Witness) -> None:
    lines = [
        'exec read {"path": "/nowhere/x"}',
        'exec ls {"path": "/nowhere"}',
        'exec grep {"pattern": "x", "path": "/nowhere"}',
        'exec shell_stream {"command": "true", "working_directory": "/nowhere"}',
        'exec diagnostics {"path": "/nowhere/x"}',
    ]
    expect("went on" in fine(await witness.turn([script(*lines, "say went on")])).text, "the turn to go on", lines)


async def an_unknown_exec(witness: Witness) -> None:
    expect("went on" in fine(await witness.turn([script("exec unknown {}", "say went on")])).text, "to go on", "")


async def hanging_up(witness: Witness) -> None:
    seen = await witness.turn([script("say Holding.", "hang")], cancel=True)
    expect("Holding." in seen.text, "the first words", seen)
    says(await witness.turn([script("say still here")]), "still here")


COMMON: list[tuple[str, Case]] = [
    (case.__name__, case)
    for case in (
        models,
        text,
        streaming,
        a_megabyte,
        thinking,
        silent_reasoning,
        instructions,
        a_call,
        long_arguments,
        no_arguments,
        two_calls_of_one_step,
        three_steps,
        a_result_is_read,
        a_second_turn,
        the_same_conversation,
        a_turn_after_a_tool,
        a_picture,
        a_picture_in_history,
        ids_of_models,
        half_an_answer,
        questions,
        built_in_tools,
        an_unknown_exec,
        hanging_up,
    )
] + [
    ("a_spent_limit", failure("usage_limit", "limit", "exhausted", "quota")),
    ("too_many_requests", failure("rate_limit", "rate", "limit", "exhausted")),
    ("signed_out", failure("unauthenticated", "auth", "log", "sign")),
    ("too_long", failure("overflow", "context", "long", "invalid", "window")),
    ("no_such_model", failure("bad_model", "model", "invalid", "not_found")),
    ("a_bare_refusal", failure("bare", "exhausted", "limit")),
    ("a_refused_schema", failure("schema")),
    ("a_blocked_model", failure("policy")),
    ("another_plan", failure("plan")),
    ("a_late_refusal", failure("late")),
    ("broken_inside", failure("internal", when="after")),
]
OWN: dict[str, list[tuple[str, Case]]] = {
    "pi-ai": [
        (case.__name__, case) for case in (a_failed_tool, a_tool_of_seven_seconds, a_handed_call, an_approval_probe)
    ],
    "opencodex": [(case.__name__, case) for case in (a_call_ends_soon,)],
}


def cases_of(witness: type[Witness]) -> list[tuple[str, Case]]:
    return [*COMMON, *OWN[witness.name]]
