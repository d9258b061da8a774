"""Two gateways with one key meet, and each hop counts once; anything else is refused, whatever stands in a header."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caretway.cluster.seal import HopSession, NotForUs, answered, challenge, met, proven, signed, signing_key
from caretway.core.passing import Asker

KEY = signing_key("cw-the-key-of-a-cluster-0123456789")
HERE = "http://127.0.0.1:1"
HOP: dict[str, Any] = {"method": "POST", "target": "/v1/chat/completions"}
ASKER = Asker("annä;key=x", "agent/1;sig=0", "owner")


def meeting() -> tuple[HopSession, HopSession]:
    """As the gateway that dials knows it, and the other one."""
    asked = challenge(KEY, schema=2, to="77fe", address=HERE, sender="0a1b", nonce="00")
    answer, there = answered(KEY, asked, schema=2, own="77fe", address=HERE, nonce="11")
    return met(KEY, asked, answer), there


def taken(there: HopSession, header: str, own: str = "77fe", **other: Any) -> Any:
    return proven({there.name: there}, header, own=own, **{**HOP, **other})[1]


def test_each_hop_says_who_asks_and_counts_once() -> None:
    here, there = meeting()
    first, second = [signed(here, digest="d", asker=ASKER, **HOP) for _ in range(2)]
    visit = taken(there, first)
    assert (visit.asker, visit.came_from, visit.digest) == (ASKER, "0a1b", "d")
    assert taken(there, second) == visit
    for again in (first, second):
        with pytest.raises(NotForUs, match="sent before"):
            taken(there, again)


def test_a_hop_of_another_session_place_or_gateway_is_refused() -> None:
    here, there = meeting()
    hop = signed(here, digest="d", asker=ASKER, **HOP)
    for own, other, words in (
        ("77fe", {"target": "/v1/responses"}, "signature"),
        ("77fe", {"method": "GET"}, "signature"),
        ("0a1b", {}, "it is for 77fe"),
    ):
        with pytest.raises(NotForUs, match=words):
            taken(there, hop, own, **other)
    with pytest.raises(NotForUs, match="not known"):
        proven({}, hop, own="77fe", **HOP)
    asked = challenge(KEY, schema=2, to="77fe", address=HERE, sender="0a1b", nonce="00")
    _, fresh = answered(KEY, asked, schema=2, own="77fe", address=HERE, nonce="12")
    with pytest.raises(NotForUs, match="signature"):
        proven({here.name: fresh}, hop, own="77fe", **HOP)
    assert taken(there, hop)


def test_an_answer_is_for_one_challenge_and_a_challenge_is_no_answer() -> None:
    asked = challenge(KEY, schema=2, to="77fe", address=HERE, sender="0a1b", nonce="00")
    answer, _ = answered(KEY, asked, schema=2, own="77fe", address=HERE, nonce="11")
    for other in (asked, answer[:-1], answer.replace("11", "12", 1), "nonce=11;sig=ä"):
        with pytest.raises(NotForUs):
            met(KEY, asked, other)
    with pytest.raises(NotForUs):
        met(KEY, challenge(KEY, schema=2, to="77fe", address=HERE, sender="0a1b", nonce="01"), answer)


@given(st.text(max_size=60))
def test_whatever_stands_in_a_header_is_refused(text: str) -> None:
    _, there = meeting()
    for header in (text, f"{text};sig={text}", f"session=11;n={text};sig={text}"):
        with pytest.raises(NotForUs):
            taken(there, header)
        with pytest.raises(NotForUs):
            answered(KEY, header, schema=2, own="77fe", address=HERE, nonce="11")
