"""One renewal for everybody, in time; a failure is no outage while the token lives; for good means 401 and a hint."""

import asyncio
from math import inf

import pytest

from caretway.accounts.account import DEAD_S, EARLY_S, UNKNOWN_LIFE_S, Account, issued_at, subject, term, utc_text
from caretway.accounts.login import EXCHANGE, WAYS
from caretway.accounts.tokens import RETRY_S, FixedToken, NoToken, OwnAccount, RenewedToken, exchanged_key
from caretway.core.errors import ErrorKind, GatewayError
from caretway.processes.tasks import spawn
from unit.accounts.token_endpoint import TokenEndpoint, jwt


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
    assert utc_text(0.0) == "1970-01-01T00:00:00+00:00"
    assert utc_text(1e12) == utc_text(inf) == "9999-12-31T23:59:59+00:00"


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
    assert not term(token, 5000.0).due(4950.0)
    assert term(token, 5000.0).due(4000.0)
    assert term(token, 5000.0).due(8400.0)


def test_whom_a_token_names() -> None:
    assert subject(jwt(sub="u", email="a@b.example")) == "a@b.example"
    assert subject(jwt(sub="u")) == "u"


@pytest.fixture
def endpoint() -> TokenEndpoint:
    return TokenEndpoint()


def key_of(endpoint: TokenEndpoint) -> RenewedToken:
    return exchanged_key("key", endpoint.call, endpoint.clock)


def login_of(endpoint: TokenEndpoint, shelf: OwnAccount | None = None) -> RenewedToken:
    token = jwt(iat=endpoint.now, exp=endpoint.now + endpoint.life)
    kept = shelf or OwnAccount(Account(token, "refresh-0", received_at=endpoint.now))
    return RenewedToken(kept, endpoint.call, endpoint.clock)


async def failure(source: RenewedToken, refused: str = "") -> GatewayError:
    with pytest.raises(GatewayError) as failed:
        await source.token(refused=refused)
    return failed.value


async def test_one_exchange_for_many_and_again_before_the_end(endpoint: TokenEndpoint) -> None:
    key = key_of(endpoint)
    tokens = await asyncio.gather(*(key.token() for _ in range(20)))
    assert len(set(tokens)) == 1 and endpoint.asked == [(EXCHANGE, "key")]
    endpoint.now += 3600 - 301
    assert await key.token() == tokens[0]
    endpoint.now += 2
    assert await key.token() != tokens[0]
    assert endpoint.asked == [(EXCHANGE, "key")] * 2, "a key stays the better credential than what it was exchanged for"


@pytest.mark.parametrize("skew", [-86400.0, 86400.0])
async def test_a_clock_that_is_a_day_wrong_renews_no_oftener(endpoint: TokenEndpoint, skew: float) -> None:
    endpoint.skew = skew
    key = key_of(endpoint)
    for _ in range(60):
        await key.token()
        endpoint.now += 60
    assert len(endpoint.asked) == 2


async def test_a_kept_token_is_used_as_long_as_it_lives(endpoint: TokenEndpoint) -> None:
    login = login_of(endpoint)
    await login.token()
    assert endpoint.asked == []
    endpoint.now += 3600
    await login.token()
    endpoint.now += 3600
    await login.token()
    assert endpoint.asked == [(EXCHANGE, "refresh-0"), (EXCHANGE, "refresh-1")], (
        "a new refresh token replaces the old one"
    )


async def test_refused_tokens_are_replaced_once_for_all(endpoint: TokenEndpoint) -> None:
    key = key_of(endpoint)
    first = await key.token()
    second = await asyncio.gather(*(key.token(refused=first) for _ in range(10)))
    assert len({first, *second}) == 2 and len(endpoint.asked) == 2
    assert await key.token(refused=first) == second[0], "one that comes late with the same refusal asks nobody"
    assert len(endpoint.asked) == 2


async def test_a_refusal_during_a_look_that_does_not_know_of_it_is_heeded(endpoint: TokenEndpoint) -> None:
    login = login_of(endpoint)
    looking, heeded = await asyncio.gather(login.token(), login.token(refused=(await login_of(endpoint).token())))
    assert looking != heeded and len(endpoint.asked) == 1


async def test_a_failure_while_the_token_lives_is_no_outage(endpoint: TokenEndpoint) -> None:
    login = login_of(endpoint)
    old = await login.token()
    endpoint.now += 3600 - 299
    endpoint.down = True
    assert await login.token() == old
    assert await login.token() == old and len(endpoint.asked) == 1, "not tried again at once"
    endpoint.now += RETRY_S
    assert await login.token() == old and len(endpoint.asked) == 2
    endpoint.now += 300
    assert (await failure(login)).kind is ErrorKind.UPSTREAM_DOWN
    endpoint.down = False
    assert await login.token() != old, "and when it has ended, every request tries"


async def test_revoked_while_alive_works_to_the_end_and_then_says_what_to_type(endpoint: TokenEndpoint) -> None:
    login = login_of(endpoint)
    old = await login.token()
    endpoint.refused = {"refresh-0"}
    endpoint.now += 3600 - 299
    assert await login.token() == old
    endpoint.now += 300
    error = await failure(login)
    assert error.kind is ErrorKind.SIGNED_OUT
    assert "revoked" in error.message and "caretway login" in error.hint
    asked = len(endpoint.asked)
    for _ in range(5):
        assert (await failure(login)).kind is ErrorKind.SIGNED_OUT
    assert len(endpoint.asked) == asked == len(WAYS), "what is over for good is not asked for at every request"
    endpoint.now += DEAD_S - 301
    assert (await failure(login)).kind is ErrorKind.SIGNED_OUT
    assert len(endpoint.asked) == asked, "nor half a minute later"
    endpoint.refused.clear()
    endpoint.now += 1 + RETRY_S
    assert await login.token() != old, "after ten minutes it is asked about once more"


async def test_the_end_of_renewals_is_logged_once_with_what_to_type(
    endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.life = 86400.0
    login = login_of(endpoint)
    endpoint.refused = {"refresh-0"}
    endpoint.now += 86400 - 7199
    for _ in range(20):
        await login.token()
        endpoint.now += RETRY_S
    (received,) = caplog.messages
    assert "It works until 1970-01-13T13:46:40+00:00." in received and "`caretway login`" in received


async def test_the_longer_a_token_lives_the_longer_a_failure_waits(endpoint: TokenEndpoint) -> None:
    endpoint.life = 86400.0
    login = login_of(endpoint)
    endpoint.down = True
    endpoint.now += 86400 - 7200
    for _ in range(7199):
        await login.token()
        endpoint.now += 1
    assert 30 < len(endpoint.asked) < 60, "not every half minute for two hours"
    endpoint.now += 1
    assert (await failure(login)).kind is ErrorKind.UPSTREAM_DOWN


class FullShelf(OwnAccount):
    """Nothing can be written while it is full."""

    full = True

    async def write(self, account: Account) -> None:
        if self.full:
            raise GatewayError(ErrorKind.INTERNAL, "no space left")
        await super().write(account)


async def test_what_cannot_be_stored_is_not_lost(endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    """The old refresh token is good for nothing after a renewal: whoever forgets the new one has to sign in again."""
    shelf = FullShelf(Account(refresh_token="refresh-0"))
    login = login_of(endpoint, shelf)
    await login.token()
    assert "not stored yet" in caplog.text
    endpoint.refused = {"refresh-0"}
    for number in (1, 2):
        endpoint.now += 3600
        await login.token()
        assert endpoint.asked[-1] == (EXCHANGE, f"refresh-{number}")
    assert (await shelf.read()).refresh_token == "refresh-0"
    await login.aclose()
    assert (await shelf.read()).refresh_token == "refresh-0", "still full, and no complaint at the end"
    shelf.full = False
    await login.aclose()
    assert (await shelf.read()).refresh_token == "refresh-3"


async def test_a_sign_in_elsewhere_wins_over_what_could_not_be_stored(endpoint: TokenEndpoint) -> None:
    shelf = FullShelf(Account(refresh_token="refresh-0"))
    login = login_of(endpoint, shelf)
    await login.token()
    shelf.full = False
    await shelf.write(Account(refresh_token="elsewhere"))
    await login.aclose()
    assert (await shelf.read()).refresh_token == "elsewhere"
    endpoint.now += 3600
    await login.token()
    assert endpoint.asked[-1] == (EXCHANGE, "elsewhere")


async def test_a_refused_token_that_cannot_be_renewed_is_not_given_out_again(endpoint: TokenEndpoint) -> None:
    login = login_of(endpoint)
    old = await login.token()
    endpoint.down = True
    assert (await failure(login, refused=old)).kind is ErrorKind.UPSTREAM_DOWN


async def test_a_caller_that_hangs_up_does_not_cut_the_renewal_off(endpoint: TokenEndpoint) -> None:
    shelf = OwnAccount(Account(refresh_token="refresh-0"))
    login = login_of(endpoint, shelf)
    endpoint.gate = asyncio.Event()
    caller = spawn(login.token(), "caller")
    while not endpoint.asked:
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    endpoint.gate.set()
    await login.aclose()
    assert (await shelf.read()).refresh_token == "refresh-1", "the only refresh token that still works was kept"


CODES = [(429, ErrorKind.RATE_LIMITED), (500, ErrorKind.UPSTREAM_DOWN), (418, ErrorKind.UPSTREAM_DOWN)]


@pytest.mark.parametrize(("status", "kind"), CODES)
async def test_failures_say_what_they_are(endpoint: TokenEndpoint, status: int, kind: ErrorKind) -> None:
    endpoint.status = status
    assert (await failure(key_of(endpoint))).kind is kind


async def test_a_key_that_is_not_accepted(endpoint: TokenEndpoint) -> None:
    endpoint.refused = {"key"}
    error = await failure(key_of(endpoint))
    assert (error.kind, error.message) == (ErrorKind.SIGNED_OUT, "Cursor does not accept the API key.")
    assert "CURSOR_API_KEY" in error.hint


async def test_a_token_without_anything_to_renew_it_ends(endpoint: TokenEndpoint) -> None:
    alone = OwnAccount(Account(jwt(iat=endpoint.now, exp=endpoint.now + 100), received_at=endpoint.now))
    login = RenewedToken(alone, endpoint.call, endpoint.clock)
    await login.token()
    endpoint.now += 99
    await login.token()
    endpoint.now += 2
    assert (await failure(login)).kind is ErrorKind.SIGNED_OUT


async def test_what_is_at_hand_without_asking(endpoint: TokenEndpoint) -> None:
    key = key_of(endpoint)
    assert key.at_hand() is None
    token = await key.token()
    assert key.at_hand() == token
    endpoint.now += 3600 - 299
    assert key.at_hand() is None, "it is due: somebody has to be asked"
    assert (FixedToken("t").at_hand(), NoToken().at_hand()) == ("t", None)


async def test_those_that_do_not_renew() -> None:
    assert await FixedToken("t").token(refused="t") == "t"
    with pytest.raises(GatewayError, match="caretway login"):
        await NoToken().token()
    over = FixedToken("t", GatewayError(ErrorKind.SIGNED_OUT, "words of ours"))
    assert over.renewable and not FixedToken("t").renewable
    assert await over.token() == await over.token(refused="other") == "t"
    with pytest.raises(GatewayError, match="words of ours"):
        await over.token(refused="t")
    await FixedToken("t").aclose()
    await NoToken().aclose()
