"""Which turn plays which prepared script."""

from caretway_sim.brain import turn_start
from caretway_sim.model_input import InputCall, InputMessage, InputResult, InputText
from caretway_sim.prepared import ModelRequest, Prepared
from caretway_sim.script import Say, Step

FIRST: tuple[Step, ...] = (Say("first"),)
SECOND: tuple[Step, ...] = (Say("second"),)

QUESTION = InputMessage("user", (InputText("What now?"),))
CALLED = InputMessage("assistant", (InputCall("1", "look", "{}"),))
RESULT = InputMessage("tool", (InputResult("1", "look", "seen"),))
GO_ON = InputMessage("user", (InputText("Continue with the results."),))


def prepared() -> Prepared:
    scripts = Prepared()
    scripts.add(FIRST)
    scripts.add(SECOND)
    return scripts


def test_nothing_prepared_leaves_it_to_the_prompt() -> None:
    assert Prepared().steps_for("run", [QUESTION], 0) is None


def test_each_turn_takes_the_next_one() -> None:
    scripts = prepared()
    assert scripts.steps_for("run 1", [QUESTION], 0) == FIRST
    assert scripts.steps_for("run 2", [QUESTION], 0) == SECOND, "the same words in a new run are a new turn"
    assert (scripts.waiting, scripts.unscripted) == (0, 0)


def test_another_attempt_at_a_run_goes_on_with_its_own() -> None:
    scripts = prepared()
    assert scripts.steps_for("run 1", [QUESTION], 0) == FIRST
    assert scripts.steps_for("run 1", [QUESTION], 0) == FIRST
    assert scripts.waiting == 1


def test_a_replayed_conversation_goes_on_with_its_own() -> None:
    scripts = prepared()
    assert scripts.steps_for("run 1", [QUESTION], 0) == FIRST
    assert scripts.steps_for("run 2", [QUESTION, CALLED, RESULT, GO_ON], 0) == FIRST
    assert scripts.waiting == 1


def test_a_turn_too_many_is_told_and_counted() -> None:
    scripts = prepared()
    for run in ("1", "2"):
        scripts.steps_for(run, [QUESTION], 0)
    assert scripts.steps_for("3", [QUESTION], 0) == (Say("[no script is left: 2 prepared, turn 3]"),)
    assert scripts.unscripted == 1


def test_requests_are_kept_only_when_somebody_watches() -> None:
    scripts = Prepared()
    request = ModelRequest("sim-auto", "Be kind.", (QUESTION, CALLED, RESULT), ("look",), ["later"])
    scripts.note(request)
    assert scripts.requests == []
    scripts.watched = True
    scripts.note(request)
    assert scripts.requests == [request]
    assert (request.prompt, request.all_results) == ("What now?", ("seen", "later"))


def test_words_after_results_go_on_with_the_turn() -> None:
    assert turn_start([QUESTION, CALLED, RESULT, GO_ON]) == 0
    assert turn_start([QUESTION, CALLED, RESULT, CALLED, QUESTION]) == 4
    assert turn_start([]) == 0
