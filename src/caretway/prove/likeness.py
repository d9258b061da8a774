"""Converts a receipt's facts to the behaviour of a simulator. Pure.

One row for each switch: the fact that decides it, and how. Switches without a fact stay as in the profile `live`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from caretway_sim.catalogue import BASES
from caretway_sim.manners import LIVE, Manners

from .facts import Facts
from .watching import TOGETHER_MS

MAX_GAP_MS: Final = 10_000
MAX_DELAY_MS: Final = 1_500
"""Measured delays above this were spent on the network."""


def _flag(fact: str) -> Callable[[Facts], object]:
    return lambda facts: facts[fact] is True


def _equals(fact: str, value: object) -> Callable[[Facts], object]:
    return lambda facts: facts[fact] == value


def _shapes(state: str) -> Callable[[Facts], object]:
    """The ways to name a model with this outcome. An empty turn for the fourth way is a separate switch."""
    shapes = ("base", "details", "both") if state == "empty" else ("base", "details", "both", "requested")
    return lambda facts: frozenset(name for name in shapes if facts.get(f"shape_{name}") == state)


def _delay(facts: Facts) -> object:
    found = facts["checkpoint_after_call_ms"]
    return None if found == -1 or not isinstance(found, int) else min(found, MAX_DELAY_MS)


def _gaps(facts: Facts) -> object:
    found = facts["gaps_ms"]
    if not isinstance(found, tuple) or max(found, default=0) < TOGETHER_MS:
        return ()
    return tuple(min(max(gap, 0), MAX_GAP_MS) for gap in found)


def _strict(facts: Facts) -> object:
    family = str(facts.get("family", ""))
    known = {base.family for base in BASES}
    return frozenset({family} & known) if facts["schema_refused"] is True else frozenset()


def _own_version_refused(facts: Facts) -> object:
    return facts.get("other_version") == "right" and facts["text"] == "refused"


def _version_refusal(facts: Facts) -> object:
    """A receipt keeps no message, so a refusal that was a message becomes one without a reason."""
    return "outdated" if "outdated" in str(facts.get("text_code", "")) else "bare"


SWITCHES: Final[Mapping[str, tuple[str, Callable[[Facts], object]]]] = {
    "cursor_catalogue": ("base_models", lambda facts: facts["base_models"] != 0),
    "strict_list_type": ("list_type_status", _equals("list_type_status", 415)),
    "run_on_http1_is_464": ("http1_run_status", _equals("http1_run_status", 464)),
    "period_usage": ("quota", lambda facts: facts["quota"]),
    "known_versions_only": ("text", _own_version_refused),
    "version_refusal": ("other_version", _version_refusal),
    "early_checkpoint": ("early_checkpoint", _flag("early_checkpoint")),
    "first_window_unknown": ("first_window_zero", _flag("first_window_zero")),
    "empty_tools_drop_preamble": ("preamble_spared", _flag("preamble_spared")),
    "absurd_cache_reads": ("cache_absurd", _flag("cache_absurd")),
    "argument_text": ("argument_text", lambda facts: facts["argument_text"]),
    "long_ids": ("long_ids", _flag("long_ids")),
    "two_ids": ("two_ids", _flag("two_ids")),
    "checkpoint_after_call_ms": ("checkpoint_after_call_ms", _delay),
    "sibling_gaps_ms": ("gaps_ms", _gaps),
    "tokens_in_gaps": ("tokens_in_gaps", _flag("tokens_in_gaps")),
    "lists_calls": ("calls_listed", _flag("calls_listed")),
    "asks_in_turn": ("asked_in_turn", _flag("asked_in_turn")),
    "resume_needs_checkpoint": ("resume", _equals("resume", "empty")),
    "judges_model_shape": ("shape_requested", _equals("shape_requested", "empty")),
    "refused_shapes": ("shape_base", _shapes("refused")),
    "empty_shapes": ("shape_base", _shapes("empty")),
    "whole_variants": ("bare_id", _equals("bare_id", "refused")),
    "strict_families": ("schema_refused", _strict),
}
"""Switch -> (the fact that decides it, the function that computes its value)."""


def like(facts: Facts) -> Manners:
    switches: dict[str, Any] = {name: value(facts) for name, (fact, value) in SWITCHES.items() if fact in facts}
    return replace(LIVE, name="receipt", **switches)


def differences(manners: Manners) -> list[str]:
    """The switches that differ from the profile `live`, for people. The values of durations are not compared."""
    return [name for name in SWITCHES if _kind(getattr(manners, name)) != _kind(getattr(LIVE, name))]


def _kind(value: object) -> object:
    """Makes all durations equal; only an empty tuple of delays differs from a filled one."""
    if isinstance(value, tuple):
        return bool(value)
    return True if type(value) is int else value
