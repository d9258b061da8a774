"""The simulated accounts: any key is good unless it says that it is bad. Issues tokens that look like Cursor's.

Tokens are JWT-shaped, with a real expiry and a number of their own; nobody checks the signature.
"""

import base64
from collections import OrderedDict
from typing import Any, Final

import msgspec

from .world import World

LIFETIME_S: Final = 3600
MAX_LOGINS: Final = 1024
_REFUSED: Final = ("bad", "expired")


class Accounts:
    def __init__(self, world: World) -> None:
        self._world = world
        self._issued = 0
        self._polled: OrderedDict[str, None] = OrderedDict()

    def exchange(self, key: str) -> dict[str, str] | None:
        """An API key, or a refresh token, for a pair of tokens."""
        if not accepted(key):
            return None
        if _claims(key).get("type") == "refresh":
            self._world.stats.token_refreshes += 1
        else:
            self._world.stats.token_exchanges += 1
        return self._issue()

    def refresh(self, token: str) -> dict[str, str] | None:
        if not accepted(token):
            return None
        self._world.stats.token_refreshes += 1
        return self._issue()

    def poll(self, uuid: str) -> dict[str, str] | None:
        """None at the first look: the user is still in the browser."""
        if uuid not in self._polled:
            self._polled[uuid] = None
            while len(self._polled) > MAX_LOGINS:
                self._polled.popitem(last=False)
            return None
        return {**self._issue(), "authId": "simulated|user", "challenge": ""}

    def _issue(self) -> dict[str, str]:
        self._issued += 1
        return {"accessToken": self._token("session"), "refreshToken": self._token("refresh")}

    def _token(self, kind: str) -> str:
        now = int(self._world.clock())
        claims = {
            "sub": "simulated|user",
            "type": kind,
            "jti": f"sim-{self._issued}",
            "iat": now,
            "exp": now + LIFETIME_S,
            "iss": "caretway-simulator",
        }
        return f"{_encode({'alg': 'none', 'typ': 'JWT'})}.{_encode(claims)}.{_encode({'simulated': self._issued})}"


def accepted(token: str) -> bool:
    return bool(token) and not token.startswith(_REFUSED)


def _encode(value: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
