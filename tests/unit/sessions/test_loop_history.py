"""The loop guard, as stories: what the model did step by step, and what the guard says at the end."""

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caretway.core.errors import ErrorKind
from caretway.core.request import Image, Message, Role, Text, ToolCall, ToolResult, ToolSpec, TurnRequest
from caretway.sessions import loop_history as module
from caretway.sessions.loop_history import CallOutcome, Correct, LoopGuard, Ok, Stop, Verdict, corrected, outcome


@dataclass(frozen=True)
class Did:
    """One call with its result."""

    tool: str
    result: str = "ok"
    arguments: str = "{}"
    failed: bool = False


@dataclass(frozen=True)
class Said:
    """The user speaks: after an answer of the model, or (`beside`) together with the results."""

    text: str
    beside: bool = False


Line = Did | Said | tuple[Did, ...]


def history(*lines: Line) -> tuple[Message, ...]:
    messages = [Message(Role.SYSTEM, (Text("be good"),)), Message(Role.USER, (Text("do it"),))]
    count = 0
    for line in lines:
        if isinstance(line, Said):
            if not line.beside:
                messages.append(Message(Role.ASSISTANT, (Text("Done."),)))
            messages.append(Message(Role.USER, (Text(line.text),)))
            continue
        step = line if isinstance(line, tuple) else (line,)
        ids = [f"call_{count + n}" for n in range(len(step))]
        count += len(step)
        calls = [ToolCall(call_id, did.tool, did.arguments) for call_id, did in zip(ids, step, strict=True)]
        messages.append(Message(Role.ASSISTANT, (Text("Let me see."), *calls)))
        messages += [
            Message(Role.TOOL, (ToolResult(call_id, (Text(did.result),), did.failed),))
            for call_id, did in zip(ids, step, strict=True)
        ]
    return tuple(messages)


SAVE: Final = Did("save")
READ: Final = Did("read", "text", '{"path": "a"}')
REFUSED: Final = Did("read", "Error: missing required parameter `path`")
REMIND: Final = Said("<reminder>be brief</reminder>", beside=True)

STORIES: Final[list[tuple[str, list[Line], type[Verdict]]]] = [
    ("nothing happened", [], Ok),
    ("one call", [SAVE], Ok),
    ("one repeat", [SAVE] * 2, Ok),
    ("two repeats are told to the model", [SAVE] * 3, Correct),
    ("three end the turn", [SAVE] * 4, Stop),
    ("and so do more", [SAVE] * 30, Stop),
    ("other arguments", [Did("save", arguments=f'{{"n": {n}}}') for n in range(9)], Ok),
    ("other tools", [Did(f"save_{n}") for n in range(9)], Ok),
    ("arguments spelled anew", [Did("save", arguments=a) for a in ('{"a":1,"b":2}', '{"b": 2, "a": 1}') * 2], Stop),
    ("no arguments, spelled in three ways", [Did("save", arguments=a) for a in ("", "{}", " { } ")], Correct),
    ("arguments that are no JSON", [Did("save", arguments="{oops")] * 3, Correct),
    ("a result that moves", [Did("status", f"{n} %") for n in range(30)], Ok),
    ("a result that moves back and forth", [Did("status", "busy"), Did("status", "idle")] * 15, Ok),
    ("a result that stops moving", [Did("status", "1 %"), *[Did("status", "2 %")] * 3], Correct),
    ("white space around a result does not count", [SAVE, Did("save", "ok\n"), Did("save", " ok")], Correct),
    ("success and failure differ", [SAVE, Did("save", failed=True), SAVE], Ok),
    ("two calls in turn", [SAVE, Did("load")] * 2, Ok),
    ("two calls in a circle", [SAVE, Did("load"), SAVE, Did("load"), SAVE, Did("load")], Correct),
    ("two calls in a circle, on and on", [SAVE, Did("load")] * 4, Stop),
    ("something new in between", [SAVE, SAVE, Did("load"), SAVE, SAVE], Ok),
    ("something new at every other step", [d for n in range(9) for d in (SAVE, Did("edit", f"{n}"))], Ok),
    ("something new beside it", [(SAVE, Did("edit", f"{n}")) for n in range(9)], Ok),
    ("something known in between", [Did("load"), SAVE, SAVE, Did("load"), SAVE], Correct),
    ("something else after the correction", [SAVE, SAVE, SAVE, Did("load")], Ok),
    ("back to it after something else", [SAVE, SAVE, SAVE, Did("load"), SAVE], Ok),
    ("twins in one step are one call", [(SAVE, SAVE, SAVE, SAVE)], Ok),
    ("twins in three steps", [(SAVE, SAVE)] * 3, Correct),
    ("the user asks again", [SAVE, Said("again"), SAVE, Said("again"), SAVE, Said("again"), SAVE], Ok),
    ("the user spoke last", [SAVE, SAVE, SAVE, SAVE, Said("stop it")], Ok),
    ("the user adds something new", [SAVE, SAVE, SAVE, Said("go on", beside=True)], Ok),
    ("the user has added something new", [SAVE, SAVE, SAVE, Said("go on", beside=True), SAVE, SAVE], Ok),
    ("the client adds a reminder every time", [SAVE, REMIND, SAVE, REMIND, SAVE, REMIND, SAVE, REMIND], Correct),
    ("reading again is cheap", [READ] * 10, Ok),
    ("ten times is enough", [READ] * 11, Correct),
    ("eleven times is too much", [READ] * 12, Stop),
    ("a command that fails", [Did("Bash", "exit 1", failed=True)] * 10, Ok),
    ("refused arguments get no patience", [REFUSED] * 3, Correct),
    ("refused arguments again", [REFUSED] * 4, Stop),
    ("one of two goes in circles", [READ, SAVE, (SAVE, READ), (SAVE, READ)], Correct),
]


@pytest.mark.seed("L01", "L05")
@pytest.mark.parametrize(("lines", "expected"), [story[1:] for story in STORIES], ids=[story[0] for story in STORIES])
def test_story(lines: list[Line], expected: type[Verdict]) -> None:
    assert type(LoopGuard().verdict(history(*lines))) is expected


@pytest.mark.parametrize("max_repeat", [1, 2, 3, 7])
def test_the_limit_is_a_setting(max_repeat: int) -> None:
    guard = LoopGuard(max_repeat)
    said = [type(guard.verdict(history(*[SAVE] * times))) for times in range(1, max_repeat + 3)]
    assert said == [Ok] * max_repeat + [Correct, Stop]
    generous = [type(guard.verdict(history(*[READ] * times))) for times in range(1, 5 * max_repeat + 3)]
    assert generous == [Ok] * (5 * max_repeat) + [Correct, Stop]


def test_zero_switches_it_off() -> None:
    assert LoopGuard(0).verdict(history(*[SAVE] * 100)) == Ok()


def test_which_tools_are_generous_is_a_setting() -> None:
    guard = LoopGuard(2, generous=frozenset({"save"}))
    assert isinstance(guard.verdict(history(*[SAVE] * 10)), Ok)
    assert isinstance(guard.verdict(history(*[READ] * 3)), Correct)


def test_correction_names_the_calls_of_the_last_step_and_how_often() -> None:
    verdict = LoopGuard().verdict(history(READ, SAVE, (SAVE, READ), (SAVE, READ)))
    assert isinstance(verdict, Correct)
    assert verdict.call_ids == ("call_4",)
    assert verdict.tools == ("save",)
    assert verdict.repeats == 2
    assert "3 times" in verdict.message


def test_every_twin_is_corrected() -> None:
    verdict = LoopGuard().verdict(history(*[(SAVE, SAVE)] * 3))
    assert isinstance(verdict, Correct)
    assert verdict.call_ids == ("call_4", "call_5")


def test_stop_is_a_tool_loop_error() -> None:
    verdict = LoopGuard().verdict(history(*[SAVE] * 4))
    assert isinstance(verdict, Stop)
    assert verdict.error.kind is ErrorKind.TOOL_LOOP
    assert verdict.error.code == "tool_loop_detected"
    assert "`save` 4 times" in verdict.error.message
    assert (verdict.tools, verdict.repeats) == (("save",), 3)


def test_corrected_extends_the_last_results_and_nothing_else() -> None:
    request = TurnRequest("m", history(SAVE, SAVE, (SAVE, READ)), tools=(ToolSpec("save"),))
    verdict = LoopGuard().verdict(history(SAVE, SAVE, SAVE))
    assert isinstance(verdict, Correct)
    assert verdict.call_ids == ("call_2",)
    changed = corrected(request, verdict)
    assert changed.messages[:-2] == request.messages[:-2]
    assert changed.messages[-1] == request.messages[-1]
    result = changed.messages[-2].parts[0]
    assert isinstance(result, ToolResult)
    assert result.content == (Text("ok"), Text(f"\n\n{verdict.message}"))
    assert request.messages[-2].parts[0] == ToolResult("call_2", (Text("ok"),))
    assert changed.tools == request.tools


def test_images_are_part_of_a_result() -> None:
    def shots(*pictures: bytes) -> tuple[Message, ...]:
        messages: list[Message] = []
        for n, picture in enumerate(pictures):
            messages.append(Message(Role.ASSISTANT, (ToolCall(f"c{n}", "screenshot", "{}"),)))
            messages.append(Message(Role.TOOL, (ToolResult(f"c{n}", (Image(picture, "image/png"),)),)))
        return tuple(messages)

    assert LoopGuard().verdict(shots(b"a", b"b", b"c", b"d")) == Ok()
    assert isinstance(LoopGuard().verdict(shots(b"a", b"a", b"a")), Correct)


def test_results_in_user_messages_count_too() -> None:
    """One dialect carries results in the user's messages."""
    messages: list[Message] = []
    for n in range(3):
        messages.append(Message(Role.ASSISTANT, (ToolCall(f"c{n}", "save", "{}"),)))
        messages.append(Message(Role.USER, (ToolResult(f"c{n}", (Text("ok"),)),)))
    assert isinstance(LoopGuard().verdict(messages), Correct)


def test_call_ids_that_are_used_again() -> None:
    """Not ours, but histories come from anywhere."""
    step = (
        Message(Role.ASSISTANT, (ToolCall("c", "save", "{}"),)),
        Message(Role.TOOL, (ToolResult("c", (Text("ok"),)),)),
    )
    assert isinstance(LoopGuard().verdict(step * 3), Correct)


def test_results_without_a_call_and_calls_without_a_result_do_not_count() -> None:
    lonely = Message(Role.TOOL, (ToolResult("x", (Text("ok"),)),))
    unanswered = Message(Role.ASSISTANT, (ToolCall("y", "save", "{}"),))
    assert LoopGuard().verdict([lonely] * 5) == Ok()
    assert LoopGuard().verdict([unanswered] * 5) == Ok()


OUTCOMES: Final = [
    ("fine", False, CallOutcome.SUCCESS),
    ("the docs say: invalid arguments are refused", False, CallOutcome.SUCCESS),
    ("no such file", True, CallOutcome.ERROR),
    ("Error: ENOENT", False, CallOutcome.ERROR),
    ("errors: 0", False, CallOutcome.SUCCESS),
    ("<tool_use_error>File has not been read yet.</tool_use_error>", False, CallOutcome.ERROR),
    ("<tool_use_error>InputValidationError: Read failed", False, CallOutcome.VALIDATION_FAILURE),
    ("The arguments provided to the tool are invalid: path", False, CallOutcome.VALIDATION_FAILURE),
    ("The edit tool was called with invalid arguments: [", False, CallOutcome.VALIDATION_FAILURE),
    ("Error: missing required parameter `path`", False, CallOutcome.VALIDATION_FAILURE),
    ("1 validation error for Args", True, CallOutcome.VALIDATION_FAILURE),
    ("Validation failed for tool 'write': content is required", False, CallOutcome.VALIDATION_FAILURE),
    ("x" * 1000 + "invalid arguments", True, CallOutcome.ERROR),
]


@pytest.mark.parametrize(("text", "failed", "expected"), OUTCOMES)
def test_outcome(text: str, failed: bool, expected: CallOutcome) -> None:
    assert outcome(ToolResult("c", (Text(text),), failed)) is expected


def test_a_very_long_history_is_judged() -> None:
    """A second's work when it is linear; comparing every call with every other one would not end in time."""
    text = "line of a file\n" * 10
    lines = [Did(f"tool_{n % 7}", text + str(n % 50), f'{{"path": "a{n % 11}", "n": {n % 3}}}') for n in range(50_000)]
    assert LoopGuard().verdict(history(*lines)) == Ok()


# ---- the short cut: whether there is anything to count

WORDS: Final = st.sampled_from(["", " ", "go on", "<reminder>"]).map(Text)
CALLS: Final = st.builds(
    ToolCall, st.sampled_from("ab"), st.sampled_from(["save", "load"]), st.sampled_from(["{}", "", '{"n":1}'])
)
RESULTS: Final = st.builds(
    ToolResult, st.sampled_from("ab"), st.sampled_from(["ok", " ok\n", "no"]).map(lambda text: (Text(text),))
)
MESSAGES: Final = st.one_of(
    st.builds(Message, st.just(Role.ASSISTANT), st.lists(CALLS, max_size=2).map(tuple)),
    st.builds(Message, st.just(Role.TOOL), st.tuples(RESULTS)),
    st.builds(Message, st.just(Role.USER), st.lists(st.one_of(RESULTS, WORDS), max_size=2).map(tuple)),
)
"""In any order, with ids that come again, results that come late or belong to nothing, and calls without one."""
DONE: Final = st.builds(
    Did, st.sampled_from(["save", "load"]), st.sampled_from(["ok", "ok\n", "no"]), st.sampled_from(["{}", '{"n": 1}'])
)
LINES: Final = st.one_of(
    DONE,
    st.lists(DONE, min_size=2, max_size=3).map(tuple),
    st.builds(Said, st.sampled_from([" ", "go on", "<reminder>"]), st.booleans()),
)


def circling(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """A few of them, then others again and again: few histories have loops by chance."""
    some, again = st.lists(one, max_size=3), st.lists(one, min_size=1, max_size=5)
    return st.builds(lambda first, loop, times, last: first + loop * times + last, some, again, st.integers(1, 4), some)


HISTORIES: Final = st.one_of(circling(LINES).map(lambda lines: history(*lines)), circling(MESSAGES).map(tuple))
BEFORE_AND_SINCE: Final = history(Did("load"), Said("go on"), SAVE, SAVE, (SAVE, Did("load")))
ASKED: Final = Message(Role.ASSISTANT, (ToolCall("a", "save", "{}"),))
SAVED: Final = Message(Role.TOOL, (ToolResult("a", (Text("ok"),)),))
SILENT: Final = Message(Role.ASSISTANT, ())


@example(BEFORE_AND_SINCE, 2)
@example((ASKED, SILENT, SAVED, ASKED, SAVED), 1)
@example((ASKED, SAVED, SILENT, Message(Role.USER, (Text(""),)), ASKED, SAVED), 1)
@given(HISTORIES, st.integers(1, 2))
def test_the_short_cut_changes_no_verdict(messages: tuple[Message, ...], max_repeat: int) -> None:
    guard = LoopGuard(max_repeat)
    short = guard.verdict(messages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_came_before", lambda _: True)
        assert repr(guard.verdict(messages)) == repr(short)


def test_a_call_that_was_made_before_the_user_spoke_is_nothing_new() -> None:
    assert isinstance(LoopGuard().verdict(BEFORE_AND_SINCE), Correct)


def calls_for(messages: tuple[Message, ...]) -> int:
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert LoopGuard().verdict(messages) == Ok()
    finally:
        sys.setprofile(before)
    return counted


EDITS: Final = [Did("edit", "File written", f'{{"n": {n}}}') for n in range(300)]
RUNS: Final = [Did("run", f"took {n} ms") for n in range(300)]


@pytest.mark.parametrize(("lines", "limit"), [(EDITS, 22), (RUNS, 4)], ids=["the same result", "new results"])
def test_calls_per_step(lines: list[Line], limit: int) -> None:
    """21 and 4 on CPython 3.11; they were 43 and 8."""
    per_step = (calls_for(history(*lines)) - calls_for(history(*lines[:100]))) / 200
    assert per_step <= limit, f"{per_step:.1f} calls per step"


def test_nothing_is_read_from_before_the_user_spoke() -> None:
    assert calls_for(history(*EDITS, Said("go on"), *EDITS[:9])) <= calls_for(history(*EDITS[:9])) + 20
