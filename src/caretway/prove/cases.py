"""The table of cases: what each is called, which row of `wire/README.md` it proves, what it costs, how it is judged.

A case reads facts that a question (`driver`) found out; several cases may share one question, and then only the first
of them costs runs. The order is that of the table on the terminal, and of the questions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from . import judging
from .facts import CaseVerdict, Facts, not_tried
from .judging import Judge, answered, flag, shape, status

ANY: Final = ("agent", "sdk", "cli")
AGENT: Final = ("agent",)
PRIVATE: Final = "not seen on this backend"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    question: str
    """The question (`driver.QUESTIONS`) that finds its facts out."""
    row: str
    """The row of `wire/README.md`, by its first cell."""
    fact: str
    """Without this one the case was not tried."""
    judge: Judge
    runs: int = 0
    backends: Sequence[str] = ANY


CASES: Final = (
    Case(
        "model lists",
        "lists",
        "`GetUsableModels` lists flat slugs, no `thinking_details`, `max_mode` on Opus `-fast` only",
        "base_models",
        judging.lists,
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
        judging.quota,
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
        judging.version,
        backends=AGENT,
    ),
    Case(
        "proxy",
        "proxy",
        "the address decides: models of other makers are refused bare, by an empty stream or in words",
        "proxy",
        judging.proxy,
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
        judging.argument_text,
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
        judging.checkpoint_after_call,
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
        judging.gaps,
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
        judging.in_turn,
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
        judging.usage,
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
        judging.resume,
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
        judging.schema,
        runs=1,
    ),
    Case(
        "unknown model",
        "unknown_model",
        "`not_found`: model (M3 M5 H) or stale conversation (R16 M)",
        "unknown_model",
        judging.unknown_model,
        runs=1,
        backends=AGENT,
    ),
    Case(
        "whole variants",
        "bare_id",
        "parameters must equal one variant; a bare id with rungs, a dead id: `not_found`",
        "bare_id",
        judging.bare_id,
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
"""What `caretway doctor --live` runs, by backend."""
NEEDS_TEXT: Final = "no run is answered, so nothing more was asked"


def tried_on(backend: str) -> tuple[Case, ...]:
    return tuple(case for case in CASES if backend in case.backends)


def cost(cases: Sequence[Case]) -> int:
    """The runs that these cases make at most. Who asks a question pays for it, whichever of its cases is wanted."""
    asked = {case.question for case in cases}
    return sum(case.runs for case in CASES if case.question in asked)


def judged(case: Case, facts: Facts, skipped: str) -> CaseVerdict:
    """`skipped`: why its question was not asked, or found nothing out."""
    if case.fact not in facts:
        return not_tried(skipped or "the run did not show it")
    return case.judge(facts)
