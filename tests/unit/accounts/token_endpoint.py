"""The sign-in endpoints as a test wants them: tokens with a life, a clock that is moved by hand, answers to order."""

import asyncio
import base64
import json
from collections.abc import Mapping

from caretway.core.errors import ErrorKind, GatewayError


def jwt(**claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"h.{payload}.s"


class TokenEndpoint:
    """Exchanges anything for a token of an hour, unless told otherwise."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.skew = 0.0
        """How far the issuer's clock is ahead of ours."""
        self.life = 3600.0
        self.asked: list[tuple[str, str]] = []
        self.refused: set[str] = set()
        """Paths and credentials that get a 401."""
        self.status = 200
        self.down = False
        self.gate: asyncio.Event | None = None

    def clock(self) -> float:
        return self.now

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        sent = json.loads(body)
        credential = sent.get("refresh_token") or sent.get("refreshToken") or headers["authorization"][len("Bearer ") :]
        self.asked.append((path, credential))
        await (asyncio.sleep(0) if self.gate is None else self.gate.wait())
        if self.down:
            raise GatewayError(ErrorKind.UPSTREAM_DOWN, "no answer")
        if {path, credential} & self.refused:
            return 401, b"{}"
        issued = self.now + self.skew
        number = len(self.asked)
        tokens = {
            "accessToken": jwt(iat=issued, exp=issued + self.life, n=number, sub="user|1"),
            "refreshToken": f"refresh-{number}",
        }
        return self.status, json.dumps(tokens).encode()
