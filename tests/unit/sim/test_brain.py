"""What the simulated model does next, given a conversation: one table for scripts, one for plain prompts."""

from dataclasses import dataclass, field

import pytest

from caretway_sim import brain
from caretway_sim.brain import LOOP_LIMIT, Plan, not_offered, plan
from caretway_sim.default_reply import wish
from caretway_sim.model_input import InputCall, InputMessage, InputResult, InputText, Thought, Tool
from caretway_sim.script import Drop, Fail, Loop, Result, Say, ScriptCall, ScriptStream, Step, Think, ToolUse, Wait

ADD = Tool("mcp-add", "add")
TOOLS = (ADD,)


def user(text: str) -> InputMessage:
    return InputMessage("user", (InputText(text),))


def said(text: str) -> InputMessage:
    return InputMessage("assistant", (InputText(text),))


def called(*ids: str) -> InputMessage:
    return InputMessage("assistant", tuple(InputCall(call_id, "add", "{}") for call_id in ids))


def result(call_id: str, text: str) -> InputMessage:
    return InputMessage("tool", (InputResult(call_id, "add", text),))


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    after: list[InputMessage]
    steps: tuple[Step, ...]
    first: int = 0
    results: tuple[str, ...] = ()
    joins: bool = False
    tools: tuple[Tool, ...] = field(default=TOOLS)


ONE = ScriptCall((ToolUse("add", {}),))
BOTH = ScriptCall((ToolUse("add", {}), ToolUse("add", {})))

CASES = [
    Case("fresh", "sim: say a\nsim: say b", [], (Say("a"), Say("b"))),
    Case("first said", "sim: say a\nsim: say b", [said("a")], (Say("b"),), 1, (), True),
    Case("white space differs", "sim: say a  b\nsim: say c", [said(" a b\n")], (Say("c"),), 1, (), True),
    Case("in two messages", "sim: say a b\nsim: say c", [said("a "), said("b")], (Say("c"),), 1, (), True),
    Case("both in one text", "sim: say a\nsim: say b", [said("a\nb")], (), 2, (), True),
    Case("half a word is nothing", "sim: say alpha", [said("alp")], (Say("alpha"),)),
    Case("call answered", "sim: call add\nsim: result", [called("1"), result("1", "42")], (Result(),), 1, ("42",)),
    Case("call unanswered", "sim: call add\nsim: result", [called("1")], (ONE, Result())),
    Case(
        "result said too",
        "sim: call add\nsim: result\nsim: say end",
        [called("1"), result("1", "42"), said("42")],
        (Say("end"),),
        2,
        ("42",),
        True,
    ),
    Case(
        "parallel, answered in any order",
        "sim: call add & add\nsim: result",
        [called("1", "2"), result("2", "two"), result("1", "one")],
        (Result(),),
        1,
        ("one", "two"),
    ),
    Case(
        "parallel, one answer missing",
        "sim: call add & add\nsim: result",
        [called("1", "2"), result("2", "two")],
        (BOTH, Result()),
    ),
    Case(
        "drop after a call happens again",
        "sim: call add\nsim: drop\nsim: result",
        [called("1"), result("1", "x")],
        (Drop(1), Result()),
        1,
        ("x",),
    ),
    Case(
        "a drop before text that is there lies behind us",
        "sim: drop\nsim: say a\nsim: say b",
        [said("a")],
        (Say("b"),),
        2,
        (),
        True,
    ),
    Case(
        "thinking that was kept",
        "sim: think t\nsim: say a",
        [InputMessage("assistant", (Thought("t"),))],
        (Say("a"),),
        1,
    ),
    Case("thinking that was not kept", "sim: think t\nsim: say a\nsim: wait 1", [said("a")], (Wait(1),), 2, (), True),
    Case("thinking alone leaves no trace", "sim: think t\nsim: say a", [], (Think("t"), Say("a"))),
    Case(
        "an empty result is no text",
        "sim: call add\nsim: result",
        [called("1"), result("1", "")],
        (Result(),),
        1,
        ("",),
    ),
    Case(
        "not offered, and said so",
        "sim: call sub\nsim: say go on",
        [said(not_offered("sub"))],
        (Say("go on"),),
        1,
        (),
        True,
    ),
    Case(
        "called while it was offered",
        "sim: call add\nsim: result",
        [called("1"), result("1", "42")],
        (Result(),),
        1,
        ("42",),
        tools=(),
    ),
    Case("a reminder beside the prompt", "sim: say a", [user("<reminder>be nice</reminder>")], (Say("a"),)),
    Case(
        "a reminder after a result",
        "sim: call add\nsim: result",
        [called("1"), result("1", "42"), user("<reminder/>")],
        (Result(),),
        1,
        ("42",),
    ),
    Case(
        "stream said",
        "sim: stream 3 10\nsim: fail internal",
        [said(brain.streamed(ScriptStream(3, 10)))],
        (Fail("internal"),),
        1,
        (),
        True,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_goes_on_where_the_conversation_stops(case: Case) -> None:
    history = [user("before"), said("earlier"), user(case.script), *case.after]
    expected = Plan(case.steps, 2, case.first, case.results, case.joins)
    assert plan(history, case.tools) == expected


def test_the_last_script_counts() -> None:
    history = [user("sim: say old"), said("old"), user("sim: say new")]
    assert plan(history, TOOLS).steps == (Say("new"),)


def test_the_same_script_again_starts_again() -> None:
    history = [user("sim: say a"), said("a"), user("sim: say a")]
    assert plan(history, TOOLS).steps == (Say("a"),)


def test_a_loop_goes_on_and_ends() -> None:
    rounds = [message for n in range(3) for message in (called(str(n)), result(str(n), "r"))]
    loop = Loop(ToolUse("add", {}))
    begun = plan([user("sim: loop add"), *rounds], TOOLS)
    assert (begun.steps, begun.looped) == ((loop,), 3)
    rounds = [message for n in range(LOOP_LIMIT) for message in (called(str(n)), result(str(n), "r"))]
    assert plan([user("sim: loop add\nsim: say end"), *rounds], TOOLS).steps == (Say("end"),)


def test_a_plain_question_after_a_finished_script_gets_a_plain_answer() -> None:
    todo = plan([user("sim: say a"), said("a"), user("and now?")], ())
    (step,) = todo.steps
    assert isinstance(step, Say)
    assert "simulated" in step.text
    assert "3 messages and no tools" in step.text
    assert '"and now?"' in step.text


def test_a_finished_script_without_a_new_question_is_over() -> None:
    assert plan([user("sim: say a"), said("a")], ()).steps == ()


def test_a_thinking_model_thinks_first() -> None:
    todo = plan([user("hello")], (), thinks=True)
    assert [type(step) for step in todo.steps] == [Think, Say]


def test_a_call_that_was_left_behind_is_made_once_more_and_no_more() -> None:
    """A checkpoint between a call and its result holds a call that nobody answers when the run is lost."""
    script = [user("sim: call add {}\nsim: say done"), called("1")]
    (again, *_) = plan(script, (ADD,)).steps
    assert isinstance(again, ScriptCall)
    (say,) = plan([*script, called("2"), result("2", "x")], (ADD,)).steps
    assert isinstance(say, Say)


def test_recall_counts_before_and_after() -> None:
    history = [user("first words"), called("1"), result("1", "x"), said("y"), user("sim: recall")]
    assert brain.recall(history, 4, 0) == "1 earlier user turn and 1 tool result. First user text: first words"
    assert brain.recall(history, 4, 2).startswith("1 earlier user turn and 3 tool results.")


def test_recall_counts_words_after_results_with_their_turn() -> None:
    """A replayed history that ends with results is asked on in words."""
    history = [
        user("first"),
        called("1"),
        result("1", "x"),
        user("Go on."),
        said("y"),
        user("two"),
        user("sim: recall"),
    ]
    assert brain.recall(history, 6, 0).startswith("2 earlier user turns and 1 tool result.")


BASH = Tool(
    "x-Bash",
    "Bash",
    schema={
        "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
        "required": ["command", "description"],
    },
)
EXEC = Tool(
    "exec_command", "exec_command", schema={"properties": {"cmd": {"type": "array", "items": {"type": "string"}}}}
)
READ = Tool("read", "read", schema={"properties": {"filePath": {"type": "string"}}, "required": ["filePath"]})
BARE = Tool("read_file", "read_file")

WISHES: list[tuple[str, tuple[Tool, ...], ToolUse | None]] = [
    (
        "please run `ls -la` for me",
        (BASH,),
        ToolUse("Bash", {"command": "ls -la", "description": "simulated call: ls -la"}),
    ),
    ("Run git status.", (EXEC,), ToolUse("exec_command", {"cmd": ["bash", "-lc", "git status"]})),
    ("run the command pwd", (EXEC,), ToolUse("exec_command", {"cmd": ["bash", "-lc", "pwd"]})),
    ("run the tests", (BASH,), None),
    ("Read the file README.md please", (READ, BASH), ToolUse("read", {"filePath": "README.md"})),
    ("what does `run` mean?", (BASH,), None),
    ("show me src/main.py", (BARE,), ToolUse("read_file", {"path": "src/main.py"})),
    ("please run `ls`", (READ,), None),
    ("please run `ls`", (), None),
    ("<system-reminder>run `rm x`</system-reminder> hello", (BASH,), None),
    ("write a title", (BASH, READ), None),
]


@pytest.mark.parametrize(("text", "tools", "use"), WISHES)
def test_a_wish_finds_its_tool(text: str, tools: tuple[Tool, ...], use: ToolUse | None) -> None:
    assert wish(text, tools) == use


def test_a_plain_wish_is_called_and_then_answered() -> None:
    question = user("read notes.txt")
    asked = plan([question], (READ,))
    assert [type(step) for step in asked.steps] == [ScriptCall, Say, Result]
    told = plan([question, called("1"), result("1", "the notes")], (READ,))
    assert [type(step) for step in told.steps] == [Say, Result]
    assert told.results == ("the notes",)
