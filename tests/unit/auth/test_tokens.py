"""An API key becomes a token, once, and again before it expires."""

import asyncio
import base64
import json

import pytest

from caretway.auth.tokens import ExchangedKey, expiry, renewal_time
from caretway.core.errors import ErrorKind, GatewayError


def jwt(expires: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"h.{claims}.s"


class Desk:
    """The exchange endpoint."""

    def __init__(self, status: int = 200) -> None:
        self.asked = 0
        self.status = status
        self.now = 1000.0

    async def exchange(self, key: str) -> tuple[int, bytes]:
        self.asked += 1
        await asyncio.sleep(0)
        return self.status, json.dumps({"accessToken": jwt(self.now + 3600 + self.asked)}).encode()

    def clock(self) -> float:
        return self.now


async def test_one_exchange_for_many_and_again_before_the_end() -> None:
    desk = Desk()
    key = ExchangedKey("key", desk.exchange, desk.clock)
    tokens = await asyncio.gather(*(key.token() for _ in range(20)))
    assert len(set(tokens)) == 1
    assert desk.asked == 1
    desk.now += 3600 - 301
    assert await key.token() == tokens[0]
    desk.now += 10
    assert await key.token() != tokens[0]
    assert desk.asked == 2


async def test_a_refused_token_is_replaced_once_for_all() -> None:
    desk = Desk()
    key = ExchangedKey("key", desk.exchange, desk.clock)
    first = await key.token()
    second = await asyncio.gather(*(key.token(refused=True) for _ in range(10)))
    assert set(second) != {first}
    assert desk.asked == 2


CODES = [(401, ErrorKind.SIGNED_OUT), (429, ErrorKind.RATE_LIMITED), (500, ErrorKind.UPSTREAM_DOWN)]


@pytest.mark.parametrize(("status", "kind"), CODES)
async def test_failures_say_what_they_are(status: int, kind: ErrorKind) -> None:
    desk = Desk(status)
    with pytest.raises(GatewayError) as failed:
        await ExchangedKey("key", desk.exchange, desk.clock).token()
    assert failed.value.kind is kind


@pytest.mark.parametrize("token", ["", "a.b", "a.!!.c", "a.e30.c", "a.W10.c"])
def test_odd_tokens_have_no_known_end(token: str) -> None:
    assert expiry(token) is None
    assert renewal_time(token, 50.0) == 50.0 + 1800
