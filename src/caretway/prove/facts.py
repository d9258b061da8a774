"""The facts that cases can find and their verdicts: facts with closed sets of values, verdicts in fixed words.

A receipt holds only these, so no prompt, answer, name or secret can get into a receipt.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Fact = bool | int | str | tuple[int, ...]
Facts = Mapping[str, Fact]
State = Literal["holds", "differs", "not tried"]

OUTCOMES: Final = ("right", "other", "empty", "refused", "failed")
"""The outcomes of a question: the expected words, other words, nothing, an error of Cursor, an error on the way."""
MAX_FIGURE: Final = 10**9
MAX_FIGURES: Final = 64
_CODE: Final = re.compile(r"[a-z0-9_ -]{0,60}")

_OUTCOME_FACTS: Final = (
    "text",
    "other_version",
    "call",
    "parallel",
    "loop",
    "thinking",
    "continuation",
    "replay",
    "resume",
    "system",
    "picture",
    "shape_base",
    "shape_details",
    "shape_both",
    "shape_requested",
    "bare_id",
    "schema",
    "kill",
    "unknown_model",
)
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_OUTCOME_FACTS, OUTCOMES),
    "quota": ("told", "refused", "silent"),
    "proxy": ("http", "https", "socks5", "socks5h"),
    "argument_text": ("all so far", "pieces"),
    "session": ("resumed", "continued", "replayed", "fresh"),
}
_FLAGS: Final = frozenset(
    {
        "end_told",
        "early_checkpoint",
        "first_window_zero",
        "preamble_spared",
        "usage_told",
        "cache_in_input",
        "cache_absurd",
        "long_ids",
        "two_ids",
        "calls_listed",
        "tokens_in_gaps",
        "asked_in_turn",
        "schema_refused",
        "call_waits",
    }
)
_FIGURES: Final = frozenset(
    {
        "flat_models",
        "base_models",
        "thinking_details",
        "list_type_status",
        "http1_run_status",
        "input_tokens",
        "output_tokens",
        "checkpoint_after_call_ms",
        "loop_steps",
    }
)
_LISTS: Final = frozenset({"gaps_ms", "calls_per_step"})
_CODES: Final = frozenset({"text_code", "unknown_model_code", "family"})
"""Facts that hold codes: of Connect, Cursor or this project, in letters, digits and few marks."""


class NoFact(ValueError):
    """A name or value that no case produces."""


def checked(name: str, value: object) -> Fact:
    """Returns the fact or raises NoFact; checks facts found here and facts read from a receipt."""
    if isinstance(value, list):
        value = tuple(value)
    match value:
        case bool() if name in _FLAGS:
            return value
        case int() if name in _FIGURES and _fits(value):
            return value
        case tuple() if name in _LISTS and len(value) <= MAX_FIGURES and all(map(_fits, value)):
            return value
        case str() if value in _WORDS.get(name, ()) or (name in _CODES and _CODE.fullmatch(value)):
            return value
        case _:
            raise NoFact(f"{name[:40]!r} is no fact, or not with such a value")


def _fits(value: object) -> bool:
    return type(value) is int and -1 <= value <= MAX_FIGURE


def code_of(text: str) -> str:
    """The code if a receipt may hold it; empty otherwise."""
    lowered = text.lower()
    return lowered if _CODE.fullmatch(lowered) else ""


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    state: State
    says: str
    """The fact for this account, or why the case was not tried."""
    helps: str = ""
    """Which setting helps, or that none is needed."""


def holds(says: str) -> CaseVerdict:
    return CaseVerdict("holds", says)


def differs(says: str, helps: str) -> CaseVerdict:
    return CaseVerdict("differs", says, helps)


def not_tried(why: str) -> CaseVerdict:
    return CaseVerdict("not tried", why)
