"""A token's life is counted on our own clock, whatever the issuer's clock says."""

from math import inf

import pytest

from caretway.accounts.token_lifetime import EARLY_S, UNKNOWN_LIFE_S, due, issued_at, subject, term, told
from unit.accounts.desk import jwt


@pytest.mark.parametrize("skew", [-7200.0, -30.0, 0.0, 30.0, 7200.0])
def test_the_issuers_clock_does_not_matter(skew: float) -> None:
    token = jwt(iat=5000 + skew, exp=5000 + skew + 3600)
    assert term(token, 5000.0).renew_at == 5000 + 3600 - EARLY_S
    assert term(token, 5000.0).ends_at == 5000 + 3600


LONG = [(3600, 300), (86400, 7200), (30 * 86400, 86400), (900, 300), (300, 150)]


@pytest.mark.parametrize(("life", "early"), LONG)
def test_a_long_life_is_renewed_in_time_to_say_that_it_failed(life: int, early: int) -> None:
    assert term(jwt(iat=0, exp=life), 5000.0).renew_at == 5000 + life - early


def test_dates_have_an_end() -> None:
    assert told(0.0) == "1970-01-01T00:00:00+00:00"
    assert told(1e12) == told(inf) == "9999-12-31T23:59:59+00:00"


def test_when_a_token_was_issued() -> None:
    assert (issued_at(jwt(iat=7)), issued_at(jwt(exp=9)), issued_at("opaque")) == (7.0, 0.0, 0.0)


def test_a_short_life_is_renewed_at_half_of_it() -> None:
    assert term(jwt(iat=0, exp=100), 5000.0).renew_at == 5050


def test_without_a_time_of_issue_the_end_counts() -> None:
    assert term(jwt(exp=8600), 5000.0).ends_at == 8600
    assert term(jwt(exp=4000), 5000.0).ends_at == inf, "no token is born dead: the clocks disagree"


NESTED = f"a.{'W1tb' * 1000}.c"  # 3,000 times "["


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "a.!!.c", "a.e30.c", "a.W10.c", jwt(exp="soon"), jwt(exp=True), jwt(exp=10**400), "é.é.é", NESTED],
)
def test_odd_tokens_have_no_known_end(token: str) -> None:
    assert term(token, 50.0).renew_at == 50.0 + UNKNOWN_LIFE_S
    assert subject(token) == ""


def test_a_clock_that_was_set_back_makes_a_token_due() -> None:
    token = jwt(iat=0, exp=3600)
    assert not due(token, 5000.0, 4950.0)
    assert due(token, 5000.0, 4000.0)
    assert due(token, 5000.0, 8400.0)


def test_whom_a_token_names() -> None:
    assert subject(jwt(sub="u", email="a@b.example")) == "a@b.example"
    assert subject(jwt(sub="u")) == "u"
