"""How calls are told: their ids, the gaps between them, the text of their arguments, the totals of a run."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from caretway_sim.manners import CLASSIC, LIVE
from caretway_sim.model_input import CONTEXT_TOKENS
from caretway_sim.play_calls import Ids, argument_texts, gap_before
from caretway_sim.voice import StepUsage, shown_window, totals


def test_r3_ids_have_85_characters_and_a_newline() -> None:
    ids = Ids("request", LIVE)
    one, other = ids.call(), ids.call()
    assert len(one.inner) == 85
    assert one.inner.count("\n") == 1
    assert one.inner.startswith("call-")
    assert "\nfc_" in one.inner
    assert one.inner != other.inner
    assert Ids("request", LIVE).call() == one, "nothing is random"


def test_r2_the_envelope_has_an_id_of_its_own() -> None:
    two, classic = Ids("request", replace(LIVE, two_ids=True)).call(), Ids("request", CLASSIC).call()
    assert two.envelope != two.inner
    assert classic.envelope == classic.inner
    assert classic.inner.startswith("call_")


@given(st.text(max_size=40), st.integers(1, 5))
def test_r1_arguments_are_told_all_so_far_or_in_pieces(text: str, pieces: int) -> None:
    grown = argument_texts(text, pieces, LIVE)
    assert (grown or [""])[-1] == text
    assert all(after.startswith(before) for before, after in pairwise(grown))
    assert "".join(argument_texts(text, pieces, replace(LIVE, argument_text="pieces"))) == text


def test_r5_the_calls_of_a_step_are_staggered() -> None:
    gaps = [gap_before(LIVE, index) for index in range(1, 10)]
    assert all(300 <= gap <= 1200 for gap in gaps)
    assert len(set(gaps)) > 2
    assert gap_before(CLASSIC, 1) == 0


def test_m7_the_first_checkpoint_does_not_know_the_window() -> None:
    assert [shown_window(LIVE, before) for before in range(3)] == [0, CONTEXT_TOKENS, CONTEXT_TOKENS]
    assert shown_window(CLASSIC, 0) == CONTEXT_TOKENS


def test_u1_input_includes_what_was_cached() -> None:
    told = totals(StepUsage(cached=100, uncached=20, output=7, reasoning=3), "claude-fable-5-low", 5, LIVE)
    assert (told.input_tokens, told.cache_read_tokens, told.cache_write_tokens) == (120, 100, 20)
    assert (told.output_tokens, told.reasoning_tokens, told.ended_at_ms) == (7, 3, 5)
    assert totals(StepUsage(uncached=20), "gpt-5.5-low", 5, LIVE).cache_write_tokens == 0


def test_u2_a_switch_makes_cache_reads_absurd() -> None:
    told = totals(StepUsage(cached=100, uncached=20), "m", 5, replace(LIVE, absurd_cache_reads=True))
    assert told.cache_read_tokens > 3 * told.input_tokens
