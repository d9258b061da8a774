"""What the simulator lists of its model calls is bounded, and the preamble is paid for once."""

from caretway_sim.model_input import PREAMBLE_TOKENS, Charge, Piece, PrefixCache, preamble
from caretway_sim.shared import MAX_RUNS, MAX_STEPS, Steps


def test_only_the_newest_runs_and_the_first_steps_are_listed() -> None:
    steps = Steps()
    for number in range(MAX_RUNS + 5):
        run = steps.open("c", f"r{number}", "m")
    for _ in range(MAX_STEPS + 5):
        run.step(1, 2)
        run.said(3)
    listed = steps.as_list()
    assert [listed[0]["run"], len(listed)] == ["r5", MAX_RUNS]
    assert (listed[-1]["calls"], len(listed[-1]["steps"])) == (MAX_STEPS + 5, MAX_STEPS)
    assert listed[-1]["steps"][-1] == {"context": 3, "cached": 1, "output": 3}
    steps.reset()
    assert steps.as_list() == []


def test_the_preamble_is_shared_by_the_conversations_with_a_model() -> None:
    cache = PrefixCache()
    hello = Piece("hello", 5)
    assert cache.charge([preamble("a"), Piece("conversation 1", 0), hello]) == Charge(0, PREAMBLE_TOKENS + 5)
    assert cache.charge([preamble("a"), Piece("conversation 2", 0), hello]) == Charge(PREAMBLE_TOKENS, 5)
    assert cache.charge([preamble("b"), Piece("conversation 3", 0), hello]) == Charge(0, PREAMBLE_TOKENS + 5)
