"""The judge, as a table: what a client saw -> what it is called."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from contract.speakers import Call as SeenCall
from faults.answers import Answer
from faults.judge import End, Played, Verdict, judge
from faults.scenes import KINDS, Scene, outcome, scene

NONCE, OTHER = "n000000000001n", "n000000000002n"
ONE_CALL = scene("one call", NONCE)
KEY = ONE_CALL.turns[0].calls[0].key
TEXT = f"Looking for {NONCE}", f"Found {NONCE}\n{outcome(NONCE, KEY, 1)}"


@dataclass(frozen=True)
class Case:
    name: str
    verdict: Verdict
    said: tuple[str, ...] = TEXT
    ran: dict[str, int] = field(default_factory=lambda: {KEY: 1})
    end: End = End.PLAYED
    status: int = 200
    code: str = ""
    seconds: float = 1.0
    arguments: str = NONCE


CASES = [
    Case("as it should be", Verdict.RIGHT),
    Case("white space is the client's", Verdict.RIGHT, said=(f"{TEXT[0]}\n\n", TEXT[1])),
    Case("a word is missing", Verdict.WRONG, said=(TEXT[0], TEXT[1].replace("Found", ""))),
    Case("said twice", Verdict.WRONG, said=(TEXT[0], TEXT[0], TEXT[1])),
    Case("the end is missing", Verdict.WRONG, said=(TEXT[0],)),
    Case("the call never came", Verdict.WRONG, ran={}),
    Case("a call of nobody", Verdict.WRONG, ran={KEY: 1, 'look {"key": "?"}': 1}),
    Case("run twice", Verdict.DOUBLED, ran={KEY: 2}),
    Case("run twice, and an error says so", Verdict.DOUBLED, ran={KEY: 2}, end=End.ERROR, status=503, code="x"),
    Case("words of another scene", Verdict.CROSSED, said=(TEXT[0], TEXT[1] + OTHER)),
    Case("arguments of another scene", Verdict.CROSSED, arguments=OTHER),
    Case("too late", Verdict.LATE, seconds=11),
    Case("never", Verdict.LATE, said=(TEXT[0],), end=End.LATE),
    Case(
        "an error that says what",
        Verdict.ERROR,
        said=(TEXT[0],),
        end=End.ERROR,
        status=503,
        code="upstream_unavailable",
    ),
    Case("in mid-stream", Verdict.ERROR, said=(TEXT[0], "Found"), end=End.ERROR, code="upstream_timeout"),
    Case("after wrong words", Verdict.WRONG, said=(TEXT[0], "Lost"), end=End.ERROR, code="upstream_timeout"),
    Case("our own fault", Verdict.UNDEFINED, said=(TEXT[0],), end=End.ERROR, status=500, code="server_error"),
    Case("our own fault in mid-stream", Verdict.UNDEFINED, said=(TEXT[0],), end=End.ERROR, code="server_error"),
    Case("cut", Verdict.UNDEFINED, said=(TEXT[0],), end=End.CUT),
    Case("not readable", Verdict.UNDEFINED, said=(TEXT[0],), end=End.MALFORMED),
    Case("without end", Verdict.WRONG, said=(TEXT[0],), end=End.ENDLESS),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_verdict(case: Case) -> None:
    answers = [Answer(text) for text in case.said]
    answers[0].calls = [SeenCall("id", "look", {"key": f"a {case.arguments}"})]
    played = Played(case.end, "", case.status, case.code, [answers], Counter(case.ran), longest_s=case.seconds)
    assert judge(ONE_CALL, played, limit_s=10)[0] is case.verdict


@pytest.mark.parametrize("kind", KINDS)
def test_every_scene_is_full_of_its_nonce(kind: str) -> None:
    made: Scene = scene(kind, NONCE)
    assert all(NONCE in turn.prompt and NONCE in turn.text for turn in made.turns)
    assert all(NONCE in call.argument for turn in made.turns for call in turn.calls)
