"""What a scene came to. Pure: the scene as it should be, and as its client saw it -> a verdict with its reason."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from faults.answers import Answer
from faults.scenes import NONCE, Scene, squash


class Verdict(Enum):
    RIGHT = "right"
    ERROR = "defined error"
    """An error that says what happened; nothing wrong was said before it."""
    WRONG = "wrong"
    """Wrong words, a piece missing, text that was said twice, a call that nobody asked for."""
    DOUBLED = "doubled call"
    """A call was handed to the client more often than the model made it."""
    CROSSED = "crossed"
    """Words of another scene."""
    LATE = "past the limits"
    UNDEFINED = "undefined"
    """The answer was cut without a word, cannot be read, or is a 500."""


GOOD: Final = (Verdict.RIGHT, Verdict.ERROR)


class End(Enum):
    """How a client's part in a scene came to its end."""

    PLAYED = "to the end"
    ERROR = "an error"
    CUT = "the answer was cut"
    MALFORMED = "the answer cannot be read"
    LATE = "no answer in time"
    ENDLESS = "more answers than there can be"


@dataclass(slots=True)
class Played:
    """A scene as its client saw it."""

    end: End = End.PLAYED
    detail: str = ""
    status: int = 200
    code: str = ""
    answers: list[list[Answer]] = field(default_factory=list)
    """Of each user turn."""
    ran: Counter[str] = field(default_factory=Counter)
    """How often each call was run."""
    posts: int = 0
    longest_s: float = 0.0
    """The longest wait for one answer."""


def judge(scene: Scene, played: Played, limit_s: float) -> tuple[Verdict, str]:
    answers = [answer for turn in played.answers for answer in turn]
    if foreign := _foreign(scene, answers):
        return Verdict.CROSSED, f"words of {foreign}"
    expected = scene.expected
    for key, times in played.ran.items():
        if not expected[key]:
            return Verdict.WRONG, f"a call that nobody made: {key}"
        if times > expected[key]:
            return Verdict.DOUBLED, f"{key} ran {times} times instead of {expected[key]}"
    for turn, said in zip(scene.turns, played.answers, strict=False):
        ended = said is not played.answers[-1] or played.end is End.PLAYED
        for what, wanted, got in (
            ("text", turn.text, squash("".join(answer.text for answer in said))),
            ("thinking", turn.thought, squash("".join(answer.thought for answer in said))),
        ):
            if got != wanted if ended else not wanted.startswith(got):
                return Verdict.WRONG, _difference(what, wanted, got)
    if played.end is End.LATE or played.longest_s > limit_s:
        return Verdict.LATE, f"{played.longest_s:.1f} s instead of at most {limit_s:g} s"
    match played.end:
        case End.ERROR if played.status != 500 and played.code not in ("", "server_error"):
            return Verdict.ERROR, played.code
        case End.PLAYED:
            if played.ran != expected:
                return Verdict.WRONG, f"calls are missing: {sorted((expected - played.ran).elements())}"
            return Verdict.RIGHT, ""
        case End.ENDLESS:
            return Verdict.WRONG, played.end.value
        case _:
            return Verdict.UNDEFINED, f"{played.end.value}: {played.status} {played.code} {played.detail}"


def _foreign(scene: Scene, answers: list[Answer]) -> str:
    for answer in answers:
        words = [
            answer.text,
            answer.thought,
            *(str(value) for call in answer.calls for value in call.arguments.values()),
        ]
        for nonce in NONCE.findall(" ".join(words)):
            if nonce != scene.nonce:
                return str(nonce)
    return ""


def _difference(what: str, wanted: str, got: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), min(len(wanted), len(got)))
    return f"{what} differs at {at}: ...{got[at : at + 60]!r} instead of ...{wanted[at : at + 60]!r}"
