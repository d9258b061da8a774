"""Simulated logins: which token is taken where, and how long it is good, by the switches."""

from dataclasses import replace

import pytest

from caretway_sim.accounts import Accounts, Person
from caretway_sim.manners import CLASSIC, LIVE, Manners
from caretway_sim.shared import Shared

WAYS = ("exchange", "oauth", "token", "refresh")


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def sign_in(accounts: Accounts) -> dict[str, str]:
    assert accounts.poll("u", "v") is None
    tokens = accounts.poll("u", "v")
    assert tokens is not None
    return tokens


PLACES = [("anywhere", WAYS), ("nowhere", ()), *((way, (way,)) for way in WAYS)]


@pytest.mark.parametrize(("place", "taken"), PLACES)
def test_where_a_refresh_token_is_taken(place: str, taken: tuple[str, ...]) -> None:
    world = Shared(replace(CLASSIC, refresh_at=place))  # type: ignore[arg-type]  # a table's text
    accounts = Accounts(world)
    refresh = sign_in(accounts)["refreshToken"]
    assert tuple(way for way in WAYS if accounts.renew(refresh, way) is not None) == taken
    assert (accounts.exchange(refresh) is not None) is ("exchange" in taken)
    assert accounts.exchange("crsr_key") is not None, "a key is taken whatever happens to logins"
    assert world.stats.renewals_refused == 5 - len(taken) - ("exchange" in taken)


@pytest.mark.parametrize("rotates", [False, True])
def test_how_often_a_refresh_token_is_taken(rotates: bool) -> None:
    accounts = Accounts(Shared(Manners(rotates_refresh=rotates)))
    refresh = sign_in(accounts)["refreshToken"]
    first = accounts.renew(refresh, "token")
    assert first is not None
    assert (accounts.renew(refresh, "token") is None) is rotates
    assert accounts.renew(first["refreshToken"], "token") is not None


def test_an_access_token_renews_only_where_there_is_one_token() -> None:
    classic = Accounts(Shared(CLASSIC))
    tokens = sign_in(classic)
    assert classic.renew(tokens["accessToken"], "oauth") is None
    assert classic.renew(tokens["refreshToken"], "oauth") is not None
    live = Accounts(Shared(LIVE))
    tokens = sign_in(live)
    assert tokens["accessToken"] == tokens["refreshToken"]
    assert live.renew(tokens["refreshToken"], "oauth") is not None


def test_one_token_is_over_when_its_day_is() -> None:
    clock = Clock()
    accounts = Accounts(Shared(LIVE, clock=clock))
    token = sign_in(accounts)["refreshToken"]
    clock.now += 86399
    renewed = accounts.renew(token, "oauth")
    assert renewed is not None and list(renewed) == ["accessToken"]
    clock.now += 1
    assert accounts.renew(token, "oauth") is None
    assert accounts.renew(renewed["accessToken"], "oauth") is not None


def test_what_a_key_wishes_for() -> None:
    accounts = Accounts(Shared())
    wishful = "crsr_1 life=60 model=mine spent=80 plan=ultra team=42"
    tokens = accounts.exchange(wishful)
    assert tokens is not None
    person = accounts.person(tokens["accessToken"])
    assert person == accounts.person(wishful) == Person(person.name, 60, "mine", 80, "ultra", 42)
    assert accounts.person("plain").team == 0
    assert Accounts(Shared(Manners(team_seats=True))).person("plain").team == 7
