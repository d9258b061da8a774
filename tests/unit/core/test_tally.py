"""Whose tokens are whose: runs as stories, and the usage that each of their responses gets.

A story is a list of lines. `says N` is N characters of text, `tokens N` what upstream counted of it, `context N` a
checkpoint, `calls NAME N` a call with N characters of arguments, `results N` the next response with N characters of
results (`late N`: after a pause in which the cache went cold), `done` a tool whose result is in, `again` a new attempt.
"""

from dataclasses import dataclass

import pytest

from caretway.core.events import RunUsage, Usage
from caretway.core.request import Text, ToolResult
from caretway.core.tally import Tally


@dataclass(frozen=True)
class Case:
    name: str
    story: str
    told: tuple[Usage, ...]
    """Of each response, in their order."""
    total: RunUsage | None = None
    prompt: int = 100


def play(case: Case) -> tuple[Usage, ...]:
    tally = Tally(case.prompt)
    told: list[Usage] = []
    for line in case.story.splitlines():
        match line.split():
            case ["says", count]:
                tally.spoken_chars += int(count)
            case ["tokens", count]:
                tally.counted(int(count))
            case ["context", count]:
                tally.checkpoint(int(count))
            case ["calls", name, count]:
                tally.called(name, "x" * int(count))
            case ["works"]:
                tally.calling()
            case ["done"]:
                tally.answered()
            case ["pauses"]:
                told.append(tally.paused())
            case [("results" | "late") as word, count]:
                tally.next_response([ToolResult("c", (Text("x" * int(count)),))], warm=word == "results")
            case ["again"]:
                tally.reopened()
            case ["ends"]:
                told.append(tally.ended(case.total))
            case []:
                pass
            case words:
                raise AssertionError(words)
    return tuple(told)


CASES = [
    Case(
        "one model call is reported as it was counted",
        "says 40\ntokens 12\ncontext 12112\nends",
        (Usage(12_100, 12, 11_000, 90, 3, run=RunUsage(12_100, 12, 11_000, 90, 3)),),
        RunUsage(12_100, 12, 11_000, 90, 3),
    ),
    Case(
        "the total of several calls is on no response",
        "calls bash 36\npauses\nresults 400\ndone\ncontext 12210\nsays 40\ntokens 11\ncontext 12221\nends",
        (
            Usage(100, 10, estimated=True),
            Usage(12_210, 11, shared_tokens=12_000, run=RunUsage(24_300, 21, 12_000, 0, steps=2)),
        ),
        RunUsage(24_300, 21, 12_000, 0),
    ),
    Case(
        "a checkpoint that comes behind the call holds the call already",
        "calls bash 36\ncontext 12110\npauses",
        (Usage(12_100, 10, estimated=True),),
    ),
    Case(
        "a checkpoint while the client works is where the next step begins",
        "calls bash 36\npauses\ncontext 12110\nresults 400\ncalls bash 36\npauses",
        (Usage(100, 10, estimated=True), Usage(12_210, 10, estimated=True, shared_tokens=12_100)),
    ),
    Case(
        "a checkpoint of the step before that comes late lacks the results",
        "calls bash 36\npauses\nresults 4000\ncontext 12110\ncalls bash 36\npauses",
        (Usage(100, 10, estimated=True), Usage(13_110, 10, estimated=True, shared_tokens=12_100)),
    ),
    Case(
        "also when an earlier one is known",
        "context 12100\ncalls bash 36\npauses\nresults 4000\ncontext 12110\ncalls bash 36\npauses",
        (Usage(12_100, 10, estimated=True), Usage(13_110, 10, estimated=True, shared_tokens=12_100)),
    ),
    Case(
        "one that holds them is this step's, whether or not somebody said that they arrived",
        "context 12100\ncalls bash 36\npauses\nresults 4000\ncontext 13080\nsays 40\ntokens 9\nends",
        (Usage(12_100, 10, estimated=True), Usage(13_080, 9, shared_tokens=12_100)),
    ),
    Case(
        "a late one, then the right one",
        "calls bash 36\npauses\nresults 4000\ncontext 12110\ndone\ncontext 13080\nsays 40\ntokens 9\nends",
        (Usage(100, 10, estimated=True), Usage(13_080, 9, shared_tokens=12_070)),
    ),
    Case(
        "a step without a checkpoint: the last one, what was said since, and the results",
        "context 12100\ncalls bash 36\npauses\nresults 400\ncalls bash 76\npauses\nresults 40\ncalls a 3\npauses",
        (
            Usage(12_100, 10, estimated=True),
            Usage(12_210, 20, estimated=True, shared_tokens=12_100),
            Usage(12_240, 1, estimated=True, shared_tokens=12_210),
        ),
    ),
    Case(
        "without any checkpoint it is all a guess, and the total makes the last one a better one",
        "calls bash 36\npauses\nresults 400\nsays 40\nends",
        (
            Usage(100, 10, estimated=True),
            Usage(12_210, 10, estimated=True, shared_tokens=100, run=RunUsage(24_310, 20, steps=2)),
        ),
        RunUsage(24_310, 20),
    ),
    Case("an older server counts nothing", "says 40\ncontext 77\nends", (Usage(67, 10, estimated=True),)),
    Case("nothing said is not nothing", "ends", (Usage(100, 1, estimated=True),)),
    Case(
        "tools that somebody else ran are model calls too",
        "tokens 5\nworks\ndone\ncontext 12300\ntokens 6\ncontext 12306\nends",
        (Usage(12_295, 11, estimated=True, run=RunUsage(24_405, 11, steps=2)),),
        RunUsage(24_405, 11),
    ),
    Case(
        "parallel calls are one step",
        "works\nworks\ndone\ndone\ncontext 12300\ntokens 6\nends",
        (Usage(12_300, 6, estimated=True, run=RunUsage(24_405, 11, steps=2)),),
        RunUsage(24_405, 11),
    ),
    Case(
        "after a lost attempt the total is at least that, and what was said twice counts once",
        "says 40\ntokens 10\nagain\ntokens 10\nsays 20\ntokens 5\ncontext 12115\nends",
        (Usage(12_100, 15, estimated=True, run=RunUsage(12_100, 15, complete=False)),),
        RunUsage(12_100, 15),
    ),
    Case(
        "a total that cannot be one call's is not taken for one",
        "says 40\ntokens 10\ncontext 12110\nends",
        (Usage(12_100, 10, run=RunUsage(3_000_000, 10, 2_990_000)),),
        RunUsage(3_000_000, 10, 2_990_000),
    ),
    Case(
        "cached tokens that are more than all are dropped",
        "says 40\ntokens 10\ncontext 12110\nends",
        (Usage(12_100, 10, run=RunUsage(12_100, 10, 4_000_000)),),
        RunUsage(12_100, 10, 4_000_000),
    ),
    Case(
        "the last response takes the rest of the cached total, and no more than it read",
        "context 12100\ncalls bash 36\npauses\nresults 400\nsays 40\ntokens 9\ncontext 12219\nends",
        (
            Usage(12_100, 10, estimated=True),
            Usage(12_210, 9, shared_tokens=12_210, run=RunUsage(24_310, 19, 24_000, steps=2)),
        ),
        RunUsage(24_310, 19, 24_000),
    ),
    Case(
        "a cached total below what was told already",
        "context 12100\ncalls a 9\npauses\nresults 40\ncalls a 9\npauses\nresults 40\nsays 8\ntokens 2\n"
        "context 12126\nends",
        (
            Usage(12_100, 3, estimated=True),
            Usage(12_113, 3, estimated=True, shared_tokens=12_100),
            Usage(12_124, 2, shared_tokens=0, run=RunUsage(36_337, 8, 900, steps=3)),
        ),
        RunUsage(36_337, 8, 900),
    ),
    Case(
        "a cached total that is larger than the input it is part of",
        "context 12100\ncalls a 9\npauses\nresults 40\nsays 8\ntokens 2\ncontext 12115\nends",
        (
            Usage(12_100, 3, estimated=True),
            Usage(12_113, 2, shared_tokens=12_100, run=RunUsage(24_213, 5, 4_000_000, steps=2)),
        ),
        RunUsage(24_213, 5, 4_000_000),
    ),
    Case(
        "a lost attempt takes what it shared with it: the total is the next one's",
        "context 12100\ncalls a 9\npauses\nresults 40\ncalls a 9\npauses\nresults 40\nagain\nsays 8\ntokens 2\n"
        "context 12128\nends",
        (
            Usage(12_100, 3, estimated=True),
            Usage(12_113, 3, estimated=True, shared_tokens=12_100),
            Usage(
                12_126,
                2,
                estimated=True,
                shared_tokens=11_800,
                run=RunUsage(12_126, 2, 11_800, steps=3, complete=False),
            ),
        ),
        RunUsage(12_126, 2, 11_800),
    ),
    Case(
        "a checkpoint while the client works does not change what the response was reported to share",
        "context 12100\ncalls a 9\npauses\nresults 40\ncalls a 9\npauses\ncontext 12010\nresults 40\nsays 8\ntokens 2\n"
        "context 12025\nends",
        (
            Usage(12_100, 3, estimated=True),
            Usage(12_113, 3, estimated=True, shared_tokens=12_100),
            Usage(12_023, 2, shared_tokens=11_900, run=RunUsage(36_240, 8, 24_000, steps=3)),
        ),
        RunUsage(36_240, 8, 24_000),
    ),
    Case(
        "nothing is shared after a long pause",
        "context 12100\ncalls bash 36\npauses\nlate 400\ncalls bash 36\npauses\nresults 40\ncalls bash 36\npauses",
        (
            Usage(12_100, 10, estimated=True),
            Usage(12_210, 10, estimated=True),
            Usage(12_230, 10, estimated=True, shared_tokens=12_210),
        ),
    ),
    Case(
        "nothing is shared with a lost attempt",
        "context 12100\ncalls bash 36\npauses\nresults 400\nagain\ncalls bash 36\npauses",
        (Usage(12_100, 10, estimated=True), Usage(12_210, 10, estimated=True)),
    ),
    Case(
        "text is counted by upstream, the call behind it by us",
        "tokens 30\nsays 90\ncalls bash 36\npauses",
        (Usage(100, 40, estimated=True),),
    ),
    Case(
        "unless upstream counted the call too",
        "tokens 30\nsays 90\nworks\ntokens 14\ncalls bash 36\npauses",
        (Usage(100, 44, estimated=True),),
    ),
    Case("a checkpoint that says 0 says nothing", "context 0\nsays 40\nends", (Usage(100, 10, estimated=True),)),
    Case(
        "a conversation that was made shorter",
        "says 4000\ncontext 900\nends",
        (Usage(900, 1000, estimated=True),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whose_tokens(case: Case) -> None:
    assert play(case) == case.told


def test_what_is_expected_grows_with_what_was_said_and_done() -> None:
    tally = Tally(100)
    tally.called("bash", "x" * 36)
    tally.checkpoint(12_000)
    tally.next_response([ToolResult("c", (Text("x" * 400),))])
    assert tally.expected == 12_100


def test_two_parts_of_one_response() -> None:
    first = Usage(100, 5, 10, reasoning_tokens=2, run=RunUsage(100, 5, 10, steps=2))
    second = Usage(120, 7, estimated=True, run=RunUsage(120, 7, 90, 1, complete=False))
    run = RunUsage(220, 12, 100, 1, steps=3, complete=False)
    assert first.after(None) == first
    assert second.after(first) == Usage(120, 12, estimated=True, run=run)
    assert second.after(Usage(1)).run == second.run, "only one of them has ended a run"


def test_the_costs_of_several_runs_are_added_up() -> None:
    told, untold = RunUsage(1, 1, cents=1.5, charged_cents=0.0), RunUsage(1, 1)
    assert told.plus(told) == RunUsage(2, 2, steps=2, cents=3.0, charged_cents=0.0)
    assert told.plus(untold) == RunUsage(2, 2, steps=2, cents=1.5, charged_cents=0.0)
