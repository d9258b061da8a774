"""Facts -> verdicts: what was believed, whether it holds for this account, and which setting helps where it does not.

One function for each case of `cases`. Pure. The words are fixed but for codes and counts, so the same facts always give
the same lines; times are left to the receipt's figures.
"""

from collections.abc import Callable
from typing import Final

from .facts import CaseVerdict, Facts, differs, holds, not_tried
from .sightings import QUIET_MS, TOGETHER_MS

NOTHING_TO_SET: Final = "Nothing to set: the gateway takes both."
_OTHER_WORDS: Final = "the model answered with other words; run it again"
_CUT: Final = "the run was cut on its way; run it again, or see `caretway doctor`"

_OF_THE_VERSION: Final = (
    "resource_exhausted",
    "permission_denied outdated_client",
    "resource_exhausted outdated_client",
)
"""Codes that a version was seen to be refused with."""

Judge = Callable[[Facts], CaseVerdict]


def answered(fact: str, yes: str, helps: str, no: str = "") -> Judge:
    """Judges a case that is right or not; `helps` is the advice for an empty answer or a refusal."""

    def judge(facts: Facts) -> CaseVerdict:
        match facts[fact]:
            case "right":
                return holds(yes)
            case "other":
                return not_tried(_OTHER_WORDS)
            case "failed":
                return not_tried(_CUT)
            case state:
                word = "the answer is empty" if state == "empty" else f"it is refused{_code(facts, fact)}"
                return differs(no or word, helps)

    return judge


def _code(facts: Facts, fact: str) -> str:
    told = facts.get(f"{fact}_code", "")
    return f" ({told})" if told else ""


def flag(fact: str, yes: str, no: str, helps: str = NOTHING_TO_SET, *, expected: bool = True) -> Judge:
    """`yes` is what is believed; `expected` is the value of the fact that means it."""
    return lambda facts: holds(yes) if facts[fact] is expected else differs(no, helps)


def status(fact: str, expected: int, yes: str, what: str, helps: str = NOTHING_TO_SET) -> Judge:
    return lambda facts: (
        holds(yes) if facts[fact] == expected else differs(f"{what} is answered {facts[fact]}, not {expected}", helps)
    )


def lists(facts: Facts) -> CaseVerdict:
    if not facts["base_models"]:
        helps = "Name a model as `caretway models` lists it."
        return differs("there is no list of base models with variants", helps)
    if facts["thinking_details"]:
        return differs("the flat list says which models think", NOTHING_TO_SET)
    return holds("two lists: flat ids, and base models with variants")


def quota(facts: Facts) -> CaseVerdict:
    match facts["quota"]:
        case "told":
            return holds("the period's usage is reported")
        case "silent":
            return differs(
                "the period's usage is never answered", "Nothing to set: refusals name spent usage as a cause."
            )
        case _:
            helps = "Nothing to set: see the dashboard; refusals name spent usage as a cause."
            return differs("the period's usage is refused", helps)


def proxy(facts: Facts) -> CaseVerdict:
    if facts["text"] in ("right", "other"):
        return holds(f"runs are answered through the {facts['proxy']} proxy")
    word = "refused" if facts["text"] == "refused" else "not answered"
    return differs(f"through the {facts['proxy']} proxy runs are {word}", "Try CARETWAY_PROXY=off, or another proxy.")


def version(facts: Facts) -> CaseVerdict:
    refused = facts["text"] == "refused" and facts.get("text_code") in _OF_THE_VERSION
    if refused and facts.get("other_version") == "right":
        return differs(
            "the version that the gateway names is refused; another is served",
            "Set --agent-client-version (CARETWAY_AGENT_CLIENT_VERSION) to it.",
        )
    if not refused or any(facts.get(f"shape_{name}") == "right" for name in ("base", "details", "both")):
        return holds("the version that the gateway names is served")
    if "other_version" in facts:
        return differs(
            "every version is refused without a reason",
            "See `caretway doctor`: region, proxy, plan or usage.",
        )
    return differs(
        "runs are refused without a reason; the version may be it",
        "Try `caretway prove --other-version sdk-python-1.1.0`; then set --agent-client-version.",
    )


def usage(facts: Facts) -> CaseVerdict:
    if not facts["usage_told"]:
        return differs("tokens are not reported", "Nothing to set: answers have estimates, and say so.")
    if facts.get("cache_absurd"):
        return differs(
            "more tokens are read from the cache than there are", "Nothing to set: such figures are left out."
        )
    if not facts.get("cache_in_input", True):
        return differs(
            "cached tokens stand beside the input, not in it", "Please report it: the usage of answers is too low."
        )
    return holds("tokens are reported; the input includes what was cached")


def argument_text(facts: Facts) -> CaseVerdict:
    if facts["argument_text"] == "all so far":
        return holds("each piece of arguments holds all so far")
    return differs("arguments come in pieces", NOTHING_TO_SET)


def checkpoint_after_call(facts: Facts) -> CaseVerdict:
    if facts["checkpoint_after_call_ms"] == -1:
        helps = "Nothing to set: after a lost run the model makes the call once more."
        return differs("no checkpoint before a call's result", helps)
    return holds("a checkpoint comes between a call and its result")


def gaps(facts: Facts) -> CaseVerdict:
    found = facts["gaps_ms"]
    longest = max(found) if isinstance(found, tuple) and found else 0
    if longest < TOGETHER_MS:
        return differs("the calls of a step come at once", "--agent-quirks sibling_quiet=50ms answers sooner.")
    if longest >= QUIET_MS and not facts.get("tokens_in_gaps"):
        enough = -(-(longest + QUIET_MS) // 500) * 500
        return differs(
            "silence between the calls of one step",
            f"Set --agent-quirks sibling_quiet={enough}ms, or parallel calls come one by one.",
        )
    return holds("calls of a step come apart, with tokens counted between")


def in_turn(facts: Facts) -> CaseVerdict:
    if facts["asked_in_turn"]:
        return differs(
            "each call is asked for after the result of the one before",
            "--agent-quirks sibling_cap=200ms saves the wait for siblings that cannot come.",
        )
    return holds("parallel calls are asked for without waiting")


def resume(facts: Facts) -> CaseVerdict:
    match facts["resume"]:
        case "empty":
            return holds("`resume_action` after a replay is an empty turn")
        case "right":
            return differs("`resume_action` goes on after a replay", "--agent-quirks replay=resume would work, too.")
        case "other":
            return not_tried(_OTHER_WORDS)
        case "failed":
            return not_tried(_CUT)
        case _:
            return differs("`resume_action` after a replay is refused", "Nothing to set: the gateway asks in words.")


def shape(name: str, expected: str) -> Judge:
    """Whether a run that names its model in this way is served. `expected`: right, or empty."""
    words = {"right": "is served", "empty": "gets an empty turn", "refused": "is refused"}

    def judge(facts: Facts) -> CaseVerdict:
        found = str(facts[f"shape_{name}"])
        if found in ("failed", "other"):
            return not_tried(_CUT)
        if found == expected:
            return holds(f"a model named so {words[found]}")
        served = [other for other in ("base", "details", "both") if facts.get(f"shape_{other}") == "right"]
        if expected == "empty":
            helps = NOTHING_TO_SET if found == "right" else "Nothing to set: the gateway never asks in this way."
        elif served:
            helps = f"Set --agent-quirks model={served[0]}; auto finds it with one run more."
        else:
            helps = "No way of naming it is served: region, proxy or plan? Try another --model."
        return differs(f"a model named so {words[found]}", helps)

    return judge


def bare_id(facts: Facts) -> CaseVerdict:
    match facts["bare_id"]:
        case "refused":
            return holds("a model with rungs is refused without one")
        case "failed":
            return not_tried(_CUT)
        case "empty":
            return differs("a model with rungs gets an empty turn without one", NOTHING_TO_SET)
        case _:
            return differs("a model with rungs is served without one", NOTHING_TO_SET)


def schema(facts: Facts) -> CaseVerdict:
    if facts.get("schema_refused"):
        if facts["schema"] == "right":
            return differs(
                "unions in a tool's schema are refused for this model",
                "Nothing to set: the gateway sends it simpler ones from then on.",
            )
        return differs(
            "the tool's schema is refused, a simpler one too", "Leave that tool out, or use another --model."
        )
    return answered("schema", "unions in a tool's schema are taken", "See the error in `caretway serve`'s log.")(facts)


def unknown_model(facts: Facts) -> CaseVerdict:
    if facts["unknown_model"] == "refused":
        return holds(f"a model that is not listed is refused{_code(facts, 'unknown_model')}")
    if facts["unknown_model"] == "failed":
        return not_tried(_CUT)
    return differs("a model that is not listed is answered", "Set --strict-models: a typing error runs another model.")
