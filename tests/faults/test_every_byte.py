"""A conversation with two tool steps, one of them parallel, whose connection is cut after every single byte of the
server's, and after every message of the client's. Without sockets; time jumps. The first tier cuts at messages only.

Each call reaches the client exactly once in every case; nearly all cases end with the right answer, the others with an
error that says what happened.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Final

import pytest

from caretway_sim.manners import CLASSIC, LIVE_AT_ONCE, Manners
from faults.judge import GOOD, Verdict, judge
from faults.memory import Cuts, converse, timeless
from faults.scenes import KINDS, Scene, scene

NONCE: Final = "n0123456789abn"
TWO_STEPS: Final = scene("two steps", NONCE)
PROFILES = pytest.mark.parametrize(
    "manners", [pytest.param(CLASSIC, id="classic", marks=pytest.mark.all), pytest.param(LIVE_AT_ONCE, id="live")]
)
LIMIT_S: Final = 300.0
"""Of the loop's own time, with the default limits: nothing may wait for a call that was cut while it was written."""


def sweep(played: Scene, cases: Iterable[Cuts], retries: int = 0, manners: Manners = LIVE_AT_ONCE) -> Counter[str]:
    """Plays all cases; fails with those that came out wrong."""
    verdicts: Counter[str] = Counter()
    bad: list[str] = []
    with timeless() as run:
        for cuts in cases:
            told = f"down {cuts.down} up {cuts.up}"
            seen, _ = run(converse(played, cuts, retries, manners))
            verdict, why = judge(played, seen, LIMIT_S)
            verdicts[verdict.value] += 1
            if verdict not in GOOD:
                bad.append(f"{told}: {verdict.value}: {why}")
    assert not bad, f"{len(bad)} of {verdicts.total()} cases: {dict(verdicts)}\n" + "\n".join(bad[:15])
    return verdicts


def length(played: Scene, manners: Manners = LIVE_AT_ONCE) -> tuple[int, int, list[int]]:
    """Bytes of the server, messages of the client, and where the server's messages end, when nothing is cut."""
    with timeless() as run:
        seen, wire = run(converse(played, Cuts(), manners=manners))
        assert judge(played, seen, LIMIT_S) == (Verdict.RIGHT, "")
        assert seen.longest_s < 5, "nothing is waited for"
        return wire.heard, wire.said, sorted(set(wire.marks))


def right(verdicts: Counter[str]) -> float:
    return verdicts[Verdict.RIGHT.value] / verdicts.total()


@pytest.mark.all
@pytest.mark.timeout(900)
def test_every_byte() -> None:
    size, _, _ = length(TWO_STEPS)
    assert right(sweep(TWO_STEPS, (Cuts(down=[at]) for at in range(size)))) >= 0.99


@pytest.mark.all
@pytest.mark.timeout(600)
def test_every_fifth_byte_and_around_every_message() -> None:
    size, _, marks = length(TWO_STEPS)
    around = {mark + shift for mark in marks for shift in (-1, 0, 1)}
    places = sorted({*range(0, size, 5), *around} & set(range(size)))
    assert right(sweep(TWO_STEPS, (Cuts(down=[at]) for at in places))) >= 0.99


@PROFILES
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_of_the_server(kind: str, manners: Manners) -> None:
    played = scene(kind, NONCE)
    size, _, marks = length(played, manners)
    places = [mark + shift for mark in marks for shift in (-1, 0) if mark + shift < size]
    assert right(sweep(played, (Cuts(down=[at]) for at in places), manners=manners)) >= 0.99


@PROFILES
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_of_the_client(kind: str, manners: Manners) -> None:
    """It arrived, and its sender does not know."""
    played = scene(kind, NONCE)
    _, messages, _ = length(played, manners)
    assert right(sweep(played, (Cuts(up=[at]) for at in range(1, messages + 1)), manners=manners)) >= 0.99


@pytest.mark.all
@pytest.mark.parametrize("retries", [0, 2])
def test_several_cuts(retries: int) -> None:
    """More than the retry budget may be: then there is an error, and still nothing twice."""
    random = Random("several")
    size, messages, marks = length(TWO_STEPS)
    cases = []
    for _ in range(250):
        down = sorted(random.choices([*marks, *range(size)], k=random.choice((1, 2, 3, 4))))
        cases.append(Cuts(down=down, up=sorted(random.sample(range(1, messages), random.choice((0, 1))))))
    assert right(sweep(TWO_STEPS, cases, retries)) >= 0.5
