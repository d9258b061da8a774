"""The table of cases: name, row of `wire/README.md`, cost and judge of each.

A case reads the facts of its question. Cases may share a question; only the first one costs runs. The order of the
table is the order on the terminal and of the questions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .facts import CaseVerdict, Facts, differs, holds, not_tried
from .watching import QUIET_MS, TOGETHER_MS

# ---- judging

# Facts -> verdicts: the assumption, whether it holds for this account, and which setting helps if it does not.

NOTHING_TO_SET: Final = "Nothing to set: the gateway takes both."
_OTHER_WORDS: Final = "the model answered with other words; run it again"
_CUT: Final = "the run was cut on its way; run it again, or see `caretway doctor`"

_OF_THE_VERSION: Final = (
    "resource_exhausted",
    "permission_denied outdated_client",
    "resource_exhausted outdated_client",
)
"""Error codes observed when Cursor refuses a client version."""

Judge = Callable[[Facts], CaseVerdict]


def answered(fact: str, yes: str, helps: str, no: str = "") -> Judge:
    """Judges a case whose outcome is right or wrong; `helps` is the advice for an empty answer or a refusal."""

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
    code = facts.get(f"{fact}_code", "")
    return f" ({code})" if code else ""


def flag(fact: str, yes: str, no: str, helps: str = NOTHING_TO_SET, *, expected: bool = True) -> Judge:
    """Judges a case by a fact that is true or false. `yes` states the assumption; `expected` is the value of the fact
    that confirms it."""
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
    """Judges whether a run that names its model in this way is served. `expected`: `right` or `empty`."""
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


# ---- cases


ANY: Final = ("agent", "sdk", "cli")
AGENT: Final = ("agent",)
PRIVATE: Final = "not seen on this backend"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    question: str
    """The question in `questions.QUESTIONS` that finds the facts."""
    row: str
    """The first cell of the row in `wire/README.md`."""
    fact: str
    """Without this fact the case was not tried."""
    judge: Judge
    runs: int = 0
    backends: Sequence[str] = ANY


CASES: Final = (
    Case(
        "model lists",
        "lists",
        "`GetUsableModels` lists flat slugs, no `thinking_details`, `max_mode` on Opus `-fast` only",
        "base_models",
        lists,
        backends=AGENT,
    ),
    Case(
        "list's type",
        "list_type",
        "its content type is `application/proto`; that of a stream gets 415",
        "list_type_status",
        status("list_type_status", 415, "the type of a stream gets 415", "the type of a stream"),
        backends=AGENT,
    ),
    Case(
        "run over HTTP/1.1",
        "http1_run",
        "`Run` on HTTP/1.1 is 464",
        "http1_run_status",
        status("http1_run_status", 464, "`Run` over HTTP/1.1 gets 464", "`Run` over HTTP/1.1"),
        backends=AGENT,
    ),
    Case(
        "quota",
        "quota",
        "`GetCurrentPeriodUsage`: cents, times as texts, zeros left out; two pools, Cursor's own models and others",
        "quota",
        quota,
        backends=AGENT,
    ),
    Case(
        "text",
        "text",
        "Success ends with `{}` in an end-of-stream frame",
        "text",
        answered("text", "a marker comes back", "See what `caretway doctor` says, and the next line."),
        runs=1,
    ),
    Case(
        "shape base",
        "shapes",
        "(a) base and variant in `requested_model`",
        "shape_base",
        shape("base", "right"),
        runs=4,
        backends=AGENT,
    ),
    Case(
        "shape details",
        "shapes",
        "(b) slug in `model_details`",
        "shape_details",
        shape("details", "right"),
        backends=AGENT,
    ),
    Case(
        "shape both",
        "shapes",
        "(c) slug in both",
        "shape_both",
        shape("both", "right"),
        backends=AGENT,
    ),
    Case(
        "shape requested",
        "shapes",
        "(d) slug in `requested_model` alone: empty turn",
        "shape_requested",
        shape("requested", "empty"),
        backends=AGENT,
    ),
    Case(
        "client version",
        "text",
        "versions that Cursor did not ship are refused",
        "text",
        version,
        backends=AGENT,
    ),
    Case(
        "proxy",
        "proxy",
        "the address decides: models of other makers are refused bare, by an empty stream or in words",
        "proxy",
        proxy,
        backends=AGENT,
    ),
    Case(
        "end of a turn",
        "text",
        "`turn_ended`, `{}`, and the body may stay open",
        "end_told",
        flag("end_told", "`turn_ended`, then an end frame", "a turn ends without `turn_ended` or end frame"),
        backends=AGENT,
    ),
    Case(
        "early checkpoint",
        "text",
        "a checkpoint early in the turn; its window is 0",
        "early_checkpoint",
        flag("early_checkpoint", "a checkpoint before the first word", "no checkpoint before the first word"),
        backends=AGENT,
    ),
    Case(
        "first window",
        "text",
        "a checkpoint early in the turn; its window is 0",
        "first_window_zero",
        flag("first_window_zero", "the first checkpoint has no window", "the first checkpoint has the window"),
        backends=AGENT,
    ),
    Case(
        "preamble",
        "text",
        "an empty tool list spares 10-15 thousand tokens of preamble",
        "preamble_spared",
        flag(
            "preamble_spared",
            "a prompt without tools is not charged for a preamble",
            "thousands of tokens of preamble without any tool",
            "Nothing to set: Cursor counts them, and so does its quota.",
        ),
        backends=AGENT,
    ),
    Case(
        "call",
        "call",
        "Every exec is answered under its number (without `exec_id`), then closed with `stream_close`",
        "call",
        answered("call", "a tool's result reaches the model", "Try --agent-quirks names=prefixed, or another --model."),
        runs=1,
    ),
    Case(
        "native tools",
        "call",
        "cursor-agent calls a client's tools on an MCP server of the session, and waits for their results",
        "call_waits",
        flag(
            "call_waits",
            "a call waits for its result, in one prompt",
            "tools travel as text; `caretway serve` logs why",
            "Update cursor-agent; with --cli-transport print or --agent-quirks cli_tools=text it is so by choice.",
        ),
        backends=("cli",),
    ),
    Case(
        "arguments",
        "call",
        "`tool_call_started` before the partial updates; `args_text_delta` holds all so far",
        "argument_text",
        argument_text,
        backends=AGENT,
    ),
    Case(
        "call ids",
        "call",
        "call ids of 85 characters with a newline",
        "long_ids",
        flag("long_ids", "ids are long, or have a newline", "ids are short and plain"),
        backends=AGENT,
    ),
    Case(
        "one id for a call",
        "call",
        "envelope and call have different ids",
        "two_ids",
        flag("two_ids", "a call has one id", "envelope and call have different ids", expected=False),
        backends=AGENT,
    ),
    Case(
        "checkpoint at a call",
        "call",
        "a checkpoint within 1.5 s of a call, before its result",
        "checkpoint_after_call_ms",
        checkpoint_after_call,
        backends=AGENT,
    ),
    Case(
        "parallel calls",
        "parallel",
        "Calls in parallel are matched by number",
        "parallel",
        answered("parallel", "three calls, three results", "Leave parallel calls off in your client."),
        runs=1,
    ),
    Case(
        "gaps",
        "parallel",
        "calls of one step 300-1,200 ms apart, `token_delta` between them",
        "gaps_ms",
        gaps,
        backends=AGENT,
    ),
    Case(
        "count of calls",
        "parallel",
        "`tool_requests_listed` announces a step",
        "calls_listed",
        flag(
            "calls_listed",
            "the number of calls of a step is unknown",
            "a step announces how many calls it has",
            "Nothing to set: the step then ends without a wait.",
            expected=False,
        ),
        backends=AGENT,
    ),
    Case(
        "calls in turn",
        "parallel",
        "calls written together, each asked for after the result of the one before",
        "asked_in_turn",
        in_turn,
        backends=AGENT,
    ),
    Case(
        "ten steps",
        "loop",
        "silence after the last call of a step; 200 ms of it end a step",
        "loop",
        answered("loop", "ten calls, one after the other", "Try another --model: some describe calls instead."),
        runs=1,
    ),
    Case(
        "instructions",
        "system",
        "system roots do not reach the model; `cloud_rule`, `rules` and a user's message in `<rules>` do",
        "system",
        answered("system", "instructions reach the model", "Set --agent-quirks system=message."),
        runs=1,
    ),
    Case(
        "continuation",
        "continuation",
        "A second turn is a new stream with the same conversation id and the last checkpoint, byte for byte",
        "continuation",
        answered("continuation", "the second turn knows the first", "Set --session fresh."),
        runs=2,
    ),
    Case(
        "usage",
        "continuation",
        "`input_tokens` includes the cache; counters cover the whole run",
        "usage_told",
        usage,
    ),
    Case(
        "replay",
        "replay",
        "ids of calls outside `[A-Za-z0-9_-]`: bare refusal",
        "replay",
        answered("replay", "a history with foreign ids is taken", "Try --agent-quirks history=typed."),
        runs=1,
    ),
    Case(
        "resumed replay",
        "resume",
        "`resume_action` on a replay: empty on composer-2.5 without fast",
        "resume",
        resume,
        runs=1,
        backends=AGENT,
    ),
    Case(
        "kill -9",
        "kill",
        "results in `turns` or in prose are read",
        "kill",
        answered("kill", "a killed gateway's call is taken up by the next", "Keep the data directory: --data-dir."),
        runs=3,
    ),
    Case(
        "schema",
        "schema",
        "unions in schemas end a run on Fable; enums of numbers and tuples on Gemini, Grok, Kimi",
        "schema",
        schema,
        runs=1,
    ),
    Case(
        "unknown model",
        "unknown_model",
        "`not_found`: model (M3 M5 H) or stale conversation (R16 M)",
        "unknown_model",
        unknown_model,
        runs=1,
        backends=AGENT,
    ),
    Case(
        "whole variants",
        "bare_id",
        "parameters must equal one variant; a bare id with rungs, a dead id: `not_found`",
        "bare_id",
        bare_id,
        runs=1,
        backends=AGENT,
    ),
    Case(
        "thinking",
        "thinking",
        "long reasoning sends `token_delta` alone",
        "thinking",
        answered("thinking", "thinking is separate from the answer", "Nothing to set: this model keeps it."),
        runs=1,
    ),
    Case(
        "picture",
        "picture",
        "Images travel as raw bytes in `selected_context.selected_images`, with uuid and MIME type",
        "picture",
        answered("picture", "the model sees an image", "Try another --second-model: this one takes text only."),
        runs=1,
    ),
)
BY_NAME: Final = {case.name: case for case in CASES}
CHEAPEST: Final = {
    "agent": ("model lists", "quota", "text"),
    "sdk": ("text", "call", "instructions"),
    "cli": ("text", "call", "instructions"),
}
"""The cases of `caretway doctor --live`, by backend."""
NEEDS_TEXT: Final = "no run is answered, so nothing more was asked"


def cost(cases: Sequence[Case]) -> int:
    """The maximum number of runs of these cases. A question costs its runs even for a single selected case."""
    questions = {case.question for case in cases}
    return sum(case.runs for case in CASES if case.question in questions)


def judged(case: Case, facts: Facts, skipped: str) -> CaseVerdict:
    """The verdict on a case. `skipped`: why its question was not asked, or found no fact."""
    if case.fact not in facts:
        return not_tried(skipped or "the run did not show it")
    return case.judge(facts)
