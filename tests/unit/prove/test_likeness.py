"""Facts -> manners: each switch by the fact that decides it, and what is not told stays as it is."""

from dataclasses import replace
from typing import Any

import pytest

from caretway.prove.likeness import SWITCHES, differences, like
from caretway_sim.manners import LIVE

TABLE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"base_models": 0}, {"cursor_catalogue": False}),
    ({"base_models": 12}, {}),
    ({"list_type_status": 200}, {"strict_list_type": False}),
    ({"http1_run_status": 404}, {"run_on_http1_is_464": False}),
    ({"quota": "silent"}, {"period_usage": "silent"}),
    ({"text": "refused", "other_version": "right"}, {"known_versions_only": True}),
    ({"text": "refused", "other_version": "refused"}, {}),
    (
        {"text": "refused", "text_code": "permission_denied outdated_client", "other_version": "right"},
        {"known_versions_only": True, "version_refusal": "outdated"},
    ),
    ({"text": "right"}, {}),
    (
        {"early_checkpoint": False, "first_window_zero": False},
        {"early_checkpoint": False, "first_window_unknown": False},
    ),
    ({"preamble_spared": False}, {"empty_tools_drop_preamble": False}),
    ({"cache_absurd": True}, {"absurd_cache_reads": True}),
    ({"argument_text": "pieces"}, {"argument_text": "pieces"}),
    ({"long_ids": False, "two_ids": True}, {"long_ids": False, "two_ids": True}),
    ({"checkpoint_after_call_ms": -1}, {"checkpoint_after_call_ms": None}),
    ({"checkpoint_after_call_ms": 700}, {"checkpoint_after_call_ms": 700}),
    ({"checkpoint_after_call_ms": 10**8}, {"checkpoint_after_call_ms": 1_500}),
    ({"gaps_ms": (3, 1)}, {"sibling_gaps_ms": ()}),
    (
        {"gaps_ms": (300, 10**8, -1), "tokens_in_gaps": False},
        {"sibling_gaps_ms": (300, 10_000, 0), "tokens_in_gaps": False},
    ),
    ({"calls_listed": True}, {"lists_calls": True}),
    ({"asked_in_turn": True}, {"asks_in_turn": True}),
    ({"resume": "right"}, {"resume_needs_checkpoint": False}),
    ({"shape_base": "right", "shape_requested": "right"}, {"judges_model_shape": False}),
    (
        {"shape_base": "refused", "shape_details": "empty", "shape_both": "right", "shape_requested": "empty"},
        {"refused_shapes": frozenset({"base"}), "empty_shapes": frozenset({"details"})},
    ),
    (
        {"shape_base": "right", "shape_requested": "refused"},
        {"refused_shapes": frozenset({"requested"}), "judges_model_shape": False},
    ),
    ({"bare_id": "right"}, {"whole_variants": False}),
    ({"schema_refused": True, "family": "composer"}, {"strict_families": frozenset({"composer"})}),
    ({"schema_refused": True, "family": "nobody"}, {}),
]


@pytest.mark.parametrize(("facts", "switches"), TABLE)
def test_switches(facts: dict[str, Any], switches: dict[str, Any]) -> None:
    assert like(facts) == replace(LIVE, name="receipt", **switches)


def test_the_table_flips_every_switch() -> None:
    flipped = {name for _, switches in TABLE for name in switches}
    assert flipped == set(SWITCHES)


def test_times_are_no_difference() -> None:
    assert differences(like({"gaps_ms": (400, 500), "checkpoint_after_call_ms": 90})) == []
    assert differences(like({"gaps_ms": (1, 2), "checkpoint_after_call_ms": -1})) == [
        "checkpoint_after_call_ms",
        "sibling_gaps_ms",
    ]
