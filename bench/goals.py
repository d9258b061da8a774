"""What the gateway must show, each goal with the numbers it is judged by. Pure: a ledger in, verdicts out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .ledger import Ledger, Spread
from .targets import AGAIN, BUN, DIRECT, DIRECT_AGENT, ENVOY, GATEWAY, LITELLM, RELAY, UNGATHERED

PACED: Final = "paced: CPU us per delta"
FIRST: Final = "stream x1: first piece ms"
WHOLE: Final = "whole x16: CPU us per request"
WHOLE_64: Final = "whole x64: CPU us per request"
ONE: Final = "whole x1: whole request ms"
IDLE: Final = "memory: idle RSS MiB"
HELD: Final = "memory: held streams per 100 MB"
PARKED: Final = "memory: MiB for 100 parked turns"
COLD: Final = "cold start: s to the first answer"
HISTORY: Final = "history: log-log slope of CPU over bytes"
HISTORY_MEMORY: Final = "history: log-log slope of memory over bytes"
TOOLS: Final = "tools: log-log slope of CPU over bytes"
RESUMED: Final = "history 10: CPU ms of resuming itself"
RESUMED_LONG: Final = "history 1000: CPU ms of resuming itself"
CLI: Final = "cli: first piece ms"
TEXT: Final = "text: steepest log-log slope of CPU over characters"
SPAWN: Final = "posix_spawn"
NODE_CLI_ADDED_MS: Final = 5.2
"""The fastest of three Node proxies for cursor-agent over its spawn floor, measured once, on another day."""


@dataclass(frozen=True, slots=True)
class Goal:
    words: str
    measure: str
    """Without it there is nothing to be judged."""
    limit: float
    value: Callable[[Ledger], Spread]
    unit: str = ""
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: str
    reached: bool
    shown: str


def _ratio(measure: str, target: str, base: str) -> Callable[[Ledger], Spread]:
    return lambda ledger: ledger.ratio(measure, target, base)


def _own(measure: str) -> Callable[[Ledger], Spread]:
    return lambda ledger: ledger.spread(measure, GATEWAY)


def _over(above: Spread, below: Spread) -> Spread:
    return Spread(above.median / below.median, above.low / below.high, above.high / below.low)


def _added(ledger: Ledger) -> Spread:
    """Over what its own upstream takes when it is read directly."""
    return ledger.added(FIRST, GATEWAY, DIRECT_AGENT)


def _added_less(ledger: Ledger) -> Spread:
    return _over(ledger.added(FIRST, LITELLM, DIRECT), _added(ledger))


def _added_beside_envoy(ledger: Ledger) -> Spread:
    """One whole request, over the OpenAI stand-in. That of the Agent API takes longer, which is not forgiven here."""
    return _over(ledger.added(ONE, GATEWAY, DIRECT), ledger.added(ONE, ENVOY, DIRECT))


def _tail(ledger: Ledger) -> Spread:
    kind = "stream x64: first piece"
    return _over(ledger.spread(f"{kind} p99 ms", GATEWAY), ledger.spread(f"{kind} ms", GATEWAY))


def _resuming(ledger: Ledger) -> Spread:
    return _over(ledger.spread(RESUMED_LONG, GATEWAY), ledger.spread(RESUMED, GATEWAY))


def _cli_less(ledger: Ledger) -> Spread:
    node = Spread(NODE_CLI_ADDED_MS, NODE_CLI_ADDED_MS, NODE_CLI_ADDED_MS)
    return _over(node, ledger.added(CLI, GATEWAY, SPAWN))


GOALS: Final = (
    Goal("CPU per delta <= 1.3x the relay", PACED, 1.3, _ratio(PACED, GATEWAY, RELAY), "x"),
    Goal("CPU per delta <= 0.75x Envoy", PACED, 0.75, _ratio(PACED, GATEWAY, ENVOY), "x"),
    Goal("CPU per delta with `gather = 0` <= 1.6x the relay", PACED, 1.6, _ratio(PACED, UNGATHERED, RELAY), "x"),
    Goal("CPU per delta >= 20x below LiteLLM", PACED, 20, _ratio(PACED, LITELLM, GATEWAY), "x", at_least=True),
    Goal("CPU per delta >= 2x below Portkey on Bun", PACED, 2, _ratio(PACED, BUN, GATEWAY), "x", at_least=True),
    Goal("noise: a second copy of the gateway", PACED, 1.25, _ratio(PACED, AGAIN, GATEWAY), "x"),
    Goal("added time to first piece < 1 ms", FIRST, 1, _added, " ms"),
    Goal("added time to first piece >= 50x below LiteLLM", FIRST, 50, _added_less, "x", at_least=True),
    Goal("64 at a time: p99 <= 5x p50", FIRST, 5, _tail, "x"),
    Goal("CPU per whole answer, 16 at a time <= 2x Envoy", WHOLE, 2, _ratio(WHOLE, GATEWAY, ENVOY), "x"),
    Goal("CPU per whole answer, 64 at a time <= 2x Envoy", WHOLE_64, 2, _ratio(WHOLE_64, GATEWAY, ENVOY), "x"),
    Goal("CPU per whole answer, 16 at a time <= Portkey on Bun", WHOLE, 1, _ratio(WHOLE, GATEWAY, BUN), "x"),
    Goal("CPU per whole answer, 64 at a time <= Portkey on Bun", WHOLE_64, 1, _ratio(WHOLE_64, GATEWAY, BUN), "x"),
    Goal("added time of one whole answer <= 1.3x Envoy", ONE, 1.3, _added_beside_envoy, "x"),
    Goal("noise: a second copy, 16 at a time", WHOLE, 1.25, _ratio(WHOLE, AGAIN, GATEWAY), "x"),
    Goal("CPU per whole answer >= 100x below LiteLLM", WHOLE, 100, _ratio(WHOLE, LITELLM, GATEWAY), "x", at_least=True),
    Goal("idle RSS <= 35 MB", IDLE, 33.4, _own(IDLE), " MiB"),
    Goal("held streams per 100 MB >= 5000", HELD, 5000, _own(HELD), at_least=True),
    Goal("100 parked turns <= 20 MB", PARKED, 19, _own(PARKED), " MiB"),
    Goal("cold start <= 0.5 s", COLD, 0.5, _own(COLD), " s"),
    Goal("growth with the history: slope <= 1.1", HISTORY, 1.1, _own(HISTORY)),
    Goal("memory with the history: slope <= 1.1", HISTORY_MEMORY, 1.1, _own(HISTORY_MEMORY)),
    Goal("growth with the tools: slope <= 1.1", TOOLS, 1.1, _own(TOOLS)),
    Goal("resuming after 1000 messages <= 1.5x after 10, reading aside", RESUMED_LONG, 1.5, _resuming, "x"),
    Goal("growth with the size of hostile text: slope <= 1.2", TEXT, 1.2, _own(TEXT)),
    Goal("cursor-agent route: added time >= 2.5x below Node proxies", CLI, 2.5, _cli_less, "x", at_least=True),
)


def verdicts(ledger: Ledger) -> list[Verdict]:
    """Of the goals whose numbers were measured."""
    return [_judged(goal, ledger) for goal in GOALS if ledger.has(goal.measure, GATEWAY)]


def _judged(goal: Goal, ledger: Ledger) -> Verdict:
    try:
        found = goal.value(ledger)
    except KeyError as missing:
        return Verdict(goal.words, False, f"not measured: {missing} was left out")
    reached = found.median >= goal.limit if goal.at_least else found.median <= goal.limit
    return Verdict(goal.words, reached, f"{found.median:.3g}{goal.unit} ({found.low:.3g}-{found.high:.3g})")
