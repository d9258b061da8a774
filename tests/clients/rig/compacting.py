"""Mode `compact`: a client shortens a long conversation of its own, and goes on with it.

Six turns in one session; the client compacts before the fourth. Each turn but that one has a command that writes a line
to a file and prints a long text. The gateway's answers are read in between: the first request after the summary says `compacted`, the next
ones continue, and no command ran twice.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from recorder import Exchange
from rig import Outcome, Run

MARK = "This belongs to the long conversation."
LONG = "Nothing of this must be lost. " * 300
TURNS = range(1, 7)
COMPACTED_BEFORE = 4
ANSWER = "This is the simulator."

Turn = Callable[[str, int], Outcome]
"""One prompt in the same session, by its number."""


def compact(run: Run, turn: Turn, shrink: Callable[[], Outcome] | None = None) -> Outcome:
    """`shrink`: the client's own command. Without it the fourth turn compacts by itself."""
    run.write("long.txt", LONG + "\n")
    done = Outcome(0, "", "")
    before = 0
    for number in TURNS:
        if number == COMPACTED_BEFORE:
            before = len(run.exchanges)
            if shrink is not None and (done := shrink()).code:
                return replace(done, passed=False, reason=f"its command: exit code {done.code}")
        done = turn(prompt(run, number), number)
        if done.code or ANSWER not in done.out:
            return replace(done, passed=False, reason=f"turn {number}: exit code {done.code}, or no answer")
    wrong = judged(run, run.exchanges[:before], run.exchanges[before:])
    return replace(done, passed=not wrong, reason=wrong, note=told(run, before))


def prompt(run: Run, number: int) -> str:
    """Clients keep what their user said, so before the summary there is no `sim:` line: it would be obeyed again."""
    command = f"echo {number} >> ran.txt; cat long.txt"
    if number < COMPACTED_BEFORE:
        return f"{MARK}\nPlease run `{command}`."
    ((name, _),) = run.client.arguments.items()
    call = [f"sim: call {run.client.tool} {json.dumps({name: command})}"] if number > COMPACTED_BEFORE else []
    return run.prompt(MARK, *call, f"sim: say {ANSWER}")


def own(run: Run, exchanges: list[Exchange]) -> list[Exchange]:
    """The conversation itself: not its title, not the request for a summary."""
    return [one for one in exchanges if run.client.tool in one.tools and (one.outcome[0] == "resumed" or asks(one))]


def asks(one: Exchange) -> bool:
    """A prompt of ours is the newest, or a client's own notes follow it."""
    said = one.body.get("messages") or one.body.get("input") or []
    return one.outcome[0] != "" and MARK in json.dumps(said[-2:])


def judged(run: Run, before: list[Exchange], after: list[Exchange]) -> str:
    ran = (run.work / "ran.txt").read_text().split()
    wanted = [str(number) for number in TURNS if number != COMPACTED_BEFORE]
    if ran != wanted:
        return f"these commands ran: {' '.join(ran)}"
    outcomes = [one.outcome for one in own(run, after)]
    first = next(((label, reason) for label, reason in outcomes if label != "resumed"), ("", ""))
    if first[0] not in ("fresh", "replayed") or first[1] != "compacted":
        return f"the first request after the summary was {first[0]}: {first[1]}"
    later = [label for label, _ in outcomes[outcomes.index(first) + 1 :] if label != "resumed"]
    if later != ["continued"] * 2:
        return f"the next ones were {', '.join(later) or 'none'}"
    last, fresh = own(run, before)[-1], own(run, after)[0]
    if not fresh.tokens < last.tokens:
        return f"{last.tokens} tokens before, {fresh.tokens} after"
    return ""


def told(run: Run, before: int) -> str:
    rows = [(one, own(run, [one]) != []) for one in run.exchanges if one.outcome[0]]
    lines = []
    for one, main in rows:
        label, reason = one.outcome
        mark = "" if main else " (aside)"
        lines.append(f"  {one.tokens:7} tokens  {label:10} {reason}{mark}")
    return "\n" + "\n".join(lines)
