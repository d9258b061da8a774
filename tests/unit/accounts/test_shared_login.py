"""Several users of one login file, and a service that replaces the refresh token each time: the login is never lost.

A property: whatever order of time, refused tokens and requests, everybody gets a token that works, and nobody ever
sends a refresh token that was used before.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from caretway.accounts.account import Account, claims
from caretway.accounts.login import OAUTH
from caretway.accounts.store import StoredAccount, open_sign_ins
from caretway.accounts.tokens import RenewedToken
from unit.accounts.token_endpoint import jwt

URL = "https://cursor.example"
USERS = 3


class RotatingService:
    """Takes the newest refresh token only, and only at one of the ways."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.number = 0
        self.misused: list[str] = []
        self.revoked: set[str] = set()

    @property
    def newest(self) -> str:
        return f"refresh-{self.number}"

    def clock(self) -> float:
        return self.now

    def access(self) -> str:
        return jwt(iat=self.now, exp=self.now + 3600, n=self.number, sub="user|1")

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        await asyncio.sleep(0)
        credential = json.loads(body).get("refresh_token") or headers.get("authorization", "")
        if path != OAUTH:
            return 401, b""
        if credential != self.newest:
            self.misused.append(credential)
            return 200, b'{"access_token": "", "shouldLogout": true}'
        self.number += 1
        tokens = {"access_token": self.access(), "refresh_token": self.newest, "shouldLogout": False}
        return 200, json.dumps(tokens).encode()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 4000)),
        st.tuples(st.just("refuse"), st.just(0)),
        st.tuples(st.just("ask"), st.integers(1, 2**USERS - 1)),
    ),
    min_size=1,
    max_size=12,
)


async def play(steps: list[tuple[str, int]], directory: Path) -> None:
    service = RotatingService()
    kept = open_sign_ins(directory, "file")
    kept.keep(URL, Account(service.access(), service.newest, received_at=service.now))
    users = [RenewedToken(StoredAccount(kept, URL), service.call, service.clock) for _ in range(USERS)]

    async def ask(user: RenewedToken) -> None:
        token = await user.token()
        if token in service.revoked:
            token = await user.token(refused=token)
        assert token not in service.revoked
        assert claims(token)["exp"] > service.now

    for kind, number in [*steps, ("ask", 2**USERS - 1)]:
        if kind == "wait":
            service.now += number
        elif kind == "refuse":
            stored = kept.find(URL)
            assert stored is not None
            service.revoked.add(stored.access_token)
        else:
            await asyncio.gather(*(ask(user) for index, user in enumerate(users) if number >> index & 1))
    assert service.misused == []
    stored = kept.find(URL)
    assert stored is not None and stored.refresh_token == service.newest and not stored.refused


@settings(max_examples=40)
@given(STEPS)
def test_nobody_loses_it(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(steps, Path(directory)))
