"""What the moments of a run show: facts about the service. Pure; each function has its own facts, and none when the run
did not show them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from .facts import Fact, code_of
from .watching import Moment

LONG_ID_CHARS: Final = 64
SPARED_TOKENS: Final = 6_000
"""Cursor's own preamble has 10,000 tokens or more; a prompt of one line without it has far fewer."""
ABSURD: Final = 3
"""Cache reads that are so many times the context were counted wrongly."""
TOGETHER_MS: Final = 50
"""Calls that are closer than this came at once."""
QUIET_MS: Final = 200
"""A silence that ends a step (`sibling_quiet` in `agent_quirks`)."""

Moments = Sequence[Moment]


def of(moments: Moments, *kinds: str) -> list[Moment]:
    return [moment for moment in moments if moment.what in kinds]


def outcome(moments: Moments) -> str:
    """The outcome of a run in which any text is right: right, empty or refused; failed if it was cut."""
    if of(moments, "text"):
        return "right"
    end = of(moments, "end")
    if end and end[0].text:
        return "refused"
    return "empty" if of(moments, "ended") else "failed"


def code(moments: Moments) -> str:
    """The error that ended the run: Connect's code, and Cursor's own name for it if there was one."""
    for moment in of(moments, "end"):
        return code_of(f"{moment.text} {moment.id}".strip())
    return ""


def ends(moments: Moments) -> dict[str, Fact]:
    return {"end_told": bool(of(moments, "ended")) and any(not moment.text for moment in of(moments, "end"))}


def first_checkpoint(moments: Moments) -> dict[str, Fact]:
    words, checkpoints = of(moments, "text", "thought"), of(moments, "checkpoint")
    if not words or not checkpoints:
        return {}
    early = checkpoints[0].ms <= words[0].ms and moments.index(checkpoints[0]) < moments.index(words[0])
    return {"early_checkpoint": early, "first_window_zero": checkpoints[0].figures[1] == 0}


def usage(moments: Moments) -> dict[str, Fact]:
    ended = of(moments, "ended")
    if not ended:
        return {}
    asked, said, read, written = ended[-1].figures
    context = max((moment.figures[0] for moment in of(moments, "checkpoint")), default=0)
    return {
        "input_tokens": asked,
        "output_tokens": said,
        "usage_told": asked > 0 and said > 0,
        "cache_in_input": read + written <= asked or read > ABSURD * max(asked, context),
        "cache_absurd": read > ABSURD * max(asked, context),
    }


def preamble(moments: Moments) -> dict[str, Fact]:
    """For a run without tools and with one line of prompt."""
    ended = of(moments, "ended")
    return {"preamble_spared": ended[-1].figures[0] < SPARED_TOKENS} if ended and ended[-1].figures[0] else {}


def arguments(moments: Moments) -> dict[str, Fact]:
    for call in dict.fromkeys(moment.id for moment in of(moments, "partial")):
        told = [moment.text for moment in of(moments, "partial") if moment.id == call and moment.text]
        if len(told) > 1:
            grows = all(later.startswith(sooner) for sooner, later in pairwise(told))
            return {"argument_text": "all so far" if grows else "pieces"}
    return {}


def call_ids(moments: Moments) -> dict[str, Fact]:
    execs = of(moments, "exec")
    if not execs:
        return {}
    inner = execs[0].text
    found: dict[str, Fact] = {"long_ids": len(inner) > LONG_ID_CHARS or "\n" in inner}
    if envelopes := {moment.id for moment in of(moments, "started")}:
        found["two_ids"] = inner not in envelopes
    return found


def checkpoint_after_call(moments: Moments) -> dict[str, Fact]:
    """Milliseconds from the last exec to a checkpoint before any result; -1 when none came."""
    before = _until(moments, "result")
    execs = of(before, "exec")
    if not execs:
        return {}
    after = [moment.ms for moment in before[before.index(execs[-1]) :] if moment.what == "checkpoint"]
    return {"checkpoint_after_call_ms": after[0] - execs[-1].ms if after else -1}


def step(moments: Moments, wanted: int) -> dict[str, Fact]:
    """The outcome of a step in which a number of calls was asked for."""
    started = of(moments, "started")[:wanted]
    if len(started) < wanted:
        return {}
    unanswered = _until(moments, "result")
    found: dict[str, Fact] = {
        "calls_listed": bool(of(moments, "listed")),
        "asked_in_turn": len(of(unanswered, "started")) >= wanted and len(of(unanswered, "exec")) < wanted,
    }
    pairs = list(pairwise(started))
    if len(of(unanswered, "started")) < wanted:
        return found  # they came in steps of their own
    gaps = tuple(later.ms - sooner.ms for sooner, later in pairs)
    found["gaps_ms"] = gaps
    if max(gaps, default=0) >= QUIET_MS:
        long_ones = [pair for pair in pairs if pair[1].ms - pair[0].ms >= QUIET_MS]
        found["tokens_in_gaps"] = all(_between(moments, *pair) for pair in long_ones)
    return found


def _between(moments: Moments, sooner: Moment, later: Moment) -> bool:
    return any(m.what == "tokens" for m in moments[moments.index(sooner) : moments.index(later)])


def _until(moments: Moments, kind: str) -> Moments:
    stop = next((index for index, moment in enumerate(moments) if moment.what == kind), len(moments))
    return moments[:stop]
