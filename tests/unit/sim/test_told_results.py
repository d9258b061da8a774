"""Results outside of `tool-result` parts: in the steps of turns, in an assistant's prose."""

from caretway_sim.brain import count_results, plan
from caretway_sim.model_input import InputCall, InputMessage, InputResult, InputText
from caretway_sim.script import Result
from caretway_sim.start import in_prose, in_turns

ASKED = InputMessage("user", (InputText('sim: call add {"a": 1}\nsim: result'),))
PROSE = (
    "[Tool Result]\n[tool_result]\ncall_id: call_1\nname: add\ninvoked: add with {}\nis_error: false\n"
    "output:\nseven\nit is"
)


def told(text: str) -> list[InputMessage]:
    return in_prose([ASKED, InputMessage("assistant", (InputText(text),))])


def test_r21_a_result_in_prose_is_seen() -> None:
    todo = plan(told(PROSE), ())
    assert todo.steps == (Result(),)
    assert todo.results == ("seven\nit is",)


def test_a_short_form_and_words_before_it() -> None:
    _, message = told("I look.\n[Tool Result]\ninvoked: add with {}\nrain")
    assert message.parts == (
        InputText("I look."),
        InputCall("told-1-0", "", "{}"),
        InputResult("told-1-0", "", "rain", in_prose=True),
    )


def test_several_results_in_one_message() -> None:
    _, message = told(f"{PROSE}\n\n[Tool Error]\noutput:\nbroken")
    assert [part.text for part in message.parts if isinstance(part, InputResult)] == ["seven\nit is", "broken"]


def test_other_prose_stays_prose() -> None:
    messages = [ASKED, InputMessage("assistant", (InputText("the words [Tool Result] in a line"),))]
    assert in_prose(messages) == messages


def test_r21_a_result_in_turns_is_seen() -> None:
    turn = [
        ASKED,
        InputMessage("assistant", (InputText("I look."),)),
        InputMessage("assistant", (InputCall("c", "add", "{}"),)),
        InputMessage("tool", (InputResult("c", "add", "seven"),)),
    ]
    merged = in_turns([ASKED, InputMessage("assistant", (InputText("I look."),))], [turn])
    assert [message.role for message in merged] == ["user", "assistant", "assistant", "tool"]
    assert merged[-1].parts == (InputResult("c", "add", "seven", in_prose=True),)
    assert count_results(merged) == 0, "the state does not hold it as a result"


def test_what_the_roots_have_is_not_told_twice() -> None:
    roots = [
        ASKED,
        InputMessage("assistant", (InputCall("c", "add", "{}"),)),
        InputMessage("tool", (InputResult("c", "add", "seven"),)),
        InputMessage("user", (InputText("thanks"),)),
    ]
    assert in_turns(roots, [roots[:3], [roots[3]]]) == roots


def test_roots_without_a_word_of_the_user_stay_as_they_are() -> None:
    said = [InputMessage("assistant", (InputText("I look."),))]
    assert in_turns(said, []) == in_turns(said, [[ASKED]]) == said
    assert in_turns([], []) == []


def test_results_of_an_earlier_turn_stand_where_they_belong() -> None:
    later = InputMessage("user", (InputText("thanks"),))
    turn = [ASKED, InputMessage("tool", (InputResult("c", "add", "seven"),))]
    assert [message.role for message in in_turns([ASKED, later], [turn, [later]])] == ["user", "tool", "user"]
