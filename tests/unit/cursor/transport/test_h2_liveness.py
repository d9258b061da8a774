"""When a connection is asked whether it lives, and what is made of the answer: stories on a clock moved by hand."""

import asyncio
from typing import cast

import pytest

from caretway.cursor.transport.h2_connection import H2Connection
from caretway.cursor.transport.h2_liveness import Liveness, PendingPing, next_ping, patience
from caretway.cursor.transport.ports import KIB, MIB, TransportLimits
from unit.processes.test_tasks import Loop

LIMITS = TransportLimits()


class Connection:
    """Writes down what it is told, and does what a connection does: pass the time, hear, answer."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.start = self.loop.now
        self.in_use = True
        self.told: list[str] = []
        self.pings: list[bytes] = []
        self.life = Liveness(cast(H2Connection, self), LIMITS, cast(asyncio.AbstractEventLoop, self.loop))

    def send_ping(self, payload: bytes) -> None:
        self.pings.append(payload)
        self.told.append(f"{self.loop.now - self.start:g} ping")

    def proven(self) -> None:
        self.told.append(f"{self.loop.now - self.start:g} proven")

    def unheard(self, waited_s: float) -> None:
        self.told.append(f"{self.loop.now - self.start:g} unheard")
        self.life.stop()

    def idle(self) -> None:
        self.told.append(f"{self.loop.now - self.start:g} idle")

    def open(self) -> None:
        self.life.opened(first=True)
        self.loop.pass_by(0.0)

    def hear(self, size: int = 20) -> None:
        self.life.heard_at = self.loop.now
        self.life.heard += size

    def answer(self, payload: bytes | None = None) -> None:
        self.hear(17)
        self.life.answered(payload if payload is not None else self.pings[-1])

    def pass_by(self, seconds: float, *, talking: bool = False, at_a_time: float = 0.25) -> None:
        for _ in range(round(seconds / at_a_time)):
            self.loop.pass_by(at_a_time)
            if talking:
                self.hear()


def test_a_peer_that_answers_is_asked_now_and_then() -> None:
    peer = Connection()
    peer.open()
    for _ in range(60):
        asked = len(peer.pings)
        peer.pass_by(1.0, talking=True)
        if len(peer.pings) > asked:
            peer.answer()
    assert peer.told == [f"{at} ping" for at in range(10, 61, 10)]


def test_a_peer_that_talks_and_does_not_hear_us() -> None:
    peer = Connection()
    peer.open()
    peer.pass_by(60.0, talking=True)
    assert peer.told == ["10 ping", "20.5 unheard"]  # what it said meanwhile earned it a moment


def test_a_black_hole_is_noticed_long_before_the_watchdog_of_30_seconds() -> None:
    peer = Connection()
    peer.open()
    peer.pass_by(1.0, talking=True)
    peer.pass_by(30.0)
    assert peer.told == ["5 ping", "15 unheard"]


def test_a_silent_peer_that_answers_is_not_asked_ever_more() -> None:
    peer = Connection()
    peer.open()
    peer.hear()
    for _ in range(160):
        asked = len(peer.pings)
        peer.pass_by(0.25)
        if len(peer.pings) > asked:
            peer.answer()
    assert peer.told == [f"{at} ping" for at in (10, 20, 30, 40)]


def test_an_answer_to_another_ping_is_none() -> None:
    peer = Connection()
    peer.open()
    peer.pass_by(10.0)
    peer.answer(b"12345678")
    peer.answer(bytes(8))
    peer.pass_by(10.5)
    assert peer.told[-1] == "20.25 unheard"


def test_who_begins_after_a_silence_does_not_wait_long() -> None:
    peer = Connection()
    peer.in_use = False
    peer.life.emptied()
    peer.pass_by(60.0)
    peer.in_use = True
    peer.open()
    assert peer.told == ["60 ping"]
    assert not peer.life.in_doubt
    peer.pass_by(2.25)
    assert peer.life.in_doubt, "the next one goes elsewhere"
    peer.pass_by(1.0)
    assert peer.told == ["60 ping", "63 unheard"]


def test_who_begins_on_a_connection_that_only_talks_asks_too() -> None:
    peer = Connection()
    peer.open()
    peer.pass_by(3.0, talking=True)
    peer.life.opened(first=False)
    peer.life.opened(first=False)
    assert peer.told == ["3 ping"]
    peer.pass_by(2.25, talking=True)
    assert peer.life.in_doubt, "the next one goes elsewhere"
    peer.pass_by(10.0, talking=True)
    assert peer.told == ["3 ping", "13.5 unheard"]


def test_doubt_asks_at_once_and_the_answer_ends_it() -> None:
    peer = Connection()
    peer.open()
    peer.pass_by(1.0, talking=True)
    peer.life.doubt()
    assert peer.told == ["1 ping"] and peer.life.in_doubt
    peer.pass_by(1.0, talking=True)
    peer.life.doubt()
    peer.answer()
    assert peer.told == ["1 ping", "2 proven"] and not peer.life.in_doubt


def test_many_who_doubt_do_not_make_it_longer() -> None:
    peer = Connection()
    peer.open()
    peer.hear()
    for _ in range(16):
        peer.life.doubt()
        peer.pass_by(0.25)
    assert peer.told == ["0 ping", "3 unheard"]


def test_doubt_shortens_a_wait_that_is_under_way() -> None:
    peer = Connection()
    peer.open()
    peer.pass_by(11.0)
    peer.life.doubt()
    peer.answer(peer.pings[0])  # it was asked before the doubt came
    assert peer.life.in_doubt
    peer.pass_by(5.0)
    assert peer.told == ["10 ping", "11 ping", "14.25 unheard"]


def test_doubt_about_a_connection_that_nobody_uses_any_more_is_settled_too() -> None:
    for answers in (True, False):
        peer = Connection()
        peer.open()
        peer.hear()
        peer.life.doubt()
        peer.in_use = False
        peer.life.emptied()
        if answers:
            peer.answer()
        peer.pass_by(300.0, at_a_time=1.0)
        assert peer.told == ["0 ping", *(["0 proven", "240 idle"] if answers else ["4 unheard"])]


def test_time_in_which_we_did_not_run_does_not_count() -> None:
    peer = Connection()
    peer.open()
    peer.pass_by(10.0)
    peer.loop.pass_by(3600.0)  # the answer may have been in our socket all the time
    assert peer.told == ["10 ping"]
    peer.answer()
    peer.pass_by(1.0)
    assert "unheard" not in "".join(peer.told)


@pytest.mark.parametrize(
    ("ahead", "heard", "seconds"),
    [
        (0, 0, 10.0),
        (0, 1 * KIB, 10.0),
        (1 * MIB, 0, 26.0),
        (0, 1 * MIB, 26.0),
        (1 * MIB, 1 * MIB, 42.0),
        (0, 1024 * MIB, 266.0),
    ],
    ids=["nothing", "heartbeats", "an upload", "a download", "both", "no more than a window can hold an answer up"],
)
def test_what_is_under_way_lengthens_the_wait(ahead: int, heard: int, seconds: float) -> None:
    question = PendingPing(b"", 0.0, LIMITS.ping_timeout_s, ahead=ahead, heard=50)
    assert patience(question, 50 + heard, LIMITS) == pytest.approx(seconds, abs=0.1)


def test_an_upload_is_forgiven_until_it_is_proven() -> None:
    peer = Connection()
    peer.open()
    peer.life.sent += 4 * MIB
    peer.pass_by(60.0)
    assert peer.told == ["10 ping"]
    peer.answer()
    peer.pass_by(30.0)
    assert peer.told == ["10 ping", "60 ping", "60 proven", "70 unheard"]


@pytest.mark.parametrize(
    ("asked_at", "answered_at", "heard_at", "due"),
    [
        (100.0, 100.1, 105.0, 109.0),
        (100.0, 100.1, 100.1, 110.0),
        (100.0, 100.1, 109.0, 110.0),
    ],
    ids=["it fell silent", "it never spoke since", "it speaks"],
)
def test_when_to_ask(asked_at: float, answered_at: float, heard_at: float, due: float) -> None:
    assert next_ping(LIMITS, asked_at=asked_at, answered_at=answered_at, heard_at=heard_at) == due
