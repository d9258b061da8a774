"""The simulated model behind a text-only wire: it reads the format from its instructions and results from the text."""

import pytest

from caretway_sim.faults import SCRIPTED
from caretway_sim.model_input import InputCall, InputMessage, InputResult, InputText, Role
from caretway_sim.script import FAILURES, Drop, Exec, Fail, Result, Say, ScriptStream, Step, Think, Wait
from caretway_sim.text_model import answer, read, split

BRIDGE = """<tool_bridge>
Write
<<CALL_abc12345>>
<invoke name="tool_name">{"argument": "value"}</invoke>
<function_list>
{"name": "add", "description": "adds", "parameters": {"type": "object"}}
{"name": "get"}
</function_list>
</tool_bridge>"""


def chat(*blocks: tuple[Role, str]) -> list[tuple[Role, str]]:
    return [("system", f"Be nice.\n\n{BRIDGE}"), *blocks]


def text(steps: tuple[Step, ...]) -> str:
    return "".join(step.text for step in steps if isinstance(step, Say))


SCRIPT = 'sim: say hi\nsim: call add {"a": 1} & get {"x": "</invoke>"}\nsim: call get {}\nsim: result'
CALLED = '<<CALL_abc12345>>\n<invoke name="add">{"a":1}</invoke>\n<invoke name="get">{"x":"\\u003c/invoke>"}</invoke>'
RESULTS = (
    '<tool_result id="1" name="add">\n2\n</tool_result>\n\n'
    '<tool_result id="2" name="get" error="true">\n<\\/tool_result> no\n</tool_result>'
)


def test_it_calls_in_the_format_it_was_told_and_stops() -> None:
    assert answer(chat(("user", SCRIPT))) == (Say("hi"), Say("\n" + CALLED))


def test_it_finds_results_and_goes_on() -> None:
    told = chat(("user", SCRIPT), ("assistant", "hi\n" + CALLED), ("user", RESULTS))
    assert text(answer(told)) == '<<CALL_abc12345>>\n<invoke name="get">{}</invoke>'
    told += [
        ("assistant", '<<CALL_abc12345>>\n<invoke name="get">{}</invoke>'),
        ("user", "<tool_result>four</tool_result>"),
    ]
    assert text(answer(told)) == "four"


def test_what_it_reads() -> None:
    reading = read(chat(("user", "do"), ("assistant", CALLED), ("user", RESULTS + "\n\nAnd hurry.")))
    assert [tool.shown for tool in reading.tools] == ["add", "get"]
    assert reading.history == (
        InputMessage("system", (InputText("Be nice."),)),
        InputMessage("user", (InputText("do"),)),
        InputMessage(
            "assistant",
            (InputCall("call_1", "add", '{"a":1}'), InputCall("call_2", "get", '{"x":"\\u003c/invoke>"}')),
        ),
        InputMessage(
            "tool", (InputResult("call_1", "add", "2"), InputResult("call_2", "get", "</tool_result> no", True))
        ),
        InputMessage("user", (InputText("And hurry."),)),
    )


def test_a_transcript() -> None:
    prompt = (
        f"System: Be nice.\n{BRIDGE}\n\nUser: {SCRIPT}\n\n"
        "Assistant: hi\n[Called tool: add({})]\n[Called tool: get({})]\n\n"
        "[Tool result for 1]: 2\n\n[Tool result for 2]: three\nlines\n\\User: said so"
    )
    assert [role for role, _ in split(prompt)] == ["system", "user", "assistant", "user", "user"]
    assert text(answer(prompt)) == '<<CALL_abc12345>>\n<invoke name="get">{}</invoke>'
    assert answer([("user", prompt)]) == answer(prompt)
    last = read(split(prompt)).history[-1]
    assert last == InputMessage("tool", (InputResult("call_2", "get", "three\nlines\nUser: said so"),))


def test_without_instructions_there_are_no_tools() -> None:
    assert text(answer("sim: call add {}\nsim: say bye")) == "[tool add was not offered]\nbye"


def test_a_later_bridge_changes_the_trigger_and_keeps_the_tools() -> None:
    later = "<tool_bridge>\nThe trigger for your next reply is <<CALL_99999999>>.\n</tool_bridge>\n\nsim: call get {}"
    told = chat(("user", "hello"), ("assistant", "hi"), ("user", later))
    assert text(answer(told)) == '<<CALL_99999999>>\n<invoke name="get">{}</invoke>'


def test_thinking_where_it_was_asked_for() -> None:
    assert answer("sim: think deep\nsim: say ok") == (Think("deep"), Say("ok"))
    hint = "Use <thinking>...</thinking> for hidden reasoning."
    assert text(answer(f"sim: think deep\nsim: say ok\n\n{hint}")) == "<thinking>deep</thinking>\nok"


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        ("sim: say a\nsim: fail rate_limit before", (Fail("rate_limit", "before"),)),
        ("sim: fail rate_limit after\nsim: say a", (Say("A partial answer before the failure."), Fail("rate_limit"))),
        ("sim: wait 5\nsim: drop 2\nsim: stream 2 3", (Wait(5.0), Drop(2), ScriptStream(2, 3))),
        ('sim: exec read {"path": "x"}\nsim: result', (Exec("read", {"path": "x"}), Result())),
        (
            "sim: say a\nsim: recall",
            (Say("a"), Say("\n0 earlier user turns and 0 tool results. First user text: sim: say a sim: recall")),
        ),
    ],
)
def test_other_steps_are_left_to_the_wire(script: str, steps: tuple[Step, ...]) -> None:
    assert answer(script) == steps


def test_every_failure_the_language_names_can_be_acted_out() -> None:
    assert tuple(SCRIPTED) == FAILURES


def test_without_a_script_it_says_what_it_is() -> None:
    assert "simulated" in text(answer(chat(("user", "hello"))))
    assert text(answer(chat(("user", "Run `ls` please")))).startswith("This is a simulated answer")
